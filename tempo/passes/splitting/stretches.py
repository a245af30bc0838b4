"""Index-set splitting of a definition: pieces of a dim in which its conditions do not mention the dim any more.

`u[(x == 0) | (x == x.size - 1)] = 0; u[x] = inner` has three: 0 alone, `1 <= x < x.size - 1`, and the last point. At
small sizes some of them are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tempo.passes.simplify.simplify import possible_cases
from tempo.sdg.graph import Case
from tempo.symbolic import And, Condition, Context, Eq, Expr, Ge, Or, Symbol, const, maximum, minimum, var

MOST_PIECES = 8
"""A definition of more pieces than this is left in one: each of them is operators of its own."""


@dataclass(frozen=True)
class Piece:
    """The points `lo <= dim < hi`, and the cases left there. The bounds are in order for all sizes, or equal."""

    lo: Expr
    hi: Expr
    cases: tuple[Case, ...]


def pieces(cases: tuple[Case, ...], symbol: Symbol, lo: Expr, hi: Expr, sizes: Context) -> tuple[Piece, ...]:
    """The points `lo, ..., hi - 1` of `symbol` in pieces, in order.

    A stretch is cut at the first point where a condition that is open in it changes, until none is. A condition that
    changes at no point that sizes alone tell (`x % 2 == 0`, `x < t`) goes on mentioning the dim, as do all conditions
    where there would be too many pieces.
    """
    here = sizes.assume(var(symbol).ge(lo), var(symbol).lt(hi))
    found = tuple(islice(_cut(Piece(lo, hi, cases), here, symbol, sizes), MOST_PIECES + 1))
    return found if len(found) <= MOST_PIECES else (Piece(lo, hi, cases),)


def _cut(piece: Piece, here: Context, symbol: Symbol, sizes: Context) -> Iterator[Piece]:
    """`here` is what holds at its points; where it is empty there are none."""
    lo, hi, cases = piece.lo, piece.hi, piece.cases
    if lo == hi or here.infeasible():
        return
    if hi - lo == const(1):
        cases = tuple(replace(case, condition=case.condition.substitute({symbol: lo})) for case in cases)
    cases = possible_cases(cases, here)
    at = next((at for case in cases for at in _changes(case.condition, symbol, here)), None)
    if at is None:
        yield Piece(lo, hi, cases)
        return
    middle = sizes.assume(lo.le(hi)).simplify(maximum(lo, minimum(at, hi)))
    yield from _cut(Piece(lo, middle, cases), here.assume(var(symbol).lt(at)), symbol, sizes)
    yield from _cut(Piece(middle, hi, cases), here.assume(var(symbol).ge(at)), symbol, sizes)


def _changes(condition: Condition, symbol: Symbol, here: Context) -> Iterator[Expr]:
    """The points known by sizes, inside of the stretch, from which on an open comparison with the dim is another."""
    if isinstance(condition, And | Or):
        for arg in condition.args:
            yield from _changes(arg, symbol, here)
    if not isinstance(condition, Ge | Eq) or not (factor := condition.expr.coefficient(symbol)):
        return
    rest = condition.expr - factor * var(symbol)
    if rest.dims():
        return
    # factor * x + rest >= 0 means x >= ceil(-rest / factor), or x <= floor(rest / -factor)
    first = -(rest // factor) if factor > 0 else rest // -factor + 1
    found = (first, first + 1) if isinstance(condition, Eq) else (first,)
    yield from (at for at in found if not here.implies(var(symbol).ge(at)) and not here.excludes(var(symbol).ge(at)))
