"""Lifting: a dim along which all points are independent becomes a leading spatial axis of the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.errors import InternalError
from tempo.passes.dce import without_dead_nodes
from tempo.passes.liftable import as_symbols, liftable
from tempo.passes.manager import PassContext
from tempo.passes.rewriting import Rewriter, Tensors
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Dim, Symbol, const, var

Layout = tuple[Symbol | int, ...]
Read = tuple[Edge, bool]
"""What a node reads, and whether it has the lifted axis in front."""


@dataclass(frozen=True)
class Lift:
    """Lifts every dim that can be lifted from the whole graph, but for those in `exclude`.

    The lifted dims lie in front of a value's axes, in canonical order.
    """

    exclude: frozenset[Symbol] = frozenset()
    name: ClassVar[str] = "lift"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        for dim in reversed(graph.dims):
            if dim.symbol not in self.exclude and liftable(graph, dim, context.facts):
                graph = without_dead_nodes(lifted(graph, dim))
        return graph


def lifted(graph: Graph, dim: Dim) -> Graph:
    """`graph` with `dim` as axis 0 of everything that varies along it. `liftable(graph, dim)` must hold."""
    return _Lifting(graph, dim).graph()


class _Lifting:
    def __init__(self, graph: Graph, dim: Dim) -> None:
        self.old = graph
        self.symbol = dim.symbol
        self.size = dim.size
        self.new = Rewriter(graph)
        self.varying = frozenset(id for id, node in graph.nodes.items() if dim.symbol in node.domain)
        for id in self.varying:
            self.new.nodes[id] = self.signature(graph.nodes[id])

    def signature(self, node: Node) -> Node:
        domain = tuple(symbol for symbol in node.domain if symbol != self.symbol)
        return replace(node, domain=domain, results=tuple(self.lifted_type(type) for type in node.results))

    def lifted_type(self, type: TensorType) -> TensorType:
        return replace(type, shape=(self.size, *type.shape))

    def graph(self) -> Graph:
        for node in self.old.nodes.values():
            self.rewrite(node)
        outputs = tuple(self.output(output) for output in self.old.outputs)
        return replace(self.old, nodes=self.new.nodes, outputs=outputs)

    def rewrite(self, node: Node) -> None:
        tensors = Tensors(self.new, node.location)
        if node.id not in self.varying or node.op == "merge":
            self.new.nodes[node.id] = self.with_reads(tensors, node)
        elif node.op == "input":
            layout = self.layout(node.attr("layout", default_layout(node.domain, node.type)))
            self.new.nodes[node.id] = _with_attrs(self.signature(node), layout=layout)
        elif node.op == "random_bits":
            self.new.nodes[node.id] = self.random_bits(self.with_reads(tensors, node))
        else:
            rule = _RULES.get(node.op, _Lifting.by_table)
            self.new.put(node, rule(self, tensors, node))

    def with_reads(self, tensors: Tensors, node: Node) -> Node:
        """The node with its reads adapted; a case of a merge is broadcast where it does not vary along the dim."""
        varies = node.id in self.varying
        operands = tuple(self.read(tensors, edge)[0] for edge in node.operands)
        cases = []
        for case in node.cases:
            edge, is_lifted = self.read(tensors, case.edge)
            cases.append(replace(case, edge=self.spread(tensors, edge) if varies and not is_lifted else edge))
        changed = self.signature(node) if varies else node
        return replace(changed, operands=operands, cases=tuple(cases))

    def read(self, tensors: Tensors, edge: Edge) -> Read:
        """What the edge shows, from the lifted producer."""
        if edge.node not in self.varying:
            return edge, False
        position = self.old.nodes[edge.node].domain.index(self.symbol)
        index = edge.map[position]
        rest = replace(edge, map=edge.map[:position] + edge.map[position + 1 :])
        axis = sum(isinstance(other, Slice) for other in rest.map)
        if isinstance(index, Slice):
            before = sum(isinstance(other, Slice) for other in edge.map[:position])
            return tensors.moved(rest, axis, before), False
        if index == Point(var(self.symbol)):
            return tensors.moved(rest, axis, 0), True
        return tensors.at(rest, axis, index.index), False

    def spread(self, tensors: Tensors, edge: Edge) -> Edge:
        return tensors.broadcast(edge, (self.size, *tensors.shape(edge)))

    def by_table(self, tensors: Tensors, node: Node) -> Edge:
        """By the operator's own rule."""
        operator = OPERATORS[node.op]
        reads = [self.read(tensors, edge) for edge in node.operands]
        ranks = tuple(len(self.old.seen_type(edge).shape) for edge in node.operands)
        if operator.lift is None:
            raise InternalError(f"{node.op} has no rule for lifting", location=node.location)
        result = operator.lift(node.attributes, tuple(flag for _, flag in reads), ranks, self.size)
        operands = []
        for (edge, is_lifted), rank in zip(reads, ranks):
            if is_lifted and operator.kind == "elementwise":
                edge = tensors.with_ones(edge, 1, max(ranks) - rank)
            if result.broadcast and not is_lifted:
                edge = self.spread(tensors, edge)
            operands.append(edge)
        return tensors.moved(tensors.apply(node.op, *operands, **result.attrs), result.axis, 0)

    def along(self, tensors: Tensors) -> dict[Symbol, Edge]:
        """The values of the lifted dim along its axis."""
        return {self.symbol: tensors.iota((self.size,), 0)}

    def index_value(self, tensors: Tensors, node: Node) -> Edge:
        return tensors.values(node.attr("expr"), self.along(tensors))

    def condition_value(self, tensors: Tensors, node: Node) -> Edge:
        return tensors.holds(node.attr("condition"), self.along(tensors))

    def random_bits(self, node: Node) -> Node:
        """The dim's coordinate becomes axis 0: the same draws."""
        shape, coordinates = node.attr("shape"), []
        for coordinate in node.attr("coordinates"):
            moved = coordinate + 1 if isinstance(coordinate, int) else coordinate
            coordinates.append(0 if moved == var(self.symbol) else moved)
        return _with_attrs(node, shape=(self.size, *shape), coordinates=tuple(coordinates))

    def slice(self, tensors: Tensors, node: Node) -> Edge:
        """Starts that vary along the dim: its own diagonal is a transposition, others are gathers along each axis."""
        starts = node.attr("starts")
        moving = [axis for axis, start in enumerate(starts) if self.symbol in as_symbols(start)]
        if not moving:
            return self.by_table(tensors, node)
        data, is_lifted = self.read(tensors, node.operands[0])
        data = self.fixed_part(tensors, node, data, is_lifted, moving)
        for axis in moving:
            data = self.moving_part(tensors, node, data, is_lifted, axis)
            is_lifted = True
        return data

    def fixed_part(self, tensors: Tensors, node: Node, data: Edge, is_lifted: bool, moving: list[int]) -> Edge:
        shape = tensors.shape(data)
        starts, lengths, steps = (list(node.attr(key)) for key in ("starts", "lengths", "steps"))
        if is_lifted:
            starts, lengths, steps = [const(0), *starts], [self.size, *lengths], [1, *steps]
        for axis in moving:
            axis += is_lifted
            starts[axis], lengths[axis], steps[axis] = const(0), shape[axis], 1
        whole = all(start == const(0) for start in starts) and tuple(lengths) == shape
        if whole and all(step == 1 for step in steps):
            return data
        return tensors.apply("slice", data, starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))

    def moving_part(self, tensors: Tensors, node: Node, data: Edge, is_lifted: bool, axis: int) -> Edge:
        start, length, step = (node.attr(key)[axis] for key in ("starts", "lengths", "steps"))
        diagonal = start == var(self.symbol) and length == const(1)
        if diagonal and not is_lifted and tensors.shape(data)[axis] == self.size:
            return tensors.with_ones(tensors.moved(data, axis, 0), axis + 1, 1)
        starts = tensors.reshape(tensors.values(start, self.along(tensors)), (self.size, 1))
        offsets = tensors.times(tensors.iota((length,), 0), step)
        indices = tensors.add(starts, offsets)
        if is_lifted:
            return tensors.gather(data, indices, axis + 1, batch=1)
        return tensors.moved(tensors.gather(data, indices, axis), axis, 0)

    def layout(self, layout: Layout) -> Layout:
        return tuple(0 if axis == self.symbol else axis + 1 if isinstance(axis, int) else axis for axis in layout)

    def output(self, output: Output) -> Output:
        tensors = Tensors(self.new, output.location)
        edge, is_lifted = self.read(tensors, output.edge)
        if self.symbol not in output.domain:
            return replace(output, edge=edge)
        domain = tuple(symbol for symbol in output.domain if symbol != self.symbol)
        edge = edge if is_lifted else self.spread(tensors, edge)
        return replace(
            output, edge=edge, domain=domain, type=self.lifted_type(output.type), layout=self.layout(output.layout)
        )


def default_layout(domain: tuple[Symbol, ...], type: TensorType) -> Layout:
    return (*domain, *range(len(type.shape)))


def _with_attrs(node: Node, **attrs: object) -> Node:
    return replace(node, attrs=tuple(sorted({**node.attributes, **attrs}.items())))


_Rule = Callable[[_Lifting, Tensors, Node], Edge]
_RULES: dict[str, _Rule] = {
    "index_value": _Lifting.index_value,
    "condition_value": _Lifting.condition_value,
    "slice": _Lifting.slice,
}
