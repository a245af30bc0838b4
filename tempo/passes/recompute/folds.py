"""Reductions over a range of a dim, and the same of a part of the range.

The range is an axis of what a node sees, made by slices along the dim. It is followed by the axis rule, through what
keeps its positions apart, to the operator that folds it; all that lies between is made again of a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.sdg.operators import OPERATORS, factors_of
from tempo.sdg.operators.axes import Factor
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Expr, Symbol, const

_DEPTH = 100  # of nodes between a slice and the fold

Shown = Callable[[Edge], Edge]


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

    def part(self, tensors: Tensors, shown: Shown, start: Expr, length: Expr) -> Edge:
        """The fold of `length` positions of the range from `start` on; `shown` gives those of what shows the range."""
        factor = self.factor(self.node)
        assert factor is not None, "it folds the range"
        return self.parts(tensors, shown, start, length).folded(self.node, factor)

    def parts(self, tensors: Tensors, shown: Shown, start: Expr, length: Expr) -> Part:
        def part_of(edge: Edge, axis: int) -> Edge:
            return shown(edge) if edge in self.ranges else tensors.cut(edge, axis, start, length)

        def is_inside(edge: Edge, axis: int) -> bool:
            return edge not in self.ranges and self.axis(edge) == axis

        return Part(self.graph, tensors, length, is_inside, part_of)

    def factor(self, node: Node) -> Factor | None:
        """The index along which a node ranges over the range; None where it does not see it."""
        found = [self.axis(edge) for edge in node.operands]
        if all(axis is None for axis in found):
            return None
        factors = factors_of(node, self.graph.seen_type)
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
        if not factor.keeps:
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
    return fold if factor is not None and factor.folds else None


@dataclass
class Part:
    """What lies between reads of an axis and a fold of it, made again of `length` positions.

    `is_inside`: whether what an edge shows, with its axis, is made again; of all else `part_of` gives the positions.
    """

    graph: Graph
    tensors: Tensors
    length: Expr
    is_inside: Callable[[Edge, int], bool]
    part_of: Callable[[Edge, int], Edge]
    made: dict[tuple[Edge, int], Edge] = field(default_factory=dict)

    def folded(self, node: Node, factor: Factor) -> Edge:
        """The node, of the positions alone."""
        return self.tensors.apply(node.op, *self.operands(node, factor), **node.attributes)

    def operands(self, node: Node, factor: Factor) -> list[Edge]:
        pairs = zip(node.operands, factor.operands, strict=True)
        return [edge if axis is None else self.operand(edge, axis) for edge, axis in pairs]

    def operand(self, edge: Edge, axis: int) -> Edge:
        """An operand with the positions alone at its axis."""
        key = edge, axis
        if key not in self.made:
            self.made[key] = self.again(edge, axis) if self.is_inside(edge, axis) else self.part_of(edge, axis)
        return self.made[key]

    def again(self, edge: Edge, axis: int) -> Edge:
        node = self.graph.nodes[edge.node]
        factor = next(each for each in factors_of(node, self.graph.seen_type) if each.result == axis)
        shape = (*node.shape[:axis], self.length, *node.shape[axis + 1 :])
        attrs = OPERATORS[node.op].resized(node.attributes, shape)
        return self.tensors.apply(node.op, *self.operands(node, factor), **attrs)


def pointwise(graph: Graph, symbol: Symbol) -> Graph:
    """What reads one position of a range of the dim, after it was made of the whole range, made of that point alone.

        f(x[0:T]) at t    =    f(x[t])

    So is the gradient of a loss that is made of all points at once: else it would wait for all of them.
    """
    rewriter = Rewriter(graph)
    nodes = graph.operands_first()
    points = [(node, found) for node in nodes if (found := _at_a_point(graph, rewriter, node, symbol)) is not None]
    for node, found in points:
        rewriter.put(node, found)
    return without_dead_nodes(replace(graph, nodes=rewriter.nodes)) if points else graph


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

    point = fold.parts(tensors, shown, start, const(1)).operand(operand, axis)
    starts = tuple(const(0) if at == axis else each for at, each in enumerate(node.attr("starts")))
    return tensors.apply("slice", point, **{**node.attributes, "starts": starts})


def _is_one(node: Node, axis: int, symbol: Symbol) -> bool:
    """Whether a slice takes one position of an axis, which moves with the dim."""
    moves = symbol in node.attr("starts")[axis].symbols()
    return moves and node.attr("lengths")[axis] == const(1)
