"""From the arguments of a call to arrays and sizes that are known to fit the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.errors import InputError
from tempo.reference.evaluator import Evaluator
from tempo.reference.streams import Feed
from tempo.runtime import binding
from tempo.runtime.feeds import IteratorFeed, claim_length, stream_nodes
from tempo.runtime.outputs import State
from tempo.sdg.graph import Edge, Graph, Node, Output
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.language.parameters import ParameterSpec
    from tempo.language.program import Program

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Arguments:
    """One call: the value of every size, and an array for every `input` node, by role and name ("state:w", "seed")."""

    sizes: Mapping[Symbol, int]
    arrays: Mapping[str, Array]
    seed: int
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    """What streamed inputs are read from, by name."""


class CallChecker:
    """Checks calls of one program. `compile_sizes` were given to `tp.compile`."""

    def __init__(
        self, program: Program, graph: Graph, compile_sizes: Mapping[str, Any] | None, native: binding.Native
    ) -> None:
        self.native = native
        self.graph = graph
        self.parameters: Mapping[str, ParameterSpec] = program.parameters
        self.compile_sizes = dict(binding.by_name(compile_sizes, "sizes= of compile", '{"t": 10}'))
        self.inputs = binding.input_nodes(graph, "input")
        self.streams = stream_nodes(graph)
        self.states = binding.input_nodes(graph, "state")
        self._last: tuple[Shapes, Mapping[Symbol, int]] | None = None
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
        self, inputs: Mapping[str, Any], sizes: Mapping[str, Any] | None, state: Mapping[str, Any] | None, seed: Any
    ) -> Arguments:
        seeded = binding.seed_array(seed)
        binding.check_names(inputs, {**self.inputs, **self.streams}, "input")
        given = {
            name: binding.as_array(inputs[name], node.dtype, _input(name), self.native)
            for name, node in self.inputs.items()
        }
        known = self._known(given, {name: inputs[name] for name in self.streams}, sizes)
        arrays = {**given, "seed": seeded}
        for name, array in self._states(state, known, given, int(seed)).items():
            arrays[f"state:{name}"] = array
        feeds = {name: IteratorFeed.of(self.graph, node, inputs[name], known) for name, node in self.streams.items()}
        return Arguments(known, arrays, int(seed), feeds)

    def _known(
        self, given: Mapping[str, Array], streamed: Mapping[str, Any], sizes: Mapping[str, Any] | None
    ) -> Mapping[Symbol, int]:
        """The sizes, which the arrays fit. Arrays of the same shapes as in the call before need no second look."""
        shapes = tuple(array.shape for array in given.values())
        last = self._last  # once: another thread may call in between
        if last is not None and not sizes and not streamed and shapes == last[0]:
            return last[1]
        table = self.table()
        table.claim_named(sizes, "sizes=")
        for name, node in self.inputs.items():
            binding.claim_shape(table, node, given[name], _input(name))
        for name, node in self.streams.items():
            claim_length(table, node, streamed[name])
        known = table.complete()
        for name, node in self.inputs.items():
            binding.check_shape(self.graph, node, given[name], known, _input(name))
        if not sizes:
            self._last = shapes, known
        return known

    # -- parameters ------------------------------------------------------------------------------------------------

    def _states(
        self, state: Mapping[str, Any] | None, sizes: Mapping[Symbol, int], inputs: Mapping[str, Array], seed: int
    ) -> dict[str, Array]:
        given = dict(binding.by_name(state, "state=", "state=trained.state"))
        if not isinstance(state, State):
            self._check_state_names(given)
        return {
            name: self._given_state(node, name, given[name], sizes)
            if name in given
            else self._initial(node, name, sizes, inputs, seed)
            for name, node in self.states.items()
        }

    def _check_state_names(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.parameters:
                known = ", ".join(sorted(self.parameters)) or "none"
                raise InputError(f"state= names {name!r}, which is no parameter", hint=f"parameters: {known}")

    def _given_state(self, node: Node, name: str, value: Any, sizes: Mapping[Symbol, int]) -> Array:
        what = f"the state of the parameter {name!r}"
        array = binding.as_array(value, node.dtype, what, self.native)
        binding.check_shape(self.graph, node, array, dict(sizes), what)
        return array

    def _initial(
        self, node: Node, name: str, sizes: Mapping[Symbol, int], inputs: Mapping[str, Array], seed: int
    ) -> Array:
        init = self.parameters[name].init
        extents = binding.expected_shape(self.graph, node)
        full = tuple(int(extent.evaluate(sizes)) for extent in extents)
        if isinstance(init, Edge):
            return self._evaluated(node, init, sizes, inputs, seed)
        array = binding.as_array(init, node.dtype, f"init of the parameter {name!r}")
        if array.shape not in (full, full[len(node.domain) :]):
            shapes = " or ".join(sorted({str(full), str(full[len(node.domain) :])}))
            message = f"init of the parameter {name!r} has shape {array.shape}, expected is {shapes}"
            raise InputError(message, location=node.location)
        return np.broadcast_to(array, full).copy()

    def _evaluated(
        self, node: Node, init: Edge, sizes: Mapping[Symbol, int], inputs: Mapping[str, Array], seed: int
    ) -> Array:
        """An initialiser is an expression of the language; the reference evaluator gives its value at every point."""
        layout = (*node.domain, *range(len(node.shape)))
        output = Output("init", init, node.domain, node.type, layout)
        alone = replace(self.graph, outputs=(output,), sinks=())
        needed = alone.reachable()
        alone = replace(alone, nodes={id: each for id, each in alone.nodes.items() if id in needed})
        arrays = {
            each.id: binding.as_array(inputs[name], each.dtype, _input(name))
            for name, each in self.inputs.items()
            if each.id in needed
        }
        return Evaluator(alone, arrays, sizes, seed).run().outputs["init"]


def _input(name: str) -> str:
    return f"the input {name!r}"
