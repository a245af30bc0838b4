"""Images of boxes under guarded reads: which points of a producer the points of a consumer's box read.

Everything is symbolic: a `Region` bounds the points for every size, and says whether it is proven to be exactly them.
An interval `[lo, hi)` with `hi <= lo` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.symbolic import (
    FALSE,
    TRUE,
    And,
    Box,
    Condition,
    Context,
    Eq,
    Expr,
    Ge,
    Or,
    Symbol,
    const,
    maximum,
    minimum,
    var,
)

_MOST_DISJUNCTS = 16
_MOST_ARGUMENTS = 4


@dataclass(frozen=True)
class Region:
    """A superset of a set of points; `exact` when it is proven to be the set itself, for all sizes."""

    box: Box
    exact: bool


Memo = dict[object, Region | None]
"""Images found before, under the same facts: most nodes of a program read through few different maps."""


def images(
    graph: Graph, node: Node, region: Region, facts: Condition = TRUE, memo: Memo | None = None
) -> Iterator[tuple[int, Region]]:
    """For every read of `node` from within `region`: the producer, and the points read, clipped to its domain."""
    memo = {} if memo is None else memo
    for condition, edge in node.guarded_reads():
        for conjuncts in disjuncts(condition):
            key = region, node.domain, conjuncts, graph.nodes[edge.node].domain, edge.map
            if key not in memo:
                memo[key] = _image(graph, node, region, conjuncts, edge, facts)
            image = memo[key]
            if image is not None:
                yield edge.node, image


def hull(regions: Iterable[Region], context: Context) -> Box:
    """The smallest box around all regions, as far as `context` (of sizes) decides."""
    boxes = [region.box for region in regions]
    return Box(
        tuple(
            (
                symbol,
                _least([box.lo(symbol) for box in boxes], context),
                _most([box.hi(symbol) for box in boxes], context),
            )
            for symbol, _, _ in boxes[0].bounds
        )
    )


def covers(box: Box, regions: Iterable[Region], context: Context) -> bool:
    """Whether the union of the exact regions is proven to contain all of `box`."""
    pending = [region.box for region in regions if region.exact]
    while pending:
        current = pending.pop(0)
        if _within(box, current, context):
            return True
        joined = next(((other, union) for other in pending if (union := _joined(current, other, context))), None)
        if joined is not None:
            pending = [joined[1]] + [other for other in pending if other is not joined[0]]
    return False


def disjuncts(condition: Condition) -> tuple[tuple[Condition, ...], ...]:
    """Disjunctive normal form; a condition with very many disjuncts becomes one that says nothing."""
    if condition == TRUE:
        return ((),)
    if condition == FALSE:
        return ()
    if isinstance(condition, Or):
        found = tuple(conjuncts for arg in condition.args for conjuncts in disjuncts(arg))
        return found if len(found) <= _MOST_DISJUNCTS else ((),)
    if not isinstance(condition, And):
        return ((condition,),)
    product: tuple[tuple[Condition, ...], ...] = ((),)
    for arg in condition.args:
        choices = disjuncts(arg)
        if len(product) * len(choices) <= _MOST_DISJUNCTS:
            product = tuple(chosen + more for chosen in product for more in choices)
    return product


def extremes(expr: Expr, box: Box, context: Context) -> tuple[Expr | None, Expr | None, bool]:
    """The least and greatest value of `expr` over `box`, in sizes, and whether a non-empty box attains both."""
    dims = expr.dims()
    if all(isinstance(atom, Symbol) for atom, _ in expr.terms):
        rising = {symbol: dict(expr.terms)[symbol] > 0 for symbol in dims}
    elif len(dims) == 1:
        rising = _monotone(expr, next(iter(dims)), box, context)
    else:
        rising = {}
    if len(rising) < len(dims):
        return (*context.range_of(expr), False)
    first = {symbol: box.lo(symbol) for symbol in dims}
    last = {symbol: box.hi(symbol) - 1 for symbol in dims}
    least = expr.substitute({s: first[s] if rising[s] else last[s] for s in dims})
    most = expr.substitute({s: last[s] if rising[s] else first[s] for s in dims})
    return least, most, True


def _monotone(expr: Expr, symbol: Symbol, box: Box, context: Context) -> dict[Symbol, bool]:
    inner = context.assume(var(symbol).le(box.hi(symbol) - 2))
    following = expr.substitute({symbol: var(symbol) + 1})
    if inner.implies(following.ge(expr)):
        return {symbol: True}
    return {symbol: False} if inner.implies(following.le(expr)) else {}


def _image(
    graph: Graph, node: Node, region: Region, conjuncts: tuple[Condition, ...], edge: Edge, facts: Condition
) -> Region | None:
    dims = graph.domain_dims(node)
    context = Context.of(dims, facts, *conjuncts, box=region.box)
    if conjuncts and context.infeasible():
        return None
    sizes = Context.of((), facts)
    box, exact = region.box, region.exact
    for conjunct in conjuncts:
        box, decided = _tightened(box, conjunct, sizes)
        exact = exact and decided
    context = Context.of(dims, facts, *conjuncts, box=box)
    producer = graph.nodes[edge.node]
    bounds, whole = [], True
    for dim, index in zip(graph.domain_dims(producer), edge.map, strict=True):
        lo, hi, contiguous = _interval(index, box, context)
        whole = whole and contiguous
        lo = const(0) if lo is None else _most([const(0), lo], sizes)
        hi = dim.size if hi is None else _least([dim.size, hi], sizes)
        bounds.append((dim.symbol, lo, hi))
    return Region(Box(tuple(bounds)), exact and whole and _is_product(edge, box, sizes))


def _tightened(box: Box, conjunct: Condition, sizes: Context) -> tuple[Box, bool]:
    """The part of `box` where `conjunct` may hold, and whether it is exactly where it holds."""
    if not isinstance(conjunct, Ge | Eq):
        return box, False
    dims = conjunct.expr.dims()
    for symbol in dims:
        box = _bounded(box, symbol, conjunct.expr, sizes)
        if isinstance(conjunct, Eq):
            box = _bounded(box, symbol, -conjunct.expr, sizes)
    simple = [abs(factor) == 1 for atom, factor in conjunct.expr.terms if isinstance(atom, Symbol) and atom in dims]
    exact = len(dims) == 1 and len(simple) == 1 and simple[0]
    return box, exact and _is_affine_in(conjunct.expr, next(iter(dims)))


def _bounded(box: Box, symbol: Symbol, expr: Expr, sizes: Context) -> Box:
    """`box` without the points at which `expr >= 0` cannot hold for the value of `symbol`."""
    factor = dict(expr.terms).get(symbol)
    if factor is None or not _is_affine_in(expr, symbol):
        return box
    rest = expr - factor * var(symbol)
    if any(not isinstance(atom, Symbol) and _has_dims(atom) for atom, _ in rest.terms):
        return box
    greatest = rest.substitute({s: box.hi(s) - 1 if dict(rest.terms)[s] > 0 else box.lo(s) for s in rest.dims()})
    lo, hi = box.lo(symbol), box.hi(symbol)
    if factor > 0:  # symbol >= ceil(-greatest / factor)
        lo = _most([lo, -(greatest // factor)], sizes)
    else:  # symbol <= floor(greatest / -factor)
        hi = _least([hi, greatest // -factor + 1], sizes)
    return Box(tuple((s, lo, hi) if s == symbol else (s, a, b) for s, a, b in box.bounds))


def _is_affine_in(expr: Expr, symbol: Symbol) -> bool:
    return not any(not isinstance(atom, Symbol) and symbol in atom_dims(atom) for atom, _ in expr.terms)


def _has_dims(atom: object) -> bool:
    return bool(atom_dims(atom))


def atom_dims(atom: object) -> frozenset[Symbol]:
    """The dims inside a `floordiv`, `mod`, `min` or `max`, or the dim that the atom is."""
    return Expr(((atom, 1),), 0).dims()  # type: ignore[arg-type]


def _interval(index: Point | Slice, box: Box, context: Context) -> tuple[Expr | None, Expr | None, bool]:
    """The half-open interval of the positions that `index` reads, and whether all between are read too."""
    start = index.index if isinstance(index, Point) else index.start
    stop = start + 1 if isinstance(index, Point) else context.simplify(start + index.length)
    lo, _, least_attained = extremes(start, box, context)
    hi, most_attained = lo, least_attained
    if isinstance(index, Point):
        _, last, most_attained = extremes(start, box, context)
        hi = None if last is None else last + 1
    else:
        _, hi, most_attained = extremes(stop, box, context)
    attained = least_attained and most_attained
    return lo, hi, attained and _contiguous(start, stop, box, context)


def _contiguous(start: Expr, stop: Expr, box: Box, context: Context) -> bool:
    """Whether the intervals `[start, stop)` at neighbouring points of the box touch: their union has no hole."""
    if not start.dims() or not stop.dims():
        return context.implies(stop.ge(start))
    if len(start.dims() | stop.dims()) != 1 or not context.implies(stop.gt(start)):
        return False
    symbol = next(iter(start.dims()))
    step = {symbol: var(symbol) + 1}
    inner = context.assume(var(symbol).le(box.hi(symbol) - 2))
    return inner.implies(start.substitute(step).le(stop)) and inner.implies(start.le(stop.substitute(step)))


def _is_product(edge: Edge, box: Box, sizes: Context) -> bool:
    """Whether the image is the product of its intervals: no dim is used twice, none that is not carried is empty."""
    used = [symbol for index in edge.map for symbol in _index_dims(index)]
    if len(used) != len(set(used)):
        return False
    carried = {next(iter(_index_dims(index))) for index in edge.map if _is_shift(index)}
    return all(symbol in carried or sizes.implies(hi.gt(lo)) for symbol, lo, hi in box.bounds)


def _index_dims(index: Point | Slice) -> frozenset[Symbol]:
    return index.index.dims() if isinstance(index, Point) else index.start.dims() | index.length.dims()


def _is_shift(index: Point | Slice) -> bool:
    if not isinstance(index, Point) or len(index.index.dims()) != 1:
        return False
    symbol = next(iter(index.index.dims()))
    return abs(dict(index.index.terms).get(symbol, 0)) == 1 and _is_affine_in(index.index, symbol)


def _within(inner: Box, outer: Box, context: Context) -> bool:
    return all(
        context.implies(outer.lo(symbol).le(lo)) and context.implies(hi.le(outer.hi(symbol)))
        for symbol, lo, hi in inner.bounds
    )


def _joined(first: Box, second: Box, context: Context) -> Box | None:
    """The union of two boxes where that is a box."""
    if _within(first, second, context):
        return second
    if _within(second, first, context):
        return first
    apart = [a for a, b in zip(first.bounds, second.bounds, strict=True) if a != b]
    if len(apart) != 1:
        return None
    symbol, lo, hi = apart[0]
    if not (context.implies(lo.le(second.hi(symbol))) and context.implies(second.lo(symbol).le(hi))):
        return None
    return hull((Region(first, True), Region(second, True)), context)


def _least(exprs: list[Expr], context: Context) -> Expr:
    return _extreme(exprs, context, least=True)


def _most(exprs: list[Expr], context: Context) -> Expr:
    return _extreme(exprs, context, least=False)


def _extreme(exprs: list[Expr], context: Context, least: bool) -> Expr:
    """The least or greatest of the expressions: one of them where that is decided, else a `min` or `max`."""
    kept: list[Expr] = []
    for expr in dict.fromkeys(exprs):
        if any(context.implies(other.le(expr) if least else other.ge(expr)) for other in kept):
            continue
        kept = [other for other in kept if not context.implies(expr.le(other) if least else expr.ge(other))]
        kept.append(expr)
    return context.simplify(minimum(*kept) if least else maximum(*kept)) if len(kept) > 1 else context.simplify(kept[0])
