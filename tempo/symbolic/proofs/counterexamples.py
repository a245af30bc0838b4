"""Points at which all that is known holds: a claim that fails at one of them has no proof, so none is tried.

Most of what analyses ask is not so, and what is not so costs a prover most: it goes through all cases. Looking at some
points first changes no answer.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tempo.symbolic.condition import Condition, Eq
from tempo.symbolic.domain import Box
from tempo.symbolic.expr import Expr, Symbol, Value, var
from tempo.symbolic.proofs.intervals import is_affine

Array = np.ndarray[Any, Any]

_DRAWN = 128  # points, before those at which something known does not hold are left out
_SIZES = np.array([*range(1, 10), 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 10**6])
_ALIKE = 8  # so many of the points have one size for all dims, from 1 on
_PARTS = 1 << 10  # of an interval, to choose from
_DRAWING = threading.RLock()


@cache  # `numpy.random` is a tenth of the time that importing tempo takes, and who only declares needs none of it
def _random() -> Array:
    """A row for every symbol, then over again."""
    return np.random.default_rng(0).integers(0, 1 << 30, (16, _DRAWN))


class Points(dict[Symbol, Value]):
    """The values of every symbol, one for each point: what expressions are evaluated at."""

    def __init__(self, drawn: Drawn, kept: Array) -> None:
        super().__init__()
        self._drawn, self._kept = drawn, kept

    def __reduce__(self) -> tuple[object, ...]:
        return Points, (self._drawn, self._kept)

    def __missing__(self, symbol: Symbol) -> Value:
        self[symbol] = values = self._drawn.values(symbol)[self._kept]
        return values

    def where(self, condition: Condition) -> Points:
        """Those at which the condition holds."""
        holds = np.broadcast_to(condition.evaluate(self), len(self._kept))
        return Points(self._drawn, self._kept[holds])

    def exist(self) -> bool:
        """Whether there is one: then what is known does not contradict itself."""
        return len(self._kept) > 0

    def satisfy(self, condition: Condition) -> bool:
        """Whether the condition holds at one of the points."""
        return self.exist() and bool(np.any(condition.evaluate(self)))

    def distinguish(self, expr: Expr) -> bool:
        """Whether the expression has several values."""
        values = expr.evaluate(self)
        return isinstance(values, np.ndarray) and bool(np.any(values != values[:1]))


class Drawn:
    """Values of symbols: of dims in the intervals of a box, of sizes that are equal to what `sizes` says.

    `defined`: what else is known to equal something.
    """

    def __init__(self, box: Box, sizes: Mapping[Symbol, Expr], defined: Mapping[Symbol, Expr] | None = None) -> None:
        self._box, self._sizes, self._defined = box, sizes, defined or {}
        self._bounds = {symbol: (lo, hi) for symbol, lo, hi in box.bounds}
        self._started: dict[Symbol, Array] = {}
        self._values: dict[Symbol, Array] = {}
        self._inside: Array | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Drawn, (self._box, self._sizes, self._defined)

    def points(self, facts: Sequence[Condition]) -> Points:
        """Those at which the facts hold."""
        defined = dict(filter(None, map(_definition, facts)))
        if not defined.keys() <= self._defined.keys():
            return Drawn(self._box, self._sizes, defined).points(facts)
        if self._inside is None:
            self._inside = self._find_inside()
        holds = Points(self, self._inside)
        for fact in facts:
            holds = holds.where(fact)
        return holds

    def _find_inside(self) -> Array:
        """The places at which every dim is in its interval, and every size is at least 1, and what it equals."""
        inside = np.ones(_DRAWN, bool)
        for symbol, bounds in self._bounds.items():
            lo, hi = map(self._at, bounds)
            inside &= (lo <= self.values(symbol)) & (self.values(symbol) < hi)
        for symbol, equal in self._sizes.items():
            inside &= self._at(equal) == self.values(symbol)
        for symbol in (*self._sizes, *self._defined):
            inside &= (symbol.kind == "dim") | (self.values(symbol) >= 1)
        return np.flatnonzero(inside)

    def values(self, symbol: Symbol) -> Array:
        found = self._values.get(symbol)
        if found is not None:
            return found
        with _DRAWING:
            return self._first_values(symbol)

    def _first_values(self, symbol: Symbol) -> Array:
        """One thread at a time. What is defined by itself starts from anything."""
        if symbol in self._values or symbol in self._started:
            return self._values.get(symbol, self._started[symbol])
        rows = _random()
        random = rows[len(self._started) % len(rows)]
        self._started[symbol] = _any(symbol, random)
        found = self._values[symbol] = self._draw(symbol, random)
        return found

    def _draw(self, symbol: Symbol, random: Array) -> Array:
        equal = self._sizes.get(symbol, self._defined.get(symbol))
        if equal is not None:
            return np.broadcast_to(self._at(equal), _DRAWN)
        if symbol.kind == "extent":
            return np.asarray(self.values(symbol.of_kind("length")) + random % 4)
        if symbol not in self._bounds:
            return self._started[symbol]
        lo, hi = map(self._at, self._bounds[symbol])
        part = np.clip(random % (2 * _PARTS) - _PARTS // 2, 0, _PARTS - 1)  # either end as often as a half of the rest
        return np.asarray(lo + (hi - lo) * part // _PARTS)

    def _at(self, expr: Expr) -> Value:
        return expr.evaluate({symbol: self.values(symbol) for symbol in expr.symbols()})


def _any(symbol: Symbol, random: Array) -> Array:
    if symbol.kind == "dim":
        return random % 120 - 20
    sizes: Array = _SIZES[random % len(_SIZES)]
    sizes[:_ALIKE] = range(1, _ALIKE + 1)
    return sizes


def _definition(fact: Condition) -> tuple[Symbol, Expr] | None:
    """What a fact says that a symbol equals, if it does."""
    if not isinstance(fact, Eq) or not is_affine(fact.expr):
        return None
    symbol, c = next(((atom, c) for atom, c in fact.expr.terms if c in (1, -1)), (None, 0))
    return (symbol, var(symbol) - fact.expr * c) if isinstance(symbol, Symbol) else None
