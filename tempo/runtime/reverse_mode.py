"""A program compiled with its reverse mode, for whoever runs it inside another framework's automatic differentiation.

Two executables: the forward one gives the outputs and the residuals, the backward one takes these and a cotangent for
each output, and gives gradients. Both are derived programs (`Program.made_of`), so that names, sizes, dtypes and plans
are those of `tp.compile`. There is a pair for every set of what is differentiated with respect to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo import dtypes
from tempo.analysis.rows import is_known
from tempo.autodiff import Joint, Partition, expand_gradients, joint_graph, partition, pruned
from tempo.compiler.once import Once
from tempo.compiler.options import Options
from tempo.errors import AtUserLine, DTypeError, InputError, ProgramError, UnsupportedError, nearest
from tempo.keywords import RESERVED
from tempo.runtime.arguments.binding import as_array, called
from tempo.runtime.arguments.call import CallChecker
from tempo.runtime.compile import compile
from tempo.runtime.executable import Executable
from tempo.runtime.pickling import compiled_again, portable
from tempo.sdg.graph import Graph, Node, Output
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.language.program import Program

Arrays = Mapping[str, Any]
FIRST_ORDER = (
    "a second derivative of a Tempo program: its gradients are compiled, and are not differentiated again",
    "write the first gradient inside the program, tp.grad(loss, x), and differentiate what it is made of",
)
"""What is wrong, and what to do, where a gradient is differentiated."""


@dataclass(frozen=True)
class Argument:
    """An input or a parameter: its dtype, and its line in the program."""

    name: str
    dtype: str
    is_parameter: bool
    node: int

    @property
    def is_float(self) -> bool:
        """Whether it has a gradient."""
        return dtypes.is_float(self.dtype)


@dataclass(frozen=True)
class Pair:
    """`residuals`: as in `Partition`. `cotangents`: by output, the input of the backward program that its cotangent is;
    of outputs that it reads."""

    forward: Executable
    backward: Executable | None
    residuals: Mapping[str, str]
    cotangents: Mapping[str, str]
    passed_on: frozenset[str]
    """The arguments that the backward program reads."""


class ReverseMode:
    """`program`, compiled for a backend so that the gradient of `outputs` is to be had; None: of all outputs.

    Raises `ProgramError` where there is no such output, and where a parameter and an input have one name;
    `UnsupportedError`, with the line, for what has no place in a function that is differentiated: parameters with
    cases, calls of the host, sinks, stops, streamed inputs, lengths of rows that are computed.
    """

    def __init__(
        self,
        program: Program,
        backend: Any,
        outputs: str | Sequence[str] | None = None,
        sizes: Mapping[str, int] | None = None,
        options: Options | None = None,
    ) -> None:
        self.program, self.backend, self._sizes, self._options = program, backend, sizes, options
        self._asked = outputs
        with AtUserLine():
            check_program(program)
            self.outputs = _chosen(program, outputs)
        self.graph = _with_parameters_given(program, self.outputs)
        self.arguments = _arguments(self.graph)
        self._joints: Once[frozenset[str], Joint] = Once()
        self._pairs: Once[frozenset[str], Pair] = Once()
        self.pair(frozenset())  # what is wrong with the program is raised at once

    @property
    def is_single(self) -> bool:
        """Whether a call gives one array, and no mapping."""
        return isinstance(self._asked, str) or (self._asked is None and len(self.outputs) == 1)

    @property
    def inputs(self) -> Mapping[str, Argument]:
        return {name: each for name, each in self.arguments.items() if not each.is_parameter}

    @property
    def parameters(self) -> Mapping[str, Argument]:
        return {name: each for name, each in self.arguments.items() if each.is_parameter}

    @property
    def float_outputs(self) -> tuple[str, ...]:
        """Those that have a cotangent."""
        types = {each.name: each.type.dtype for each in self.graph.outputs}
        return tuple(name for name in self.outputs if dtypes.is_float(types[name]))

    def on(self, backend: Any) -> ReverseMode:
        """The same on another device."""
        return ReverseMode(self.program, backend, self._asked, self._sizes, self._options)

    def __deepcopy__(self, memo: Any) -> ReverseMode:
        return self  # nothing of it changes

    def __reduce__(self) -> tuple[Any, ...]:
        recipe = partial(ReverseMode, self.program, self.backend, self._asked, self._sizes, self._options)
        return compiled_again, (portable(recipe, self.program),)

    # -- calls -----------------------------------------------------------------------------------------------------

    def initial(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """What the parameters hold where nothing else is said: NumPy's arrays, with the dims in front.

        Raises `SizeError` where their shapes have sizes that `sizes=` does not say.
        """
        with AtUserLine():
            return CallChecker(self.program, self.program.graph(), self._sizes, lambda value: None).initial(seed)

    def check_names(self, given: Arrays) -> None:
        """Raises `InputError` for what is missing, or is no argument."""
        for name in given:
            if name not in self.arguments:
                raise InputError(f"the program has no input or parameter {name!r}", hint=nearest(name, self.arguments))
        for name, each in self.arguments.items():
            if name not in given:
                what = "parameter" if each.is_parameter else "input"
                location = self.graph.nodes[each.node].location
                raise InputError(f"the {what} {name!r} is missing", location=location, hint=f"pass {name}=...")

    def check_kind(self, name: str, dtype: str) -> None:
        """Raises `DTypeError` where an array of the dtype is of another kind than the argument."""
        wanted = self.arguments[name]
        if not dtypes.same_kind(dtype, wanted.dtype):
            what = "parameter" if wanted.is_parameter else "input"
            raise DTypeError(
                f"the {what} {name!r} has dtype {dtype}, which is of another kind than {wanted.dtype}",
                location=self.graph.nodes[wanted.node].location,
                hint="cast it first, if that is meant",
            )

    def array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        """What an argument is given, as an array of NumPy's of its dtype. Raises `InputError` and `DTypeError`."""
        node = self.graph.nodes[self.arguments[name].node]
        return as_array(value, node, called(node))

    def forward(self, wanted: frozenset[str], given: Arrays, seed: Any = 0, known: bool = True) -> Forward:
        """Run the program, and keep what the gradients of `wanted` are made of.

        `given` holds all arguments by name. `seed`: an integer, or a uint32 scalar of the backend's. `known`: whether
        arrays have values already; else nothing looks at them, and indices out of range are clamped.
        """
        pair, (inputs, state) = self.pair(wanted), self._apart(given)
        if known and self.graph.ragged:  # residuals are made at points, too, that nobody reads
            self.pair(frozenset()).forward.check_rows(inputs, state)
        made = pair.forward.applied(inputs, state, seed, known=known, rows=False)
        residuals = {name: made[shown] for name, shown in pair.residuals.items()}
        return Forward({name: made[name] for name in self.outputs}, residuals, dict(made.sizes))

    def backward(
        self,
        wanted: frozenset[str],
        given: Arrays,
        residuals: Arrays,
        cotangents: Arrays,
        sizes: Mapping[str, int],
        seed: Any = 0,
        known: bool = True,
    ) -> dict[str, Any]:
        """The gradients of `wanted`, by name; `given` are at least the arguments of `passed_on`."""
        pair = self.pair(wanted)
        if pair.backward is None:
            return {}
        inputs, state = self._apart({name: given[name] for name in pair.passed_on})
        inputs |= {**residuals, **{name: cotangents[output] for output, name in pair.cotangents.items()}}
        return dict(pair.backward.applied(inputs, state, seed, sizes, known, rows=False))

    def passed_on(self, wanted: frozenset[str]) -> frozenset[str]:
        """The arguments that the way back reads."""
        return self.pair(wanted).passed_on

    def _apart(self, given: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs and parameters."""
        inputs = {name: each for name, each in given.items() if not self.arguments[name].is_parameter}
        return inputs, {name: each for name, each in given.items() if self.arguments[name].is_parameter}

    # -- what is compiled ------------------------------------------------------------------------------------------

    def pair(self, wanted: frozenset[str]) -> Pair:
        """The two programs for gradients of `wanted`, names of arguments of floating dtypes."""
        return self._pairs.get(wanted, partial(self._made, wanted))

    def _made(self, wanted: frozenset[str]) -> Pair:
        if not wanted or not self.float_outputs:
            return Pair(self._compiled(pruned(expand_gradients(self.graph))), None, {}, {}, frozenset())
        joint = joint_graph(self.graph, {name: self.arguments[name].node for name in sorted(wanted)})
        cut = partition(joint, self._known)
        given = {node.port.name: node for node in cut.backward.nodes.values() if node.is_input}
        cotangents = {output: name for output, name in joint.cotangents.items() if name in given}
        passed_on = frozenset(given) & self.arguments.keys()
        forward, backward = self._compiled(cut.forward), self._compiled(cut.backward, at_call=True)
        return Pair(forward, backward, cut.residuals, cotangents, passed_on)

    def _compiled(self, graph: Graph, at_call: bool = False) -> Executable:
        """`at_call`: the sizes are told with each call."""
        states = [node.port.name for node in graph.nodes.values() if node.is_input and node.port.role == "state"]
        program = self.program.made_of(graph, states)
        return compile(program, self.backend, sizes=None if at_call else self._sizes, options=self._options)

    @cached_property
    def _known(self) -> dict[Symbol, int]:
        given = self._sizes or {}
        symbols = {dim.symbol.name: symbol for dim in self.graph.dims for symbol in dim.size.sizes()}
        return {symbols[name]: size for name, size in given.items() if name in symbols and type(size) is int}

    def partition(self, wanted: Iterable[str]) -> Partition:
        """What is handed on where gradients of `wanted` are asked for; for explanations and tests."""
        joint = joint_graph(self.graph, {name: self.arguments[name].node for name in sorted(wanted)})
        return partition(joint, self._known)


@dataclass(frozen=True)
class Forward:
    """What a forward run gives: outputs by name, what the way back needs, and the size of every dim by its name."""

    outputs: Mapping[str, Any]
    residuals: Mapping[str, Any]
    sizes: Mapping[str, int]


# -- what is refused ---------------------------------------------------------------------------------------------------


def check_program(program: Any) -> None:
    """Raises `ProgramError` for what is no program, and `UnsupportedError` for one that is no function of arrays."""
    from tempo.language.program import Program  # the language builds on nothing of the runtime

    if not isinstance(program, Program):
        raise ProgramError(
            f"a tp.Program is wanted, not a {type(program).__name__}",
            hint='write `with tp.Program("name") as program:` and give that',
        )
    graph = program.declared()
    needed = graph.reachable()
    for node in (each for id, each in graph.nodes.items() if id in needed):
        if (why := _no_function(node)) is not None:
            raise UnsupportedError(
                f"{why}: a module or function inside another framework gives outputs, and does nothing else",
                location=node.cases[0].location or node.location if node.is_merge else node.location,
                hint="compile the program with tp.compile, or leave this out of it",
            )
    for output in graph.outputs:
        if (what := _no_array(graph, output)) is not None:
            raise UnsupportedError(
                f"{what}: a module or function inside another framework gives arrays of one shape",
                location=output.location,
                hint="compile the program with tp.compile, or leave this out of it",
            )


def _no_array(graph: Graph, output: Output) -> str | None:
    if output.role == "stop":
        return f"the program ends early along {output.name}"
    if output.role == "rows" and not is_known(graph, output):
        return f"the program computes the lengths of rows along {output.name}, which are looked at when it has run"
    return "an output is packed" if output.packed else None


def _no_function(node: Node) -> str | None:
    if node.is_stream:
        return f"the input {node.attr('stream')!r} is streamed"
    if node.op == "sink":
        return "the program has a sink"
    if node.is_host_call:
        return "the program calls the host"
    if node.is_merge and node.attr("role") == "parameter" and not _is_given(node):
        return f"the parameter {node.name!r} is updated by cases"
    return None


def _is_given(node: Node) -> bool:
    """Whether a parameter is what it is given at every point."""
    return len(node.cases) == 1 and node.cases[0].location is None


def _chosen(program: Program, outputs: Any) -> tuple[str, ...]:
    there = [each.name for each in program.declared().outputs if each.role == "output"]
    asked = there if outputs is None else [outputs] if isinstance(outputs, str) else list(outputs)
    for name in asked:
        if name not in there:
            raise ProgramError(f"the program has no output {name!r}", hint=nearest(str(name), there))
    if not asked:
        raise ProgramError("the program has no outputs", hint='declare one: tp.output("y", y)')
    return tuple(dict.fromkeys(asked))


def _with_parameters_given(program: Program, outputs: tuple[str, ...]) -> Graph:
    """The declared graph, with inputs of role "state" in place of parameters, and the chosen outputs alone."""
    graph, specs = program.declared(), program.parameters
    nodes = dict(graph.nodes)
    for spec in specs.values():
        merge, state = nodes[spec.node], nodes.pop(spec.state)
        if merge.is_merge and _is_given(merge):
            nodes[merge.id] = replace(state, id=merge.id, location=merge.location)
    shown = {each.name: each for each in graph.outputs if each.role == "output"}
    rows = (each for each in graph.outputs if each.role == "rows")
    return replace(graph, nodes=nodes, outputs=(*(shown[name] for name in outputs), *rows), sinks=())


def _arguments(graph: Graph) -> dict[str, Argument]:
    found: dict[str, Argument] = {}
    for node in (each for each in graph.nodes.values() if each.is_input and each.port.role != "seed"):
        name = node.port.name
        if name in found or (node.port.role == "state" and name in RESERVED):
            why = "of an input, too" if name in found else "a keyword of a call"
            raise ProgramError(f"the parameter {name!r} has a name that is {why}", location=node.location)
        found[name] = Argument(name, node.dtype, node.port.role == "state", node.id)
    return found


def refuse_second_order() -> None:
    """Raises `UnsupportedError`."""
    raise UnsupportedError(FIRST_ORDER[0], hint=FIRST_ORDER[1])
