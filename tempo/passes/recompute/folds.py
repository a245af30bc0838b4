"""Reductions over a range of a dim, and the same of a part of the range.

The range is an axis of what a node sees, made by slices along the dim. It is followed by the axis rule, through what
keeps its positions apart, to the operator that folds it; all that lies between is made again of a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.operators.axes import Factor
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Expr, Symbol, const

_DEPTH = 100  # of nodes between a slice and the fold


class _Apart(Exception):
    """The range does not reach a fold as one axis."""


@dataclass
class Fold:
    """What `node` folds of a range of the dim: `ranges` by the edges that show it."""

    graph: Graph
    node: Node
    symbol: Symbol
    ranges: dict[Edge, Slice] = field(default_factory=dict)
    axes: dict[Edge, int | None] = field(default_factory=dict)

    def part(self, tensors: Tensors, shown: Callable[[Edge], Edge], start: Expr, length: Expr) -> Edge:
        """The fold of `length` positions of the range from `start` on; `shown` gives those of what shows the range."""
        return _Part(self, tensors, shown, start, length).folded()

    def factor(self, node: Node) -> Factor | None:
        """The index along which a node ranges over the range; None where it does not see it."""
        found = [self.axis(edge) for edge in node.operands]
        if all(axis is None for axis in found):
            return None
        shapes = [self.graph.seen_type(edge).shape for edge in node.operands]
        factors = OPERATORS[node.op].axes(node.attributes, shapes, node.shape)
        seen = {
            factor
            for number, axis in enumerate(found)
            if axis is not None
            for factor in factors
            if factor.operands[number] == axis
        }
        if len(seen) != 1:
            raise _Apart
        return seen.pop()

    def axis(self, edge: Edge, depth: int = 0) -> int | None:
        """Where the range lies in what an edge shows."""
        if edge not in self.axes:
            self.axes[edge] = self._axis(edge, depth)
        return self.axes[edge]

    def _axis(self, edge: Edge, depth: int) -> int | None:
        producer = self.graph.nodes[edge.node]
        if self.symbol in producer.domain:
            place = producer.domain.index(self.symbol)
            index = edge.map[place]
            if not isinstance(index, Slice):
                return None
            self.ranges[edge] = index
            return sum(isinstance(each, Slice) for each in edge.map[:place])
        if producer.is_nominal or not self.graph.is_identity(edge) or len(producer.results) > 1:
            return None
        if depth > _DEPTH:
            raise _Apart
        for operand in producer.operands:
            self.axis(operand, depth + 1)
        factor = self.factor(producer)
        if factor is None:
            return None
        if factor.role is not Role.PARALLEL or factor.ordered or factor.result is None:
            raise _Apart
        return factor.result


def fold_of(graph: Graph, node: Node, symbol: Symbol) -> Fold | None:
    """What the node folds of a range of the dim; None where it folds none, or something else comes of it."""
    fold = Fold(graph, node, symbol)
    if node.is_nominal or symbol in node.domain or OPERATORS[node.op].combine is None:
        return None
    try:
        factor = fold.factor(node)
    except _Apart:
        return None
    is_folded = factor is not None and factor.role is Role.REDUCING and factor.result is None and not factor.ordered
    return fold if is_folded else None


@dataclass
class _Part:
    fold: Fold
    tensors: Tensors
    shown: Callable[[Edge], Edge]
    start: Expr
    length: Expr
    made: dict[Edge, Edge] = field(default_factory=dict)

    def folded(self) -> Edge:
        node = self.fold.node
        return self.tensors.apply(node.op, *self.operands(node), **node.attributes)

    def operands(self, node: Node) -> list[Edge]:
        factor = self.fold.factor(node)
        assert factor is not None
        return [self.operand(edge, axis) for edge, axis in zip(node.operands, factor.operands)]

    def operand(self, edge: Edge, axis: int | None) -> Edge:
        """An operand with the part alone at its axis."""
        if axis is None:
            return edge
        if edge not in self.made:
            self.made[edge] = self._operand(edge, axis)
        return self.made[edge]

    def _operand(self, edge: Edge, axis: int) -> Edge:
        if edge in self.fold.ranges:
            return self.shown(edge)
        if self.fold.axis(edge) is None:
            return self.tensors.cut(edge, axis, self.start, self.length)
        node = self.fold.graph.nodes[edge.node]
        shape = (*node.shape[:axis], self.length, *node.shape[axis + 1 :])
        attrs = OPERATORS[node.op].resized(node.attributes, shape)
        return self.tensors.apply(node.op, *self.operands(node), **attrs)


def pointwise(graph: Graph, symbol: Symbol) -> Graph:
    """What reads one position of a range of the dim, after it was made of the whole range, made of that point alone.

        f(x[0:T]) at t    =    f(x[t])

    So is the gradient of a loss that is made of all points at once: else it would wait for all of them.
    """
    rewriter = Rewriter(graph)
    for node in graph.operands_first():
        found = _at_a_point(graph, rewriter, node, symbol)
        if found is not None:
            rewriter.put(node, found)
    return without_dead_nodes(replace(graph, nodes=rewriter.nodes))


def _at_a_point(graph: Graph, rewriter: Rewriter, node: Node, symbol: Symbol) -> Edge | None:
    if node.op != "slice" or symbol not in node.domain:
        return None
    fold, (operand,) = Fold(graph, node, symbol), node.operands
    try:
        axis = fold.axis(operand)
    except _Apart:
        return None
    if axis is None or not _is_one(node, axis, symbol) or any(index.start.dims() for index in fold.ranges.values()):
        return None
    tensors, start = Tensors(rewriter, node.location), node.attr("starts")[axis]

    def shown(edge: Edge) -> Edge:
        domain, index = graph.nodes[edge.node].domain, fold.ranges[edge]
        map = (Point(index.start + start) if at == symbol else each for at, each in zip(domain, edge.map))
        return tensors.with_ones(replace(edge, map=tuple(map)), fold.axes[edge] or 0, 1)

    point = _Part(fold, tensors, shown, start, const(1)).operand(operand, axis)
    starts = tuple(const(0) if at == axis else each for at, each in enumerate(node.attr("starts")))
    return tensors.apply("slice", point, **{**node.attributes, "starts": starts})


def _is_one(node: Node, axis: int, symbol: Symbol) -> bool:
    """Whether a slice takes one position of an axis, which moves with the dim."""
    moves = symbol in node.attr("starts")[axis].symbols()
    return moves and node.attr("lengths")[axis] == const(1)
