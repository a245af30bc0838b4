"""When a dim of a node may become a leading axis of it: all its points along the dim can be computed at once.

A node is a candidate when the order leaves its points along the dim independent of one another, its operator and its
reads can take all of them together, and no point is computed by it that means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tempo.analysis.demand.demand import Demand
from tempo.analysis.demand.speculation_safety import AllOrNone, harmless
from tempo.analysis.dependence.acyclic import Need, points_read
from tempo.analysis.dependence.levels import LoopBody
from tempo.costs import LikelySizes
from tempo.passes.ragged.alignment import Frames
from tempo.passes.ragged.values import Hulls
from tempo.passes.splitting.stretches import Piece, pieces
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.components import greatest_fixed_point
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, index_symbols
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.located import must_not_fail
from tempo.symbolic import TRUE, Box, Condition, Context, Dim, Expr, Symbol, const, maximum, var
from tempo.symbolic.widths import fits_in_64

OF_NOTHING = frozenset({"elementwise", "movement", "creation", "contraction", "scan", "nominal"})
"""Kinds of operators that can be applied to axes of no positions."""


@dataclass(frozen=True)
class Span:
    """The points `lo, ..., hi - 1` of a dim, in sizes, that a lifted node holds along its axis."""

    lo: Expr
    hi: Expr

    @property
    def size(self) -> Expr:
        return self.hi - self.lo


@dataclass(frozen=True)
class Candidates:
    """Which nodes of a graph could have `dim` as an axis, and over which span.

    `sequential` gives for each node the dims that the order of its points needs, of the `blocks` of the graph. What is
    there beside `dim` is the same for all dims.
    """

    graph: Graph
    dim: Dim
    demands: Mapping[int, Demand]
    sequential: Mapping[int, frozenset[Symbol]]
    as_one: AllOrNone
    facts: Condition = TRUE
    counts: LikelySizes = field(default_factory=lambda: LikelySizes({}))
    blocks: Sequence[LoopBody[int, Need]] = ()
    others: dict[Symbol, Candidates] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def sizes(self) -> Context:
        return Context.of((), self.facts)

    @cached_property
    def varying(self) -> list[Node]:
        symbol = self.dim.symbol
        return [node for node in self.graph.nodes.values() if symbol in node.domain and node.id in self.demands]

    @cached_property
    def places(self) -> Mapping[int, tuple[tuple[int, Symbol | None], ...]]:
        """Where a node stands: which component it is in, along which dim that is looped over, which component it is in
        within the loop, and so on."""
        found: dict[int, tuple[tuple[int, Symbol | None], ...]] = {}
        for body in reversed(self.blocks):  # those around come first
            for number, unit in enumerate(body.units):
                step = number, None if unit.loop is None else unit.loop.dim
                found |= {id: (*found.get(id, ()), step) for id in unit.names}
        return found

    @cached_property
    def kept(self) -> set[int]:
        return self.whole(self.varying) - self.widened()

    @cached_property
    def frames(self) -> Frames:
        """The frames of what has axes that move along the dim."""
        hulls = Hulls(self.graph, self.demands, self.facts)
        allowed = {node.id for node in self.varying if node.id in self.kept and self.is_free(node)}
        return Frames(self.graph, self.dim.symbol, self.demands, hulls, allowed, self.is_meaningful, self.counts)

    def is_meaningful(self, id: int, dim: Symbol) -> bool:
        """Whether every point along `dim` within the box of a node's demand may be read."""
        along = self if dim == self.dim.symbol else self.along(dim)
        return id in along.kept or self.demands[id].exact or self.graph.nodes[id].is_given

    def along(self, symbol: Symbol) -> Candidates:
        """The same for another dim."""
        if symbol not in self.others:
            self.others[symbol] = replace(self, dim=self.graph.dim(symbol), others={})
        return self.others[symbol]

    def is_free(self, node: Node) -> bool:
        return not (node.is_input or node.has_effect) and self.dim.symbol not in self.sequential.get(node.id, ())

    @cached_property
    def spans(self) -> Mapping[int, Span]:
        """The candidates, with the points that each would hold."""
        varying, kept = self.varying, self.kept
        found = {node.id: self.span(node) for node in varying if node.id in kept and self.fits(node)}
        for node in self.graph.nodes.values():
            for _, edge in node.reads():
                if edge.node in found and not self.within(found[edge.node], edge):
                    del found[edge.node]
        return {id: span for id, span in found.items() if self.holds_pieces(id, found)}

    def holds_pieces(self, id: int, found: Mapping[int, Span]) -> bool:
        """Whether what each piece of a definition reads along the dim is all in the spans of what it reads.

        One that is demanded nowhere has no piece: there is nothing to make in a row.
        """
        node = self.graph.nodes[id]
        parts = self.parts.get(id, ())
        if not parts and guards(node, self.dim.symbol):
            return False
        for piece in parts:
            here = self.sizes.assume(piece.hi.gt(piece.lo))
            for edge in (case.edge for case in piece.cases if case.edge.node in found):
                index = edge.map[self.graph.nodes[edge.node].domain.index(self.dim.symbol)]
                offset, span = shift(index, self.dim.symbol), found[edge.node]
                if offset is None or self.dim.symbol not in index_symbols(index):
                    continue  # a read at a fixed place, which is held to its span
                inside = (piece.lo + offset).ge(span.lo) & (piece.hi + offset).le(span.hi)
                if not here.implies(inside):
                    return False
        return True

    @cached_property
    def parts(self) -> Mapping[int, tuple[Piece, ...]]:
        """The pieces of the definitions with conditions on the dim."""
        symbol, found = self.dim.symbol, dict[int, tuple[Piece, ...]]()
        for node in self.varying:
            if guards(node, symbol) and self.is_free(node):
                span = self.span(node)
                found[node.id] = pieces(node.cases, symbol, span.lo, span.hi, self.sizes)
        return found

    def within(self, span: Span, edge: Edge) -> bool:
        """Whether a read at a fixed place lies in the span: one in a case that is never taken may not."""
        index = edge.map[self.graph.nodes[edge.node].domain.index(self.dim.symbol)]
        start, stop = points_read(index)
        if (stop - start).is_const and self.sizes.excludes((stop - start).le(span.size)):
            return False
        return bool(start.dims() or stop.dims()) or self.sizes.implies(start.ge(span.lo) & stop.le(span.hi))

    def span(self, node: Node) -> Span:
        """What is demanded along the dim; nothing where the bounds are out of order, as they may be at small sizes."""
        lo, hi = self.demands[node.id].box.interval(self.dim.symbol)
        lo = const(0) if node.is_draw else lo
        return Span(lo, hi if self.sizes.implies(hi.ge(lo)) else maximum(lo, hi))

    def fits(self, node: Node) -> bool:
        symbol = self.dim.symbol
        if not self.is_free(node):
            return False
        if node.id in self.frames.nodes:
            return self.may_be_made(node)
        if guards(node, symbol) and not all(is_free(piece, symbol) for piece in self.parts[node.id]):
            return False
        if not supported(node, symbol) or not self.may_be_made(node):
            return False
        return all(readable(self.graph, edge, symbol) for _, edge in node.reads())

    def may_be_made(self, node: Node) -> bool:
        """A node, or a piece of one, is made even where it is empty: then it may ask for nothing that is not there."""
        span = self.span(node)
        stretches = [
            (piece.lo, piece.hi, [(c.condition, c.edge) for c in piece.cases]) for piece in self.parts.get(node.id, ())
        ]
        stretches = stretches or [(span.lo, span.hi, [*node.guarded_reads()])]
        return all(self.sizes.implies(hi.gt(lo)) or self.asks_for_nothing(node, reads) for lo, hi, reads in stretches)

    def asks_for_nothing(self, node: Node, reads: Iterable[tuple[Condition, Edge]]) -> bool:
        """Whether it has its shapes, and all that it reads is there; what varies along the dim takes no point."""
        symbol = self.dim.symbol
        here = self.context(node, without=symbol)
        fixed = (read for read in reads if not any(symbol in index_symbols(index) for index in read[1].map))
        is_there = all(Cone(self, here.assume(condition)).is_there(edge) for condition, edge in fixed)
        return is_there and Cone(self, self.context(node)).has_shapes(node, {})

    def context(self, node: Node, without: Symbol | None = None) -> Context:
        """What holds at the points where a node is demanded, though there be none along the dim that it is without."""
        dims = [dim for dim in self.graph.domain_dims(node) if dim.symbol != without]
        box = Box(tuple(bounds for bounds in self.demands[node.id].box.bounds if bounds[0] != without))
        return Context.of(dims, *self.sizes.facts, box=box)

    def widened(self) -> set[int]:
        """What is read with a static extent already: such a read has no meaning but on what a loop keeps."""
        reads = (edge for node in self.graph.nodes.values() for _, edge in node.reads())
        return {edge.node for edge in reads if any(isinstance(i, Slice) and i.extent is not None for i in edge.map)}

    def whole(self, varying: list[Node]) -> set[int]:
        """The nodes of which all points of the span mean something wherever one does.

        Every point of the box is demanded, or none, as sizes have it; or they all do the same, on producers of which
        this is true; or every point of the box can be made all the same.
        """
        every = {node.id for node in varying}
        pending = [node for node in varying if not self.demands[node.id].exact and not self.as_one.holds(node.id)]
        found = self.doing_the_same(every, pending)
        if found == every:
            return found
        made = harmless(self.graph, self.demands, every - found, self.facts, self.as_one.holds_for_some_condition)
        return self.doing_the_same(every, [node for node in pending if node.id not in made]) if made else found

    def doing_the_same(self, found: set[int], pending: list[Node]) -> set[int]:
        """Without those pending that do not do the same."""
        open_, consumers = {node.id: node for node in pending}, self.graph.consumers
        return greatest_fixed_point(
            found,
            lambda id, left: id not in open_ or self.does_the_same(open_[id], left),
            lambda id: (reader for reader, _ in consumers[id]),
        )

    def does_the_same(self, node: Node, whole: set[int]) -> bool:
        symbol = self.dim.symbol
        if node.has_effect or must_not_fail(node) or guards(node, symbol):
            return False
        for _, edge in node.reads():
            producer = self.graph.nodes[edge.node]
            here = (symbol, Point(var(symbol)))
            if any(symbol in index_symbols(at[1]) for at in zip(producer.domain, edge.map) if at != here):
                return False
            if symbol in producer.domain and edge.node not in whole:
                return False
        return True


MOST_READS = 64
"""What more reads than this are made of is not looked through."""


class Cone:
    """What a node reads, in terms of its own dims: is it there, or can it be made, wherever `here` holds?

    `new` is who has not read it at all these points so far: then it must be there before, whatever else is.
    """

    def __init__(
        self, candidates: Candidates, here: Context, new: Node | None = None, bound: frozenset[Symbol] = frozenset()
    ) -> None:
        """`bound`: dims that stand for any point of a slice."""
        self.candidates, self.here, self.new, self.bound = candidates, here, new, bound
        self.graph = candidates.graph
        self.seen: dict[Edge, bool] = {}
        self.reads = [0]  # with those of cones within it

    def is_there(self, edge: Edge) -> bool:
        if edge not in self.seen:
            self.reads[0] += 1
            self.seen[edge] = self.reads[0] <= MOST_READS and self._finds(edge)
        return self.seen[edge]

    def _finds(self, edge: Edge) -> bool:
        node = self.graph.nodes[edge.node]
        dims = self.graph.domain_dims(node)
        if not all(self.here.implies(_between(index, const(0), dim.size)) for index, dim in zip(edge.map, dims)):
            return False
        return node.is_given or node.is_draw or self._is_demanded(edge, node) or self._can_be_made(edge, node)

    def _is_demanded(self, edge: Edge, node: Node) -> bool:
        """Whether it is made at these points whatever the conditions say, and before they need it."""
        reached = self.candidates.demands.get(node.id)
        if reached is None or not self._comes_before(edge, node):
            return False
        if not reached.exact and (self.new is not None or node.id not in self.candidates.kept):
            return False
        bounds = zip(edge.map, reached.box.bounds, strict=True)
        return all(self.here.implies(_between(index, lo, hi)) for index, (_, lo, hi) in bounds)

    def _comes_before(self, edge: Edge, node: Node) -> bool:
        """Whether it stands before the new reader: in another component, since sources are first, or at another
        iteration of a loop that both are in."""
        if self.new is None:
            return True
        shown = dict(zip(node.domain, edge.map))
        for (mine, dim), (other, _) in zip(self.candidates.places[self.new.id], self.candidates.places[node.id]):
            if mine != other:
                return other < mine
            if dim is None or dim not in shown:
                return False
            if _is_behind(shown[dim], dim):
                return True
            if shown[dim] != Point(var(dim)):
                return False
        return False

    def _can_be_made(self, edge: Edge, node: Node) -> bool:
        """Whether a pure operator applies to what is there at the point read, or at any point of what is sliced."""
        pure = node.declaration is None and not node.attr("checked") and not any(s.dims() for s in node.shape)
        sliced = {symbol: index for symbol, index in zip(node.domain, edge.map) if isinstance(index, Slice)}
        if not pure or (sliced and (self.new is None or {*self.new.domain, *self.bound} & sliced.keys())):
            return False
        points = {
            symbol: index.index if isinstance(index, Point) else var(symbol)
            for symbol, index in zip(node.domain, edge.map)
        }
        cone = self._anywhere_in(sliced) if sliced else self
        return cone.has_shapes(node, points) and all(
            cone.is_there(operand.substitute(points)) for operand in node.operands
        )

    def _anywhere_in(self, sliced: Mapping[Symbol, Slice]) -> Cone:
        inside = (
            fact
            for symbol, index in sliced.items()
            for fact in (var(symbol).ge(index.start), var(symbol).lt(index.start + index.length))
        )
        cone = Cone(self.candidates, self.here.assume(*inside), self.new, self.bound | sliced.keys())
        cone.reads = self.reads
        return cone

    def has_shapes(self, node: Node, points: Mapping[Symbol, Expr]) -> bool:
        """Whether the operator makes sense there: where it is not demanded it need not have its shapes."""
        least = 0 if OPERATORS[node.op].kind in OF_NOTHING else 1
        shapes = [*node.results, *(self.graph.seen_type(edge) for _, edge in node.reads())]
        sizes = (size.substitute(points) for type in shapes for size in type.shape)
        return all(self.here.implies(size.ge(least)) for size in sizes)


def _between(index: Point | Slice, lo: Expr, hi: Expr) -> Condition:
    if isinstance(index, Point):
        return index.index.ge(lo) & index.index.lt(hi)
    return index.length.le(0) | (index.start.ge(lo) & (index.start + index.length).le(hi))


def _is_behind(index: Point | Slice, symbol: Symbol) -> bool:
    """Whether it is read a known number of steps away along the dim, and not at the step itself."""
    offset = var(symbol) - index.index if isinstance(index, Point) else None
    return offset is not None and offset.is_const and offset != const(0)


_WITH_RULES = frozenset({"index_value", "condition_value", "random_bits", "slice"})
"""Operators whose attributes may vary along a lifted dim; `rewrite` has the rule of each."""


def supported(node: Node, symbol: Symbol) -> bool:
    """Whether the operator can do all points at once, and what it does varies along the dim only where a rule says."""
    if any(symbol in size.symbols() for type in node.results for size in type.shape):
        return False
    if node.is_merge:
        return True
    operator, attrs = OPERATORS[node.op], node.attributes
    varying = [expr for expr in attribute_exprs(node) if symbol in expr.symbols()]
    if not varying:
        return not operator.lift_note
    if node.op not in _WITH_RULES or any(symbol in expr.symbols() for expr in operator.static(attrs)):
        return False
    # A loop has Python's integers, or its backend says so.
    return all(map(fits_in_64, operator.scalars(attrs))) and (not node.is_draw or varying == [var(symbol)])


def guards(node: Node, symbol: Symbol) -> bool:
    """Whether the node is a definition whose conditions vary along the dim."""
    return any(symbol in case.condition.symbols() for case in node.cases)


def is_free(piece: Piece, symbol: Symbol) -> bool:
    return bool(piece.cases) and not any(symbol in case.condition.symbols() for case in piece.cases)


def readable(graph: Graph, edge: Edge, symbol: Symbol) -> bool:
    """Whether what all points along the dim read is one read: of the same, or of points one after the other."""
    if any(symbol in size.symbols() for size in graph.seen_type(edge).shape):
        return False
    varying = [index for index in edge.map if symbol in index_symbols(index)]
    return not varying or (len(varying) == 1 and shift(varying[0], symbol) is not None)


def shift(index: Point | Slice, symbol: Symbol) -> Expr | None:
    """c where the index is the dim plus c, and c does not mention it."""
    if not isinstance(index, Point):
        return None
    offset = index.index - var(symbol)
    return None if symbol in offset.symbols() else offset
