"""From the arguments of a call to arrays and sizes that are known to fit the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.backends.by_point import ByPoint, parts_of
from tempo.errors import InputError, SizeError, nearest
from tempo.reference.evaluator import Evaluator
from tempo.runtime.arguments import binding
from tempo.runtime.results.outputs import Outputs, State
from tempo.sdg.graph import Edge, Graph, Node, Output, Port
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.language.definitions import ParameterSpec
    from tempo.language.program import Program

Array = np.ndarray[Any, Any]
Shapes = Mapping[Port, tuple[int, ...]]
Sizes = Mapping[Symbol, int]
_MOST_KEPT = 1 << 16
"""Elements of an initial value that is kept for the next call; filling a larger array takes longer than all else."""


@dataclass(frozen=True)
class Arguments:
    """One call: the value of every size, and an array for every `input` node."""

    sizes: Mapping[Symbol, int]
    arrays: Mapping[Port, Array | ByPoint]
    seed: int
    feeds: Mapping[str, binding.StreamFeed] = field(default_factory=dict)
    """What streamed inputs are read from, by name."""
    donated: frozenset[Port] = frozenset()
    """Those of which the caller gives up arrays of the backend's own."""
    lengths: Mapping[str, Array] = field(default_factory=dict)
    """By dim along which rows have lengths of their own, these."""

    def given_up(self) -> list[Any]:
        """The arrays, as the caller has them."""
        return [part for port in self.donated for part in parts_of(self.arrays[port])]


class CallChecker:
    """Checks calls of one program. `compile_sizes` were given to `tp.compile`."""

    def __init__(
        self, program: Program, graph: Graph, compile_sizes: Mapping[str, Any] | None, native: binding.Native
    ) -> None:
        self.native, self.graph = native, graph
        self.parameters: Mapping[str, ParameterSpec] = program.parameters
        self.compile_sizes = dict(binding.by_name(compile_sizes, "sizes= of compile", '{"t": 10}'))
        self.inputs, self.states = (binding.input_nodes(graph, role) for role in ("input", "state"))
        self.streams = binding.stream_nodes(graph)
        self._declared = {**self.inputs, **self.streams}
        self._initial = InitialValues(graph, self.parameters)
        self._last: tuple[Shapes, Mapping[str, Any], Mapping[Symbol, int]] | None = None
        self.table()  # wrong names and sizes are reported at once

    def table(self) -> binding.SizeTable:
        table = binding.SizeTable(self.graph)
        table.claim_named(self.compile_sizes, "sizes= of compile")
        return table

    def known_sizes(self) -> Mapping[Symbol, int] | None:
        """The sizes, if `compile` was told all of them."""
        table = self.table()
        return None if table.missing() else table.complete()

    def check(
        self,
        inputs: Mapping[str, Any],
        sizes: Mapping[str, Any] | None,
        state: Mapping[str, Any] | None,
        seed: Any,
        strict: Any = None,
        endless: tuple[Symbol, int] | None = None,
        donate: bool = False,
    ) -> Arguments:
        """`endless`: a dim without an end, and the most points that it can have; a streamed input along it says nothing
        of its size."""
        seeded = binding.seed_array(seed)
        inputs = binding.as_declared(inputs, self._declared)
        binding.check_names(inputs, self._declared, "input")
        stated = self._named_states(state, strict)
        arrays = {node.port: binding.as_input(inputs[name], node, self.native) for name, node in self.inputs.items()}
        for name in (name for name in self.states if name in stated):
            node = self.states[name]
            arrays[node.port] = binding.as_array(stated[name], node, binding.called(node), self.native)
        sizes = binding.by_name(sizes, "sizes=", '{"t": 10}')
        if endless is not None:
            self._check_endless(endless[0])
            sizes = {**sizes, endless[0].name: endless[1]}
        known = self._known(arrays, {name: inputs[name] for name in self.streams}, sizes, endless and endless[0])
        begun = [node for name, node in self.states.items() if name not in stated]
        initial = {node.port: self._initial.value(node, known, arrays, int(seed)) for node in begun}
        feeds = {name: binding.StreamFeed(self.graph, node, inputs[name], known) for name, node in self.streams.items()}
        donated = self._donated(arrays) if donate else frozenset[Port]()
        return Arguments(known, {**arrays, **initial, Port("seed", "seed"): seeded}, int(seed), feeds, donated)

    def initial(self, seed: Any) -> dict[str, Array]:
        """What every parameter is at the start, without a call."""
        binding.seed_array(seed)
        sizes = binding.some_sizes(self.table(), self.states.values())
        return {name: self._initial.value(node, sizes, {}, int(seed)) for name, node in self.states.items()}

    def _donated(self, arrays: Mapping[Port, Array | ByPoint]) -> frozenset[Port]:
        """Those of which all arrays are the backend's own; others stay the caller's."""
        owners, found = dict[int, Port](), set[Port]()
        for port, parts in ((port, list(parts_of(given))) for port, given in arrays.items()):
            if any(self.native(part) is None for part in parts):
                continue
            for part in parts:
                if (other := owners.setdefault(id(part), port)) != port:
                    names = f"{other.name!r} and {port.name!r}"
                    raise InputError(f"donate=True is given one array twice, for {names}", hint="give a copy of it")
            if len({id(part) for part in parts}) < len(parts):
                raise InputError(f"donate=True is given one array twice, for {port.name!r}", hint="give a copy of it")
            found.add(port)
        return frozenset(found)

    def inputs_of(self, given: Mapping[str, Any]) -> dict[Port, Array | ByPoint]:
        """Some of the inputs, as a call takes them; their shapes are held to sizes in a call."""
        given = binding.as_declared(given, self.inputs)
        for name in given:
            if name not in self.inputs:
                raise InputError(f"the program has no input {name!r}", hint=nearest(name, self.inputs))
        nodes = ((self.inputs[name], each) for name, each in given.items())
        return {node.port: binding.as_input(each, node, self.native) for node, each in nodes}

    def _known(
        self,
        arrays: Mapping[Port, Array | ByPoint],
        streamed: Mapping[str, Any],
        sizes: Mapping[str, Any],
        endless: Symbol | None = None,
    ) -> Mapping[Symbol, int]:
        """The sizes, which the arrays fit. Arrays of the same shapes, and the same sizes, as in the call before need no
        second look."""
        shapes, named = {port: array.shape for port, array in arrays.items()}, dict(sizes)
        numbers = all(type(size) is int for size in named.values())  # what is none is looked at, and refused
        last = self._last  # once: another thread may call in between
        if last is not None and numbers and not streamed and (shapes, named) == last[:2]:
            return last[2]
        table = self.table()
        table.claim_named(sizes, "sizes=")
        for node in self.inputs.values():
            binding.claim_shape(table, node, arrays[node.port])
        for name, node in self.streams.items():
            binding.claim_length(table, node, streamed[name], endless)
        known = table.complete()
        for node in (*self.inputs.values(), *self.states.values()):
            if node.port in arrays:
                binding.check_shape(self.graph, node, arrays[node.port], known)
        if numbers and not streamed:
            self._last = shapes, named, known
        return known

    def _check_endless(self, dim: Symbol) -> None:
        """Nobody may say what the size is."""
        says = (
            [f"sizes= of compile ({dim.name}={self.compile_sizes[dim.name]})"] if dim.name in self.compile_sizes else []
        )
        says += [f"the array of the input {name!r}" for name, node in self.inputs.items() if dim in node.domain]
        if says:
            raise SizeError(
                f"{dim.name} has no end by sizes= ({dim.name}=None), but has one by {says[0]}",
                hint="tp.stream_input takes values one by one, as many as there are",
            )

    # -- parameters ------------------------------------------------------------------------------------------------

    def _named_states(self, state: Mapping[str, Any] | None, strict: Any) -> Mapping[str, Any]:
        """What is given by name. What is no parameter is refused, but for `strict=False`.

        The state of a run may hold more than a program has, unless `strict=True`: it is that of another one.
        """
        if not isinstance(strict, bool | None):
            raise InputError(
                f"strict={strict!r} is a {type(strict).__name__}", hint="write strict=True or strict=False"
            )
        if isinstance(state, Outputs):
            raise InputError("state= is given the outputs of a run", hint="write state=outputs.state")
        given = binding.by_name(state, "state=", "state=trained.state")
        unknown = [name for name in given if name not in self.parameters]
        if strict is False or (strict is None and isinstance(state, State)):
            if given and len(unknown) == len(given) and self.parameters:
                raise InputError(
                    "state= names no parameter of the program",
                    hint=f"it names {_some(given)}; parameters: {_some(self.parameters)}",
                )
            return given
        if len(unknown) == 1:
            (name,) = unknown
            hint = nearest(name, self.parameters, "parameters")
            raise InputError(f"state= names {name!r}, which is no parameter", hint=f"{hint}; {_LEFT_OUT}")
        if unknown:
            hint = f"parameters: {_some(self.parameters)}; {_LEFT_OUT}"
            raise InputError(f"state= names {_some(unknown)}, which are no parameters", hint=hint)
        return given


_LEFT_OUT = "strict=False leaves out what is none"
_MOST_NAMES = 20  # that a message lists


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return (", ".join(map(repr, listed[:_MOST_NAMES])) or "none") + more


# -- what parameters are at the start ----------------------------------------------------------------------------------


class InitialValues:
    """Of the parameters of one program. Zeros, and what else is the same in all calls, are made once."""

    def __init__(self, graph: Graph, parameters: Mapping[str, ParameterSpec]) -> None:
        self._graph, self._parameters = graph, parameters
        self._alone: dict[str, Graph] = {}
        self._kept: dict[str, tuple[Sizes, Array]] = {}  # the last of each; other threads may put theirs

    def value(self, node: Node, sizes: Sizes, given: Mapping[Port, Array | ByPoint], seed: int) -> Array:
        """At every point of the domain of `node`, which is the input that holds the state."""
        name = node.port.name
        kept = self._kept.get(name)
        if kept is not None and (kept[0] is sizes or kept[0] == sizes):
            return kept[1]
        init = self._parameters[name].init
        if not isinstance(init, Edge):
            return self._given(node, init, sizes)
        alone = self._alone_for(name, node, init)
        inputs = binding.input_nodes(alone, "input").values()
        for each in inputs:
            if each.port not in given:
                raise InputError(
                    f"the initial value of the parameter {name!r} is made of the input {each.port.name!r}",
                    location=node.location,
                    hint="give it an array, or an initialiser that reads no input",
                )
        arrays = {each.id: binding.as_array(given[each.port], each, binding.called(each)) for each in inputs}
        array = Evaluator(alone, arrays, sizes, seed).run().outputs["init"]
        by_call = any(each.is_input or each.is_call for each in alone.nodes.values())  # the seed of draws is an input
        if array.size <= _MOST_KEPT and not by_call:
            self._kept[name] = sizes, array
        return array

    def _given(self, node: Node, init: Any, sizes: Sizes) -> Array:
        """An array, of one point or of all."""
        full, what = binding.expected_shape(self._graph, node, sizes), f"init of the parameter {node.port.name!r}"
        array = binding.as_array(init, node, what)
        if array.shape not in (full, full[len(node.domain) :]):
            shapes = " or ".join(sorted({str(full), str(full[len(node.domain) :])}))
            raise InputError(f"{what} has shape {array.shape}, expected is {shapes}", location=node.location)
        return np.broadcast_to(array, full).copy()

    def _alone_for(self, name: str, node: Node, init: Edge) -> Graph:
        """The part of the graph that an initialiser is: an expression of the language, which the evaluator computes."""
        if name not in self._alone:
            layout = (*node.domain, *range(len(node.shape)))
            output = Output("init", init, node.domain, node.type, layout)
            alone = replace(self._graph, outputs=(output,), sinks=())
            needed = alone.reachable()
            nodes = {id: each for id, each in alone.nodes.items() if id in needed}
            self._alone[name] = replace(alone, nodes=nodes)
        return self._alone[name]
