"""What graphs are given for the sake of buffers, last of all passes.

Every output reads one tensor at itself, so that its buffer is written where that tensor is made. And cases that read an
element of a row which was computed at once read the row: lifting gives such a case a slice of the row at the case's
point, and movement around it. That the value is an element of the row is what storage has to know: then the row may be
computed right where the elements are kept (`tempo.lowering.storage.assignment`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.analysis.reports import output_reader
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.simplify.movement import ONE, Axes, look_through
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.graph import Case, Element, Graph, Node, Output, Slice
from tempo.symbolic import Expr, Symbol, as_expr, const


@dataclass(frozen=True)
class MaterialiseOutputs:
    """A `copy` node for each output that reads through a map, or that reads an input or a constant.

    Each stop has one as well, which nothing else is a part of: it is the last of all that runs at a point.
    """

    name: ClassVar[str] = "materialise_outputs"
    needed: ClassVar[str] = "every output is written where some tensor is made"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        if all(_is_direct(graph, output) for output in graph.outputs):
            return graph
        new, outputs = NodeBuilder(graph.dims, graph.nodes), []
        for output in graph.outputs:
            if not _is_direct(graph, output):
                output = replace(output, edge=new.numbered(replace(output_reader(output), name=output.name)))
            outputs.append(output)
        return replace(graph, nodes=new.nodes, outputs=tuple(outputs))


def _is_direct(graph: Graph, output: Output) -> bool:
    producer = graph.nodes[output.edge.node]
    if producer.is_given or output.role == "stop":
        return False
    return producer.domain == output.domain and graph.is_identity(output.edge)


@dataclass(frozen=True)
class ElementReads:
    """The graph with such cases, in definitions of which stretches are kept to be read, or as an output."""

    name: ClassVar[str] = "element_reads"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        kept = _kept(graph)
        changed: dict[int, Node] = {}
        for node in graph.nodes.values():
            cases = tuple(_with_part(case, node, kept[node.id], graph) for case in node.cases if kept.get(node.id))
            if any(case.part is not None for case in cases):
                changed[node.id] = replace(node, cases=cases)
        return without_dead_nodes(replace(graph, nodes={**graph.nodes, **changed}) if changed else graph)


def _kept(graph: Graph) -> dict[int, set[Symbol]]:
    """By node, the dims along which somebody reads a slice of it, or all of it is an output."""
    found: dict[int, set[Symbol]] = {}
    for output in graph.outputs:
        found.setdefault(output.edge.node, set()).update(dim for dim in output.domain if dim in output.layout)
    for node in graph.nodes.values():
        for _, edge in node.reads():
            read = zip(graph.nodes[edge.node].domain, edge.map, strict=True)
            found.setdefault(edge.node, set()).update(dim for dim, index in read if isinstance(index, Slice))
    return found


def _with_part(case: Case, node: Node, dims: set[Symbol], graph: Graph) -> Case:
    moved = look_through(case.edge, graph)
    taken = graph.view(moved.source)
    found = None if taken is None or taken.op != "slice" else _element(taken, graph)
    if taken is None or found is None or graph.nodes[taken.operands[0].node].is_given:
        return case
    axis, at = found
    row = taken.operands[0]
    if any(shown is None and size != ONE for shown, size in zip(moved.axes, node.shape, strict=True)):
        return case  # it repeats
    if not at.dims() or not at.dims() <= dims - row.dims():
        return case
    order = _order(axis, moved.axes, len(taken.type.shape))
    return replace(case, edge=row, part=Element(order, at))


def _element(taken: Node, graph: Graph) -> tuple[int, Expr] | None:
    """The axis along which one element is taken, and which; None for other slices."""
    given = graph.seen_type(taken.operands[0]).shape
    starts, lengths, steps = (map(as_expr, taken.attr(key)) for key in ("starts", "lengths", "steps"))
    places = enumerate(zip(starts, lengths, steps, given, strict=True))
    cut = [(axis, place) for axis, (*place, size) in places if place != [const(0), size, ONE]]
    if len(cut) != 1:
        return None
    axis, (start, length, _) = cut[0]
    return (axis, start) if length == ONE else None


def _order(axis: int, shown: Axes, rank: int) -> tuple[int, ...]:
    """All axes of the row: that of the elements, then those shown in their order, those of size 1 wherever they fit."""
    order = [each for each in shown if each is not None and each != axis]
    rest = [each for each in range(rank) if each not in order and each != axis]
    return (axis, *(sorted((*order, *rest)) if order == sorted(order) else (*order, *rest)))
