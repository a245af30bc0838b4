"""Strip-mining: a dim of some nodes becomes blocks of Z points and the points within a block.

    y[t] = f(x[t])     is     y'[o, i] = f(x[first(o) + i])  for blocks o and 0 <= i < Z,    y[t] = y'[t // Z, ...]

The points within a block are then lifted like any dim, and the blocks stay a loop: Z points at once hold a part of what
all of them would. No block is partial: the last begins where its end is that of the dim, `first(o) = min(Z o, T - Z)`,
so a few points of it are computed twice, and none of it has to be masked. Where T is less than Z, the one block has T.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tempo.passes.vectorize.legality import Candidates, Span, guards
from tempo.sdg.builder import fresh_dim
from tempo.sdg.components import reached
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, identity_map
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Dim, Expr, Symbol, const, maximum, minimum, var


@dataclass(frozen=True)
class Strip:
    """The points of `span` along `dim` in blocks of `size`: point p is point p - first(o) of block o = p // size."""

    dim: Symbol
    span: Span
    size: int
    parts: tuple[Symbol, Symbol]

    @property
    def dims(self) -> tuple[Dim, Dim]:
        """That of the blocks, and that of the points within one."""
        outer, inner = self.parts
        return Dim(outer, (self.span.size + self.size - 1) // self.size), Dim(inner, self.length)

    @property
    def length(self) -> Expr:
        """How many points a block has."""
        return minimum(self.size, self.span.size)

    def first(self, block: Expr) -> Expr:
        """Where a block begins, counted from the start of the span."""
        return minimum(self.size * block, self.span.size - self.length)

    @property
    def point(self) -> Expr:
        """The point of the dim, by block and place."""
        outer, inner = map(var, self.parts)
        return self.span.lo + self.first(outer) + inner


def strippable(candidates: Candidates, chosen: Collection[int]) -> set[int]:
    """Those of `chosen` that can be computed in blocks: not those whose shapes vary and are seen outside of blocks."""
    graph, symbol = candidates.graph, candidates.dim.symbol
    found = {id for id in chosen if _can_be_stripped(candidates, graph.nodes[id])}
    while True:
        lost = {
            id for id in shown(candidates, found) if any(symbol in size.symbols() for size in graph.nodes[id].shape)
        }
        if not lost:
            return found
        found -= lost


def _can_be_stripped(candidates: Candidates, node: Node) -> bool:
    """Whether the points of a block of the node can be lifted where all points can.

    Draws are numbered by points from 0 on, and a definition with conditions on the dim has a piece for each.
    """
    if node.is_draw or len(node.results) != 1 or guards(node, candidates.dim.symbol):
        return False
    there_are_points = candidates.sizes.implies(candidates.spans[node.id].size.ge(1))
    return there_are_points and node.attr("role") != "parameter"


def shown(candidates: Candidates, members: Collection[int]) -> set[int]:
    """The members that are read by others, or at another point than the reader's own."""
    graph, spans = candidates.graph, candidates.spans
    found = {output.edge.node for output in graph.outputs if output.edge.node in members}
    for node in graph.nodes.values():
        for _, edge in node.reads():
            if edge.node not in members:
                continue
            together = node.id in members and spans[node.id] == spans[edge.node]
            if not (together and _is_here(graph, edge, candidates.dim.symbol)):
                found.add(edge.node)
    return found


def between(candidates: Candidates, members: Collection[int], allowed: Collection[int]) -> set[int]:
    """The members, and what of `allowed` is made of members and read by members: out of blocks it would part them."""
    graph, symbol = candidates.graph, candidates.dim.symbol
    operands: dict[int, set[int]] = {id: set() for id in allowed}
    readers: dict[int, set[int]] = {id: set() for id in allowed}
    for id in allowed:
        for _, edge in graph.nodes[id].reads():
            if edge.node in operands and _is_here(graph, edge, symbol):
                operands[id].add(edge.node)
                readers[edge.node].add(id)
    read_of, made_of = (reached(members, following.__getitem__) for following in (readers, operands))
    return read_of & made_of


def _is_here(graph: Graph, edge: Edge, symbol: Symbol) -> bool:
    return edge.map[graph.nodes[edge.node].domain.index(symbol)] == Point(var(symbol))


def stripped(candidates: Candidates, sizes: Mapping[int, int]) -> tuple[Graph, tuple[Strip, ...]]:
    """The graph with blocks of `sizes[id]` points for the nodes in `sizes`, which must be `strippable`.

    Under the number of a node that others read stands what all its blocks make, put in a row and read at the dim.
    """
    strips = _strips(candidates.graph, candidates.dim.symbol, candidates.spans, sizes)
    joined = shown(candidates, strips.keys())
    return _Stripping(candidates.graph, strips).graph(joined), tuple(dict.fromkeys(strips.values()))


def _strips(graph: Graph, symbol: Symbol, spans: Mapping[int, Span], sizes: Mapping[int, int]) -> dict[int, Strip]:
    """Nodes of one span and one size are in the same blocks."""
    made: dict[tuple[Span, int], Strip] = {}
    taken = {dim.symbol.name for dim in graph.dims}
    for id in sorted(sizes):
        key = spans[id], sizes[id]
        if key not in made:
            outer, inner = (fresh_dim(f"{symbol.name}_{part}", taken) for part in ("block", "in"))
            taken |= {outer.name, inner.name}
            made[key] = Strip(symbol, *key, (outer, inner))
    return {id: made[spans[id], sizes[id]] for id in sizes}


class _Stripping:
    def __init__(self, graph: Graph, strips: Mapping[int, Strip]) -> None:
        self.old, self.strips = graph, strips
        self.symbol = next(iter(strips.values())).dim
        place = [dim.symbol for dim in graph.dims].index(self.symbol) + 1
        fresh = [dim for strip in dict.fromkeys(strips.values()) for dim in strip.dims]
        self.dims = (*graph.dims[:place], *fresh, *graph.dims[place:])
        self.new = Rewriter(replace(graph, dims=self.dims))
        self.copies = {id: self.new.new_number() for id in strips}

    def graph(self, joined: Collection[int]) -> Graph:
        for id, strip in self.strips.items():
            copy = self.new.copied(self.old.nodes[id], self.copies[id], self.symbol, strip.parts, strip.point)
            self.new.nodes[copy.id] = copy.reading(functools.partial(self._read, strip=strip))
        for id in joined:
            node = self.old.nodes[id]
            self.new.put(node, self._joined(Tensors(self.new, node.location), node))
        nodes = {id: node for id, node in self.new.nodes.items() if id not in self.strips or id in joined}
        return replace(self.old, dims=self.dims, nodes=nodes)

    def _read(self, edge: Edge, strip: Strip) -> Edge:
        """The read from a block: of the same block where it is at the reader's own point."""
        within = edge.substitute({self.symbol: strip.point})
        if self.strips.get(edge.node) != strip or not _is_here(self.old, edge, self.symbol):
            return within
        place = self.old.nodes[edge.node].domain.index(self.symbol)
        return Edge(self.copies[edge.node], (*within.map[:place], *identity_map(strip.parts), *within.map[place + 1 :]))

    def _joined(self, tensors: Tensors, node: Node) -> Edge:
        """What the node was: of the blocks in a row, the point of the dim."""
        strip, copy = self.strips[node.id], self.new.nodes[self.copies[node.id]]
        extents = {dim.symbol: dim.size for dim in strip.dims}
        map = tuple(Slice(const(0), extents[s]) if s in extents else Point(var(s)) for s in copy.domain)
        indices = self._indices(tensors, strip)
        row = tensors.apply("gather_pairs", Edge(copy.id, map), *indices, count=2, axis=0, batch=0, checked=False)
        return tensors.at(row, 0, var(self.symbol) - strip.span.lo)

    def _indices(self, tensors: Tensors, strip: Strip) -> tuple[Edge, ...]:
        """For the points of the span: the block, and p - min(Z (p // Z), T - Z) = max(p % Z, p - (T - Z)) within it."""
        here, size = var(self.symbol), strip.span.size
        points = {self.symbol: tensors.iota((size,), 0)}
        within = maximum(here % strip.size, here + strip.length - size)
        return tensors.values(here // strip.size, points), tensors.values(within, points)
