"""Images of boxes under guarded reads: which points of a producer the points of a consumer's box read.

Everything is symbolic: an image bounds the points that are read for every size, and can say whether it is proven to be
exactly them. So do hulls and unions of boxes, as far as a context of sizes decides. An interval `[lo, hi)` with
`hi <= lo` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tempo.sdg.graph import Edge, Graph, IndexMap, Node, Point, Slice, index_exprs
from tempo.symbolic import (
    FALSE,
    TRUE,
    And,
    Atom,
    Box,
    Condition,
    Context,
    Dim,
    Eq,
    Expr,
    Ge,
    Or,
    Symbol,
    const,
    disjunction,
    maximum,
    minimum,
    var,
)
from tempo.symbolic.structural import memoised

_MOST_DISJUNCTS = 16

Interval = tuple[Expr, Expr]
Conjuncts = tuple[Condition, ...]


@dataclass(frozen=True)
class Image:
    """The points of `producer` that a consumer reads through `map` from where `reader` says, clipped to the domain."""

    producer: int
    box: Box
    map: IndexMap
    reader: Reader

    @property
    def exact(self) -> bool:
        """Whether all points of the box are proven to be read."""
        return self.reader.is_exact(self.map)


class Readers:
    """The readers of one domain and box, and the conditions of one domain, where the facts hold: of any graph."""

    def __init__(self, facts: Condition) -> None:
        self.facts = facts
        self.sizes = Context.of((), facts)

    @memoised
    def of(self, dims: tuple[Dim, ...], box: Box, conjuncts: Conjuncts) -> Reader:
        return Reader(dims, box, conjuncts, self.facts, self.sizes)

    @memoised
    def disjuncts(self, dims: tuple[Dim, ...], condition: Condition) -> tuple[Conjuncts, ...]:
        return disjuncts(condition, Context.of(dims, self.facts))


class Images:
    """Images under the reads of one graph."""

    def __init__(self, graph: Graph, readers: Readers) -> None:
        self.graph, self.readers, self.sizes = graph, readers, readers.sizes

    def of(self, node: Node, box: Box) -> Iterator[Image]:
        """The images of `box` under every read of `node`, but for those that are empty at all sizes."""
        dims = self.graph.domain_dims(node)
        for condition, edge in node.guarded_reads():
            for conjuncts in self.readers.disjuncts(dims, condition):
                reader = self.readers.of(dims, box, conjuncts)
                image = None if reader.unreachable else self._image(reader, edge)
                if image is not None and not self._is_empty(image.box):
                    yield image

    def _is_empty(self, box: Box) -> bool:
        return any(self.sizes.implies(hi.le(lo)) for _, lo, hi in box.bounds)

    def _image(self, reader: Reader, edge: Edge) -> Image:
        dims = self.graph.domain_dims(self.graph.nodes[edge.node])
        places = zip(dims, edge.map, strict=True)
        box = Box(tuple((dim.symbol, *reader.interval(index, dim)) for dim, index in places))
        return Image(edge.node, box, edge.map, reader)


class Reader:
    """The points of a box where some conditions hold, and what they read. Remembers its answers."""

    def __init__(
        self, dims: tuple[Dim, ...], given: Box, conjuncts: Conjuncts, facts: Condition, sizes: Context
    ) -> None:
        self.sizes = sizes
        self._dims = dims
        self._facts = (facts, *conjuncts)
        self.unreachable = bool(conjuncts) and Context.of(dims, *self._facts, box=given).infeasible()
        self.box, self._decided = given, True
        for conjunct in conjuncts:
            self.box, decided = tightened(self.box, conjunct, sizes)
            self._decided = self._decided and decided

    @cached_property
    def context(self) -> Context:
        return Context.of(self._dims, *self._facts, box=self.box)

    @memoised
    def interval(self, index: Point | Slice, dim: Dim) -> Interval:
        """Bounds of the positions along `dim` that are read."""
        if index == Point(var(dim.symbol)):
            return self.box.interval(dim.symbol)
        start, stop = self._ends(index)
        lo, _, _ = extremes(start, self.box, self.context, self.sizes)
        _, last, _ = extremes(stop - 1, self.box, self.context, self.sizes)
        lo = const(0) if lo is None else self.sizes.simplify(maximum(const(0), lo))
        hi = dim.size if last is None else self.sizes.simplify(minimum(dim.size, last + 1))
        return lo, hi

    @memoised
    def is_exact(self, map: IndexMap) -> bool:
        """Whether all of the product of the intervals that `map` reads is proven to be read."""
        return self._decided and self._is_product(map) and all(self._is_whole(index) for index in map)

    def _ends(self, index: Point | Slice) -> Interval:
        if isinstance(index, Point):
            return index.index, index.index + 1
        return index.start, self.context.simplify(index.start + index.length)

    def _is_product(self, map: IndexMap) -> bool:
        """No dim is used twice, and none is empty but those that empty their interval with them."""
        used = [symbol for index in map for symbol in _index_dims(index)]
        if len(used) != len(set(used)):
            return False
        carried = {symbol for index in map for symbol in _index_dims(index) if _is_shift(index)}
        return all(symbol in carried or self.sizes.implies(hi.gt(lo)) for symbol, lo, hi in self.box.bounds)

    def _is_whole(self, index: Point | Slice) -> bool:
        """Whether the bounds are attained, with no hole between them."""
        if _is_shift(index):
            return True
        start, stop = self._ends(index)
        attained = (extremes(end, self.box, self.context, self.sizes)[2] for end in (start, stop))
        return all(attained) and self._is_contiguous(start, stop)

    def _is_contiguous(self, start: Expr, stop: Expr) -> bool:
        """Whether the intervals `[start, stop)` at neighbouring points of the box touch."""
        if not start.dims() or not stop.dims():
            return self.context.implies(stop.ge(start))
        if len(start.dims() | stop.dims()) != 1 or not self.context.implies(stop.gt(start)):
            return False
        symbol = next(iter(start.dims()))
        step = {symbol: var(symbol) + 1}
        inner = self.context.assume(var(symbol).le(self.box.hi(symbol) - 2))
        return inner.implies(start.substitute(step).le(stop)) and inner.implies(start.le(stop.substitute(step)))


def disjuncts(condition: Condition, context: Context) -> tuple[Conjuncts, ...]:
    """Disjunctive normal form; where it would be of very many disjuncts, some conjuncts are left that are none.

    What the context excludes is left out: `t != 0` is `t >= 1`.
    """
    if condition == TRUE:
        return ((),)
    if condition == FALSE:
        return ()
    if isinstance(condition, Or):
        possible = (arg for arg in condition.args if not context.excludes(arg))
        found = tuple(conjuncts for arg in possible for conjuncts in disjuncts(arg, context))
        return found if len(found) <= _MOST_DISJUNCTS else ((condition,),)
    if not isinstance(condition, And):
        return ((condition,),)
    product: tuple[Conjuncts, ...] = ((),)
    for arg in condition.args:
        choices = disjuncts(arg, context)
        wider = tuple(_joined(chosen, more) for chosen in product for more in choices)
        if len(wider) > _MOST_DISJUNCTS:
            wider = tuple(chosen for chosen in dict.fromkeys(wider) if not context.assume(*chosen).infeasible())
        product = wider if len(wider) <= _MOST_DISJUNCTS else tuple(_joined(chosen, (arg,)) for chosen in product)
    return product


def _joined(chosen: Conjuncts, more: Conjuncts) -> Conjuncts:
    return tuple(dict.fromkeys(chosen + more))


def extremes(expr: Expr, box: Box, context: Context, sizes: Context) -> tuple[Expr | None, Expr | None, bool]:
    """The least and greatest value of `expr` over `box`, in sizes, and whether a non-empty box attains both.

    `context` may know more of the points than the box; `sizes` is what is known of the sizes alone.
    """
    dims = expr.dims()
    if all(isinstance(atom, Symbol) for atom, _ in expr.terms):
        rising = {symbol: expr.coefficient(symbol) > 0 for symbol in dims}
    elif len(dims) == 1:
        rising = _monotone(expr, next(iter(dims)), box, sizes)
    else:
        rising = {}
    if len(rising) < len(dims):
        return (*context.range_of(expr), False)
    first = {symbol: box.lo(symbol) for symbol in dims}
    last = {symbol: box.hi(symbol) - 1 for symbol in dims}
    lowest = expr.substitute({s: first[s] if rising[s] else last[s] for s in dims})
    highest = expr.substitute({s: last[s] if rising[s] else first[s] for s in dims})
    return lowest, highest, True


def _monotone(expr: Expr, symbol: Symbol, box: Box, sizes: Context) -> dict[Symbol, bool]:
    """Whether the expression rises or falls from every point of the box to the next.

    Points that satisfy a condition as well may have gaps between them, over which a step says nothing.
    """
    inner = sizes.assume(var(symbol).ge(box.lo(symbol)), var(symbol).le(box.hi(symbol) - 2))
    following = expr.substitute({symbol: var(symbol) + 1})
    if inner.implies(following.ge(expr)):
        return {symbol: True}
    return {symbol: False} if inner.implies(following.le(expr)) else {}


def tightened(box: Box, conjunct: Condition, sizes: Context) -> tuple[Box, bool]:
    """The part of `box` where `conjunct` may hold, and whether it is exactly where it holds."""
    if not isinstance(conjunct, Ge | Eq):
        return box, False
    dims = conjunct.expr.dims()
    for symbol in dims:
        box = _bounded(box, symbol, conjunct.expr, sizes)
        if isinstance(conjunct, Eq):
            box = _bounded(box, symbol, -conjunct.expr, sizes)
    if len(dims) != 1:
        return box, False
    symbol = next(iter(dims))
    return box, abs(conjunct.expr.coefficient(symbol)) == 1 and _is_affine_in(conjunct.expr, symbol)


def _bounded(box: Box, symbol: Symbol, expr: Expr, sizes: Context) -> Box:
    """`box` without the points at which `expr >= 0` cannot hold for the value of `symbol`."""
    factor = expr.coefficient(symbol)
    rest = expr - factor * var(symbol)
    if factor == 0 or any(not isinstance(atom, Symbol) and _atom_dims(atom) for atom, _ in rest.terms):
        return box
    greatest = rest.substitute({s: box.hi(s) - 1 if rest.coefficient(s) > 0 else box.lo(s) for s in rest.dims()})
    lo, hi = box.interval(symbol)
    if factor > 0:  # symbol >= ceil(-greatest / factor)
        return box.replace(symbol, sizes.simplify(maximum(lo, -(greatest // factor))), hi)
    return box.replace(symbol, lo, sizes.simplify(minimum(hi, greatest // -factor + 1)))


def _is_affine_in(expr: Expr, symbol: Symbol) -> bool:
    return not any(not isinstance(atom, Symbol) and symbol in _atom_dims(atom) for atom, _ in expr.terms)


def _atom_dims(atom: Atom) -> frozenset[Symbol]:
    return frozenset(symbol for symbol in atom.symbols() if symbol.kind == "dim")


def _index_dims(index: Point | Slice) -> frozenset[Symbol]:
    return frozenset(symbol for expr in index_exprs(index) for symbol in expr.dims())


def _is_shift(index: Point | Slice) -> bool:
    """Whether the index is a dim plus or minus something, or minus a dim: an interval goes to one of equal length."""
    if not isinstance(index, Point) or len(index.index.dims()) != 1:
        return False
    symbol = next(iter(index.index.dims()))
    return abs(index.index.coefficient(symbol)) == 1 and _is_affine_in(index.index, symbol)


_MOST_PARTS = 8


def hull(boxes: Sequence[Box], sizes: Context) -> Box:
    """The smallest box around all of the boxes, which have the same dims."""
    if len(boxes) == 1:
        return boxes[0]
    bounds = []
    for symbol, _, _ in boxes[0].bounds:
        lows, highs = zip(*(box.interval(symbol) for box in boxes))
        bounds.append((symbol, sizes.simplify(minimum(*lows)), sizes.simplify(maximum(*highs))))
    return Box(tuple(bounds))


def covers(box: Box, parts: Iterable[Box], sizes: Context) -> bool:
    """Whether every point of the box is proven to be in one of the parts; which one, sizes may choose."""
    parts = tuple(dict.fromkeys(parts))
    if any(within(box, part, sizes) for part in parts):
        return True
    united = _united(parts, sizes)
    if len(united) < len(parts):
        return covers(box, united, sizes)
    if not 1 < len(parts) <= _MOST_PARTS:
        return False
    return sizes.assume(box.condition()).implies(disjunction(part.condition() for part in parts))


def _united(parts: Sequence[Box], sizes: Context) -> tuple[Box, ...]:
    """The same points in fewer boxes, where two of them make up one."""
    united: list[Box] = []
    for part in parts:
        unions = ((at, _union(other, part, sizes)) for at, other in enumerate(united))
        found = ((at, union) for at, union in unions if union is not None)
        at, union = next(found, (len(united), part))
        united[at : at + 1] = [union]
    return tuple(united)


def _union(first: Box, second: Box, sizes: Context) -> Box | None:
    """Both boxes in one: that around the other, or where they differ along one dim and touch there."""
    if within(first, second, sizes):
        return second
    if within(second, first, sizes):
        return first
    apart = [(a, b) for a, b in zip(first.bounds, second.bounds, strict=True) if a != b]
    if len(apart) != 1:
        return None
    (_, lo, hi), (_, other_lo, other_hi) = apart[0]
    touching = sizes.implies(lo.le(other_hi)) and sizes.implies(other_lo.le(hi))
    return hull((first, second), sizes) if touching else None


def within(inner: Box, outer: Box, sizes: Context) -> bool:
    """Whether `inner` is proven to lie in `outer`."""
    if inner == outer:
        return True
    pairs = zip(inner.bounds, outer.bounds, strict=True)
    return all(sizes.implies(b[1].le(a[1])) and sizes.implies(a[2].le(b[2])) for a, b in pairs)
