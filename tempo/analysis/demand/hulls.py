"""Hulls and unions of boxes whose bounds are in sizes, as far as a context of sizes decides.

An interval `[lo, hi)` with `hi <= lo` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tempo.symbolic import Box, Context, Expr, disjunction, maximum, minimum

_MOST_PARTS = 4


def hull(boxes: Sequence[Box], sizes: Context) -> Box:
    """The smallest box around all of the boxes, which have the same dims."""
    if len(boxes) == 1:
        return boxes[0]
    bounds = []
    for symbol, _, _ in boxes[0].bounds:
        intervals = [box.interval(symbol) for box in boxes]
        lo, hi = (least((lo for lo, _ in intervals), sizes), most((hi for _, hi in intervals), sizes))
        bounds.append((symbol, lo, hi))
    return Box(tuple(bounds))


def covers(box: Box, parts: Iterable[Box], sizes: Context) -> bool:
    """Whether the union of `parts` is proven to contain all of `box`."""
    parts = tuple(parts)
    pending = list(dict.fromkeys(parts))
    while pending:
        current = pending.pop(0)
        if within(box, current, sizes):
            return True
        found = next(((other, union) for other in pending if (union := _joined(current, other, sizes))), None)
        if found is not None:
            pending = [found[1]] + [other for other in pending if other is not found[0]]
    return _in_one_of(box, tuple(dict.fromkeys(parts)), sizes)


def _in_one_of(box: Box, parts: Sequence[Box], sizes: Context) -> bool:
    """Whether every point of the box is proven to be in one of the parts, which one sizes may choose."""
    if not 1 < len(parts) <= _MOST_PARTS:
        return False
    return sizes.assume(box.condition()).implies(disjunction(part.condition() for part in parts))


def within(inner: Box, outer: Box, sizes: Context) -> bool:
    """Whether `inner` is proven to lie in `outer`."""
    if inner == outer:
        return True
    pairs = zip(inner.bounds, outer.bounds, strict=True)
    return all(sizes.implies(b[1].le(a[1])) and sizes.implies(a[2].le(b[2])) for a, b in pairs)


def _joined(first: Box, second: Box, sizes: Context) -> Box | None:
    """The union of two boxes where that is a box."""
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


def least(exprs: Iterable[Expr], sizes: Context) -> Expr:
    """The least of the expressions: the first of them that is proven to be it, else their `min`."""
    kept: list[Expr] = []
    for expr in dict.fromkeys(exprs):
        if not any(sizes.implies(other.le(expr)) for other in kept):
            kept = [other for other in kept if not sizes.implies(expr.le(other))] + [expr]
    return sizes.simplify(minimum(*kept))


def most(exprs: Iterable[Expr], sizes: Context) -> Expr:
    """The greatest of the expressions, as `least`."""
    kept: list[Expr] = []
    for expr in dict.fromkeys(exprs):
        if not any(sizes.implies(other.ge(expr)) for other in kept):
            kept = [other for other in kept if not sizes.implies(expr.ge(other))] + [expr]
    return sizes.simplify(maximum(*kept))
