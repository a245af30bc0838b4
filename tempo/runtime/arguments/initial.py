"""What parameters are at the start of a call that gives no state for them: their initialisers' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.errors import InputError
from tempo.reference.evaluator import Evaluator
from tempo.runtime.arguments import binding
from tempo.sdg.graph import Edge, Graph, Node, Output
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.language.parameters import ParameterSpec

Array = np.ndarray[Any, Any]
Sizes = Mapping[Symbol, int]
_MOST_KEPT = 1 << 16
"""Elements of a value that is kept for the next call; filling a larger array takes longer than all else."""


class InitialValues:
    """Of the parameters of one program. Zeros, and what else is the same in all calls, are made once."""

    def __init__(self, graph: Graph, parameters: Mapping[str, ParameterSpec], inputs: Mapping[str, Node]) -> None:
        self._graph, self._parameters, self._inputs = graph, parameters, inputs
        self._alone: dict[str, Graph] = {}
        self._kept: dict[str, tuple[Sizes, Array]] = {}  # the last of each; other threads may put theirs

    def value(self, node: Node, name: str, sizes: Sizes, inputs: Mapping[str, Array], seed: int) -> Array:
        """At every point of the domain of `node`, which is the input that holds the state."""
        kept = self._kept.get(name)
        if kept is not None and (kept[0] is sizes or kept[0] == sizes):
            return kept[1]
        init = self._parameters[name].init
        if not isinstance(init, Edge):
            return self._given(node, name, init, sizes)
        alone = self._alone_for(name, node, init)
        arrays = {
            each.id: binding.as_array(inputs[other], each, f"the input {other!r}")
            for other, each in self._inputs.items()
            if each.id in alone.nodes
        }
        array = Evaluator(alone, arrays, sizes, seed).run().outputs["init"]
        if array.size <= _MOST_KEPT and not any(map(_decided_by_call, alone.nodes.values())):
            self._kept[name] = sizes, array
        return array

    def _given(self, node: Node, name: str, init: Any, sizes: Sizes) -> Array:
        """An array, of one point or of all."""
        full = tuple(int(extent.evaluate(sizes)) for extent in binding.expected_shape(self._graph, node))
        array = binding.as_array(init, node, f"init of the parameter {name!r}")
        if array.shape not in (full, full[len(node.domain) :]):
            shapes = " or ".join(sorted({str(full), str(full[len(node.domain) :])}))
            message = f"init of the parameter {name!r} has shape {array.shape}, expected is {shapes}"
            raise InputError(message, location=node.location)
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


def _decided_by_call(node: Node) -> bool:
    """The seed, of which draws are made, is an input too."""
    return node.is_input or node.is_call
