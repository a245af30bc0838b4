"""Interval arithmetic: every dim at the end of its interval that makes an expression least or greatest.

That is exact where nothing but its own interval is known of a dim; where more is known the bounds still hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo.symbolic.condition import Condition, Eq, Ge
from tempo.symbolic.domain import Box
from tempo.symbolic.expr import Atom, Expr, Symbol, var


@dataclass(frozen=True)
class Intervals:
    """Inclusive bounds of dims, made of sizes alone, where there are such.

    `touched` holds the symbols of which more is known than an interval that is independent of the others and is never
    empty, and the sizes that bound these.
    """

    bounds: Mapping[Symbol, tuple[Expr, Expr]]
    lows: Mapping[Symbol, Expr]
    highs: Mapping[Symbol, Expr]
    touched: frozenset[Symbol]

    @staticmethod
    def of(box: Box, sizes: Mapping[Symbol, Expr]) -> Intervals:
        """The intervals of a box; `sizes` are those that equal something else."""
        bounds = {symbol: (lo, hi - 1) for symbol, lo, hi in box.bounds}
        lows = {symbol: lo for symbol, (lo, _) in bounds.items() if _in_sizes(lo)}
        highs = {symbol: hi for symbol, (_, hi) in bounds.items() if _in_sizes(hi)}
        touched = set(sizes).union(*(size.symbols() for size in sizes.values()))
        for symbol, (lo, hi) in bounds.items():
            if lo.terms or symbol not in highs or not _never_negative(hi - lo):
                touched |= {symbol} | lo.symbols() | hi.symbols()
        return Intervals(bounds, lows, highs, frozenset(touched))

    def within(self, facts: tuple[Condition, ...]) -> Intervals:
        """These intervals, narrowed by the facts that bound one dim."""
        if not facts:
            return self
        symbols = frozenset[Symbol]().union(*(fact.symbols() for fact in facts))
        bounds = [bound for symbol in symbols for bound in self.bounds.get(symbol, ())]
        touched = self.touched.union(symbols, *(bound.symbols() for bound in bounds))
        lows, highs = dict(self.lows), dict(self.highs)
        for fact in facts:
            if isinstance(fact, Ge | Eq) and is_affine(fact.expr):
                _narrow(lows, highs, fact.expr, isinstance(fact, Eq))
        return Intervals(self.bounds, lows, highs, touched)

    def constant(self, expr: Expr, sign: int) -> tuple[int | None, bool]:
        """The lower (`sign = 1`) or upper bound (-1) of an affine expression, and whether none can be tighter."""
        touched = self.touched
        value, exact = expr.const, True
        sizes: dict[Symbol, int] = {}
        for atom, c in expr.terms:
            assert isinstance(atom, Symbol)
            if atom in touched:
                exact = False
            if atom.kind != "dim":
                sizes[atom] = sizes.get(atom, 0) + c
                continue
            bound = (self.lows if c * sign > 0 else self.highs).get(atom)
            if bound is None:
                return None, exact
            value += c * bound.const
            for symbol, k in bound.terms:
                assert isinstance(symbol, Symbol)
                sizes[symbol] = sizes.get(symbol, 0) + c * k
        exact = exact and touched.isdisjoint(sizes)
        if any(c * sign < 0 for c in sizes.values()):
            return None, exact
        return value + sum(sizes.values()), exact


def is_affine(expr: Expr) -> bool:
    """Whether every atom is a symbol (composite atoms sort last)."""
    return not expr.terms or isinstance(expr.terms[-1][0], Symbol)


def has_dims(atom: Atom) -> bool:
    return any(symbol.kind == "dim" for symbol in atom.symbols())


def _in_sizes(expr: Expr) -> bool:
    """Whether an expression is affine in sizes (dims sort first)."""
    return is_affine(expr) and not (expr.terms and has_dims(expr.terms[0][0]))


def _never_negative(expr: Expr) -> bool:
    """Whether a sum of sizes is at least 0 whatever the sizes are."""
    return all(c > 0 for _, c in expr.terms) and expr.const + sum(c for _, c in expr.terms) >= 0


def _narrow(lows: dict[Symbol, Expr], highs: dict[Symbol, Expr], expr: Expr, equal: bool) -> None:
    """Use `d + rest >= 0`, `-d + rest >= 0` or `== 0` for the only dim, where it is tighter by a number."""
    symbol, c = expr.terms[0]
    if c not in (1, -1) or not isinstance(symbol, Symbol) or symbol.kind != "dim":
        return
    bound = var(symbol) - expr * c  # d == bound, or d >= bound, or d <= bound
    if not _in_sizes(bound):
        return
    if (equal or c > 0) and (symbol not in lows or equal or _never_negative(bound - lows[symbol])):
        lows[symbol] = bound
    if (equal or c < 0) and (symbol not in highs or equal or _never_negative(highs[symbol] - bound)):
        highs[symbol] = bound
