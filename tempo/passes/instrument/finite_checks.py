"""What `tp.Options(check_finite=True)` looks at: outputs that say where a definition is not finite.

They are ordinary nodes and outputs of a role of their own, "watch", so that no backend, pass or scheduler has a case
for them; they demand nothing that the program does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tempo import dtypes
from tempo.analysis.demand.demand import certain_points
from tempo.analysis.reports import output_reader
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, TensorType
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import FALSE, TRUE, Box, Condition, disjunction

UNKNOWN, FINITE, INFINITE, NOT_A_NUMBER = 0, 1, 2, 3
"""What a watch holds at each point, int8; a tensor with both is not a number. Buffers begin with zeros."""

_VALUES = TensorType((), "int8")


@dataclass(frozen=True)
class Watch:
    """The output `name` of role "watch" says at every point of `reader`'s domain whether what `edge` reads is finite.

    `reader` is the node to name in messages: the definition that is read, or the output of the user's that reads it.
    """

    name: str
    edge: Edge
    reader: Node


def watched(graph: Graph) -> tuple[Graph, tuple[Watch, ...]]:
    """The graph with a watch on every floating definition (recurrent tensors, parameters, results of calls) and output.

    A definition is looked at at the points that are proven to be demanded; the others, and one whose shape varies, are
    left to those that read them.
    """
    rewriter = Rewriter(graph)
    watches: list[Watch] = []
    outputs: list[Output] = []
    for reader, edge, where in _looked_at(graph, rewriter):
        value = _verdict(Tensors(rewriter, reader.location), edge)
        if where != TRUE:
            value = _only(rewriter, reader, where, value)
        watch = Watch(str(len(watches)), edge, reader)
        watches.append(watch)
        outputs.append(Output(watch.name, value, reader.domain, _VALUES, reader.domain, "watch", reader.location))
    return replace(graph, nodes=rewriter.nodes, outputs=(*graph.outputs, *outputs)), tuple(watches)


def _looked_at(graph: Graph, rewriter: Rewriter) -> Iterator[tuple[Node, Edge, Condition]]:
    """Readers, what they read, and where."""
    certain = certain_points(graph)
    taken: set[Edge] = set()
    for node in graph.nodes.values():
        if not _is_definition(node):
            continue
        where = _points(graph, node, certain.get(node.id, ()))
        for at, type in enumerate(node.results):
            if dtypes.is_float(type.dtype) and not any(size.dims() for size in type.shape) and where != FALSE:
                edge = replace(rewriter.identity(node.id), result=at)
                taken.add(edge)
                yield node, edge, where
    for output in graph.outputs:
        if output.role == "output" and dtypes.is_float(output.type.dtype) and output.edge not in taken:
            yield output_reader(output), output.edge, TRUE


def _is_definition(node: Node) -> bool:
    return node.is_host_call or node.is_backend_call or node.attr("role") in ("recurrent", "parameter")


def _points(graph: Graph, node: Node, boxes: Sequence[Box]) -> Condition:
    """Where a definition is looked at."""
    whole = Box.full(graph.domain_dims(node))
    reached = [box for box in boxes if not any(lo == hi for _, lo, hi in box.bounds)]
    return TRUE if whole in reached else disjunction(box.condition() for box in reached)


def _verdict(tensors: Tensors, edge: Edge) -> Edge:
    axes = tuple(range(tensors.rank(edge)))

    finite = tensors.apply("constant", value=ArrayValue(np.asarray(FINITE, _VALUES.dtype)))

    def some(flags: Edge) -> Edge:
        held = tensors.apply("reduce_any", flags, axes=axes) if axes else flags
        return tensors.apply("cast", held, dtype=_VALUES.dtype)

    not_finite = tensors.apply("logical_not", tensors.apply("isfinite", edge))
    counted = tensors.apply("add", some(not_finite), some(tensors.apply("isnan", edge)))
    return tensors.apply("add", finite, counted)


def _only(rewriter: Rewriter, reader: Node, where: Condition, value: Edge) -> Edge:
    tensors = Tensors(rewriter, reader.location)
    elsewhere = tensors.apply("constant", value=ArrayValue(np.asarray(FINITE, _VALUES.dtype)))
    cases = (Case(where, value), Case(TRUE, elsewhere))
    attrs = (("name", ""), ("role", "cases"))
    return rewriter.declare(Node(-1, "merge", reader.domain, (_VALUES,), (), attrs, cases, 0, "", reader.location))
