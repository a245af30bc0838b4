"""Reductions over a whole range of a dim that is run step by step: each step adds its element to what came before.

    sum(x[0:T])  =  s[T - 1]    with s[0] = x[0], s[t] = s[t - 1] + x[t]
                 =  s[0]        with s[T - 1] = x[T - 1], s[t] = s[t + 1] + x[t]

The second where the loop that x waits for runs backward, so that sum and loop are one. Read as a slice, x is kept for
all points until the last is there. This is for dims that the user has run sequentially, to have the memory of a few
points (`Options(mapping={"t": "sequential"})`): contracting all of them at once is faster where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo import dtypes
from tempo.analysis.dependence.acyclic import Need, needs_of
from tempo.analysis.dependence.blocks import LoopBody, blocks
from tempo.analysis.dependence.levels import Direction
from tempo.passes.manager import Forced, PassContext, forced
from tempo.passes.recurrence.sliding import COMBINE, element, leaves
from tempo.passes.rewrite.dce import without_dead_nodes
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, TensorType
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.sdg.stops import stops_of
from tempo.symbolic import Symbol, const, var


@dataclass(frozen=True)
class Accumulate:
    """Changes nothing along a dim that is not forced to be sequential."""

    mapping: Forced = None
    name: ClassVar[str] = "accumulate"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        stopped = stops_of(graph)  # how far these go is known when they have ended
        for dim in graph.dims:
            if forced(self.mapping, dim.symbol.name) == "sequential" and dim.symbol not in stopped:
                graph = _accumulated(graph, dim.symbol, context)
        return graph


def _accumulated(graph: Graph, symbol: Symbol, context: PassContext) -> Graph:
    sizes = context.over(graph, ())
    graph = without_dead_nodes(graph)
    new, order = Rewriter(graph), _KnownAlong.of(graph, symbol, context)
    for node in tuple(graph.nodes.values()):
        edges = [] if symbol in node.domain else leaves(graph, node, symbol) or []
        index = _range(graph, edges, symbol)
        if index is not None and sizes.implies(index.length.ge(1)):
            _put(graph, new, node, symbol, index, order.of_all(edge.node for edge in edges))
    return without_dead_nodes(replace(graph, nodes=new.nodes))


@dataclass(frozen=True)
class _KnownAlong:
    """In which direction nodes become known along a dim."""

    symbol: Symbol
    found: Sequence[LoopBody[int, Need]]

    @staticmethod
    def of(graph: Graph, symbol: Symbol, context: PassContext) -> _KnownAlong:
        demands = context.demand(graph)
        links = list(needs_of(graph, demands, context.facts))
        return _KnownAlong(symbol, blocks({id: graph.nodes[id].domain for id in demands}, links))

    def of_all(self, ids: Iterable[int]) -> Direction:
        """That of the last loop over the dim, in the block that they are in, which any of them waits for."""
        wanted = {id for id in ids if any(self.symbol in block.dims.get(id, ()) for block in self.found)}
        for block in self.found:
            within = {id for id in wanted if self.symbol in block.dims.get(id, ())}
            if within:
                return self._last(block, within)
        return "forward"

    def _last(self, block: LoopBody[int, Need], wanted: set[int]) -> Direction:
        for unit in reversed(block.units):
            if wanted.isdisjoint(unit.names):
                continue
            if unit.loop is not None and unit.loop.dim == self.symbol:
                return unit.loop.direction
            wanted = wanted | {link.source for link in block.links if link.target in unit.names}
        return "forward"


def _range(graph: Graph, edges: Sequence[Edge], symbol: Symbol) -> Slice | None:
    """The range of the dim that is reduced, where it is computed step by step and does not move with any dim."""
    slices = {
        (at, index)
        for edge in edges
        for at, index in zip(graph.nodes[edge.node].domain, edge.map, strict=True)
        if isinstance(index, Slice)
    }
    if len(slices) != 1 or all(graph.nodes[edge.node].is_given for edge in edges):
        return None
    ((sliced, index),) = slices
    fixed = not index.start.dims() and not index.length.dims() and index.extent is None
    return index if sliced == symbol and fixed else None


def _put(graph: Graph, new: Rewriter, node: Node, symbol: Symbol, index: Slice, way: Direction) -> None:
    """The sum up to every point in place of the node, which reads the last. Halves are accumulated in float32."""
    tensors, here = Tensors(new, node.location), var(symbol)
    is_half = dtypes.is_float(node.dtype) and dtypes.itemsize(node.dtype) == 2
    wide = "float32" if is_half else node.dtype
    attrs = (("name", node.name or node.op), ("role", "recurrent"))
    domain = graph.canonical({*node.domain, symbol})
    merge = Node(node.id, "merge", domain, (TensorType(node.shape, wide),), (), attrs)
    total = new.declare(replace(merge, name=node.name, location=node.location))
    added = tensors.apply("cast", element(graph, tensors, node, here), dtype=wide)
    ends = index.start, index.start + index.length - const(1)
    first, last = ends if way == "forward" else reversed(ends)
    before = total.substitute({symbol: here - 1 if way == "forward" else here + 1})
    both = tensors.apply(COMBINE[node.op], before, added)
    later = here.gt(first) if way == "forward" else here.lt(first)
    cases = (Case(here.eq(first), added), Case(later, both))
    new.define(total, cases)
    map = tuple(Point(last) if part == Point(here) else part for part in total.map)
    new.put(node, tensors.apply("cast", Edge(total.node, map), dtype=node.dtype))
