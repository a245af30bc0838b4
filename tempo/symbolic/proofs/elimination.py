"""Fourier-Motzkin elimination over the integers.

A row `(key, c)` means `sum(k * x) + c >= 0` over the `(x, k)` of `key`; variables are numbers. Every row is divided by
the common divisor of its coefficients and its constant rounded down, which is where integers enter. Eliminating a
variable keeps every integer point (and may keep a few more), so "no point" is always right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

Key: TypeAlias = tuple[tuple[int, int], ...]
Row: TypeAlias = tuple[Key, int]
Rows: TypeAlias = dict[Key, int]  # the smallest constant for each key: the strongest row

MOST_ROWS = 200  # an elimination step that would make more rows than this forgets the variable's rows instead
MOST_WORK = 4000  # the same once a question has made this many rows


class Effort:
    """What one question may still cost, over all its case splits: rows to make, and eliminations."""

    def __init__(self, splits: int) -> None:
        self.rows = MOST_WORK
        self.splits = splits


def project(constraints: Iterable[Row], effort: Effort, keep: frozenset[int] = frozenset()) -> Rows | None:
    """Rows over the variables of `keep` that every solution satisfies; None if there is no solution.

    With nothing to keep the result is `{}` or None.
    """
    rows: Rows = {}
    if all(add_row(rows, terms, constant) for terms, constant in constraints):
        return _eliminate(rows, effort, keep)
    return None


def add_row(rows: Rows, terms: Key, constant: int) -> bool:
    """Add one row in its strongest integer form; False if it alone has no solution."""
    if not terms:
        return constant >= 0
    if len(terms) == 1:
        variable, c = terms[0]
        if c not in (1, -1):
            constant, terms = constant // abs(c), ((variable, 1 if c > 0 else -1),)
    else:
        g = math.gcd(*[c for _, c in terms])
        if g > 1:
            constant, terms = constant // g, tuple([(variable, c // g) for variable, c in terms])
    known = rows.get(terms)
    if known is None or constant < known:
        rows[terms] = constant
    return True


def _eliminate(rows: Rows, effort: Effort, keep: frozenset[int]) -> Rows | None:
    remaining: Rows | None = rows
    while remaining and (variable := _cheapest(remaining, keep)) is not None:
        remaining = _without(remaining, variable, effort)
    return remaining


def _cheapest(rows: Rows, keep: frozenset[int]) -> int | None:
    """The variable whose elimination adds the fewest rows; in a proof first one whose coefficients are all 1 or -1,
    since elimination is exact there, and what another loses of the integers may still be needed."""
    counts: dict[int, list[int]] = {}  # of negative coefficients, of positive ones, whether there is one beyond 1
    for key in rows:
        for variable, c in key:
            count = counts.setdefault(variable, [0, 0, False])
            count[c > 0] += 1
            count[2] |= not keep and abs(c) > 1
    growth = ((loses, down * up - down - up, v) for v, (down, up, loses) in counts.items() if v not in keep)
    return min(growth, default=(None,))[-1]


def _without(rows: Rows, variable: int, effort: Effort) -> Rows | None:
    """Combine every lower bound of `variable` with every upper bound of it."""
    lower: list[tuple[Key, int, int]] = []
    upper: list[tuple[Key, int, int]] = []
    rest: Rows = {}
    for key, constant in rows.items():
        for other, c in key:
            if other == variable:
                (lower if c > 0 else upper).append((key, constant, abs(c)))
                break
        else:
            rest[key] = constant
    made = len(lower) * len(upper)
    if made > min(MOST_ROWS, effort.rows):
        return rest
    effort.rows -= made
    for low_key, low_constant, a in lower:
        for high_key, high_constant, b in upper:
            g = math.gcd(a, b)
            terms = _combine(low_key, b // g, high_key, a // g)
            if not add_row(rest, terms, low_constant * (b // g) + high_constant * (a // g)):
                return None
    return rest


def _combine(left: Key, by_left: int, right: Key, by_right: int) -> Key:
    total = {variable: c * by_left for variable, c in left}
    for variable, c in right:
        total[variable] = total.get(variable, 0) + c * by_right
    return tuple(sorted([term for term in total.items() if term[1]]))
