"""Definitions by cases as selections: where every case can be computed at every point, a mask chooses.

    c[t, x] = a[x] where x < t, else b[t]     is     where(x < t, a[x], b[t])

Conditions that pieces cannot tell (`x < t`, `x % 2 == 0`) keep a definition from being lifted; masks are values like
any other. Both sides are computed then, so it is done only where that lets a dim be lifted, and only with what is
demanded at all these points anyway or is made of it without a call that could fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tempo.passes.splitting.stretches import Piece, pieces
from tempo.passes.vectorize.legality import OF_NOTHING, Candidates, guards, inside, is_free
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Condition, Context, Expr, Symbol, const, maximum, var

MOST_READS = 64
"""A case of more reads than this, those behind it included, is not looked through."""


@dataclass(frozen=True)
class Selects:
    """Which definitions can be selections along the dim that `candidates` are looked for along."""

    candidates: Candidates

    @property
    def graph(self) -> Graph:
        return self.candidates.graph

    @property
    def symbol(self) -> Symbol:
        return self.candidates.dim.symbol

    def apply(self) -> tuple[Graph, frozenset[int]]:
        """The graph with a selection in every piece that needs one, and the definitions that got one."""
        new = Rewriter(self.graph)
        component = {id: number for number, ids in enumerate(self.graph.components) for id in ids}
        changed = set()
        for node in self.graph.nodes.values():
            open_pieces = self._open_pieces(node)
            if open_pieces and all(self._is_total(node, piece, component) for piece in open_pieces):
                tensors = Tensors(new, node.location)
                cases = (case for piece in open_pieces for case in self._cases(tensors, node, piece))
                new.nodes[node.id] = replace(node, cases=(*cases, *node.cases))
                changed.add(node.id)
        return replace(self.graph, nodes=new.nodes), frozenset(changed)

    def _open_pieces(self, node: Node) -> list[Piece]:
        symbol = self.symbol
        if (
            node.id not in self.candidates.demands
            or not guards(node, symbol)
            or symbol in self.candidates.sequential.get(node.id, ())
        ):
            return []
        if node.attr("role") == "parameter" or any(size.dims() for size in node.shape):
            return []
        lo, hi = self.candidates.demands[node.id].box.interval(symbol)
        found = pieces(node.cases, symbol, lo, maximum(lo, hi), self.candidates.sizes)
        return [piece for piece in found if piece.cases and not is_free(piece, symbol)]

    def _cases(self, tensors: Tensors, node: Node, piece: Piece) -> Iterator[Case]:
        """Within the piece: the cases before the first that mentions the dim, and for all others one value."""
        first, others = self._parted(piece)
        within = self._within(piece)
        yield from (replace(case, condition=within & case.condition) for case in first)
        value = others[-1].edge  # where no other condition holds
        for case in reversed(others[:-1]):
            mask = tensors.apply("condition_value", condition=case.condition)
            value = tensors.apply("where", mask, case.edge, value)
        yield Case(within, value, node.location)

    def _parted(self, piece: Piece) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
        free = (self.symbol not in case.condition.symbols() for case in piece.cases)
        count = sum(1 for _ in itertools.takewhile(bool, free))
        return piece.cases[:count], piece.cases[count:]

    def _within(self, piece: Piece) -> Condition:
        here = var(self.symbol)
        return here.ge(piece.lo) & here.lt(piece.hi)

    def _is_total(self, node: Node, piece: Piece, component: Mapping[int, int]) -> bool:
        dims = self.graph.domain_dims(node)
        box = Context.of(dims, *self.candidates.sizes.facts, box=self.candidates.demands[node.id].box)
        first, others = self._parted(piece)
        here = box.assume(self._within(piece), *(~case.condition for case in first))
        cone = _Cone(self, node, here, component)
        return all(cone.is_there(case.edge) for case in others)


class _Cone:
    """What the cases of a definition need, in terms of its own dims: is all of it there, wherever `here` holds?"""

    def __init__(self, selects: Selects, reader: Node, here: Context, component: Mapping[int, int]) -> None:
        self.selects, self.reader, self.here, self.component = selects, reader, here, component
        self.graph = selects.graph
        self.seen: dict[Edge, bool] = {}

    def is_there(self, edge: Edge) -> bool:
        if edge not in self.seen:
            self.seen[edge] = len(self.seen) < MOST_READS and self._finds(edge)
        return self.seen[edge]

    def _finds(self, edge: Edge) -> bool:
        node = self.graph.nodes[edge.node]
        dims = self.graph.domain_dims(node)
        if not all(self.here.implies(inside(index, dim.size)) for index, dim in zip(edge.map, dims, strict=True)):
            return False
        if node.is_given or node.is_draw:
            return True
        return self._is_demanded(edge, node) or self._can_be_made(edge, node)

    def _is_demanded(self, edge: Edge, node: Node) -> bool:
        """Whether it is made at these points whatever the conditions say, and before they need it."""
        reached = self.selects.candidates.demands.get(node.id)
        if reached is None or not reached.exact or not self._comes_before(edge, node):
            return False
        bounds = zip(edge.map, reached.box.bounds, strict=True)
        return all(self.here.implies(_between(index, lo, hi)) for index, (_, lo, hi) in bounds)

    def _comes_before(self, edge: Edge, node: Node) -> bool:
        if self.component[node.id] != self.component[self.reader.id]:
            return True
        steps = self.selects.candidates.sequential.get(self.reader.id, frozenset())
        return any(_is_behind(index, symbol) for symbol, index in zip(node.domain, edge.map) if symbol in steps)

    def _can_be_made(self, edge: Edge, node: Node) -> bool:
        """Whether a pure operator applies to what is there at the point read."""
        points = {symbol: index.index for symbol, index in zip(node.domain, edge.map) if isinstance(index, Point)}
        pure = node.declaration is None and not node.attr("checked") and not any(s.dims() for s in node.shape)
        if not pure or len(points) < len(node.domain):
            return False
        least = 0 if OPERATORS[node.op].kind in OF_NOTHING else 1
        shapes = [node.shape, *(self.graph.seen_type(operand).shape for operand in node.operands)]
        sizes = (size.substitute(points) for shape in shapes for size in shape)
        if not all(self.here.implies(size.ge(least)) for size in sizes):
            return False
        return all(self.is_there(operand.substitute(points)) for operand in node.operands)


def _between(index: Point | Slice, lo: Expr, hi: Expr) -> Condition:
    if isinstance(index, Point):
        return index.index.ge(lo) & index.index.lt(hi)
    return index.length.le(0) | (index.start.ge(lo) & (index.start + index.length).le(hi))


def _is_behind(index: Point | Slice, symbol: Symbol) -> bool:
    """Whether it is read a known number of steps away along the dim, and not at the step itself."""
    offset = var(symbol) - index.index if isinstance(index, Point) else None
    return offset is not None and offset.is_const and offset != const(0)
