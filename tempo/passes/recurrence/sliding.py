"""Reductions over a slice that grows by one from point to point, and the element that each point adds.

    prefix   x[a:t + c]     grows with t;   the point t adds x[t + c - 1] to what t - 1 has
    suffix   x[t + c:b]     shrinks with t; the point t adds x[t + c] to what t + 1 has

where a, b, c do not vary along t. What is reduced may be the slice itself, an elementwise expression over slices with
the same bounds, or the product of two that a contraction sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.sdg.operators import OPERATORS, Role, factors_of
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import Expr, Symbol, const, var


@dataclass(frozen=True)
class Sliding:
    """`slice` is what slides along `symbol`; the new element lies at `index` of the dim that is sliced."""

    symbol: Symbol
    slice: Slice
    grows: bool

    @property
    def index(self) -> Expr:
        return self.slice.start + self.slice.length - 1 if self.grows else self.slice.start

    def length_at(self, point: Expr) -> Expr:
        return self.slice.length.substitute({self.symbol: point})


_DEPTH = 100  # of elementwise nodes above a slice


def sliding(graph: Graph, node: Node) -> Sliding | None:
    """How the slice that a node reduces slides; None where it reduces none that does."""
    for symbol in node.domain:
        edges = leaves(graph, node, symbol)
        slices = {index for edge in edges or () for index in edge.map if isinstance(index, Slice)}
        found = _slides(slices.pop(), symbol) if len(slices) == 1 else None
        if found is not None:
            return found
    return None


def _slides(index: Slice, symbol: Symbol) -> Sliding | None:
    start, stop = index.start, index.start + index.length
    if index.extent is not None:
        return None
    moves = [symbol not in (end - var(symbol)).dims() for end in (start, stop)]
    stays = [symbol not in end.dims() for end in (start, stop)]
    if stays[0] and moves[1]:
        return Sliding(symbol, index, grows=True)
    return Sliding(symbol, index, grows=False) if moves[0] and stays[1] else None


def leaves(graph: Graph, node: Node, symbol: Symbol) -> list[Edge] | None:
    """The reads of a slice whose axis the node reduces; None where something else varies along `symbol` in it."""
    if OPERATORS[node.op].combine is None:
        return None
    factors = factors_of(node, graph.seen_type)
    if not any(factor.role is Role.REDUCING and set(factor.operands) == {0} for factor in factors):
        return None
    if len(node.operands) > 1:
        return list(node.operands) if all(_is_leaf(graph, edge, symbol) for edge in node.operands) else None
    found: dict[Edge, bool] = {}
    return [edge for edge, leaf in found.items() if leaf] if _under(graph, node.operands[0], symbol, found) else None


def _under(graph: Graph, edge: Edge, symbol: Symbol, found: dict[Edge, bool], depth: int = 0) -> bool:
    """Whether an edge shows an elementwise expression over slices; `found` collects its edges, and which are slices."""
    if edge in found:
        return True
    found[edge] = _is_leaf(graph, edge, symbol)
    if found[edge]:
        return True
    inner = graph.nodes[edge.node]
    if OPERATORS[inner.op].kind != "elementwise" or not graph.is_identity(edge) or depth > _DEPTH:
        return False
    for operand in inner.operands:
        if _has_axis(graph, inner, operand):
            if not _under(graph, operand, symbol, found, depth + 1):
                return False
        elif symbol in operand.dims():
            return False
    return True


def _is_leaf(graph: Graph, edge: Edge, symbol: Symbol) -> bool:
    """Whether the edge shows one slice, and nothing else in it varies along `symbol`."""
    slices = [index for index in edge.map if isinstance(index, Slice)]
    points = [index.index for index in edge.map if isinstance(index, Point)]
    if len(slices) != 1 or any(symbol in point.dims() for point in points):
        return False
    return not any(symbol in size.dims() for size in graph.seen_type(edge).shape[1:])


def _has_axis(graph: Graph, node: Node, operand: Edge) -> bool:
    """Whether an operand of an elementwise node has its first axis, and does not repeat along it."""
    shape = graph.seen_type(operand).shape
    return len(shape) == len(node.shape) and shape[0] != const(1)


def element(graph: Graph, tensors: Tensors, node: Node, index: Expr) -> Edge:
    """The reduction of the one element at `index` of the dim that is sliced."""
    made: dict[Edge, Edge] = {}
    values = [_at(graph, tensors, edge, index, made) for edge in node.operands]
    attrs = {name: tuple(axis - 1 for axis in axes if axis) for name, axes in node.attrs if isinstance(axes, tuple)}
    return tensors.apply(node.op, *values, **attrs) if len(values) > 1 or any(attrs.values()) else values[0]


def _at(graph: Graph, tensors: Tensors, edge: Edge, index: Expr, made: dict[Edge, Edge]) -> Edge:
    """What an edge shows at one position of its first axis."""
    if edge in made:
        return made[edge]
    if any(isinstance(part, Slice) for part in edge.map):
        map = tuple(Point(index) if isinstance(part, Slice) else part for part in edge.map)
        return Edge(edge.node, map, edge.result)
    inner = graph.nodes[edge.node]
    operands = []
    for operand in inner.operands:
        if _has_axis(graph, inner, operand):
            operands.append(_at(graph, tensors, operand, index, made))
            continue
        shape = graph.seen_type(operand).shape
        operands.append(tensors.reshape(operand, shape[1:]) if len(shape) == len(inner.shape) else operand)
    made[edge] = tensors.apply(inner.op, *operands, **inner.attributes)
    return made[edge]
