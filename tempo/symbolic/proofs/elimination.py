"""Fourier-Motzkin elimination over the integers.

A row `(key, c)` means `sum(k * x) + c >= 0` over the `(x, k)` of `key`; variables are numbers. Every row is divided by
the common divisor of its coefficients and its constant rounded down, which is where integers enter. Eliminating a
variable keeps every integer point (and may keep a few more), so "no point" is always right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[tuple[int, int], ...]
Rows: TypeAlias = dict[Key, int]  # the smallest constant for each key: the strongest row

MOST_ROWS = 200  # an elimination step that would make more rows than this forgets the variable's rows instead
MOST_WORK = 4000  # the same once a question has made this many rows


class Effort:
    """What one question may still cost, over all its case splits: rows to make, and eliminations."""

    def __init__(self, splits: int) -> None:
        self.rows = MOST_WORK
        self.splits = splits


class LinearConstraint(NamedTuple):
    """`sum(coefficient * variable) + const >= 0`, or `== 0` when `equal`."""

    terms: Key
    const: int
    equal: bool = False


def project(constraints: Iterable[LinearConstraint], effort: Effort, keep: frozenset[int] = frozenset()) -> Rows | None:
    """Rows over the variables of `keep` that every solution satisfies; None if there is no solution.

    With nothing to keep the result is `{}` or None.
    """
    rows: Rows = {}
    equalities: list[Value] = []
    for terms, constant, equal in constraints:
        if equal:
            equalities.append((dict(terms), constant))
        elif not add_row(rows, terms, constant):
            return None
    if equalities:
        solved = _solve_equalities(rows, equalities, keep)
        if solved is None:
            return None
        rows = solved
    return _eliminate(rows, effort, keep)


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
    while True:
        positive: dict[int, int] = {}
        negative: dict[int, int] = {}
        for key in rows:
            for variable, c in key:
                counts = positive if c > 0 else negative
                counts[variable] = counts.get(variable, 0) + 1
        cheapest = _cheapest(positive, negative, keep)
        if cheapest is None:
            return rows
        remaining = _without(rows, cheapest, effort)
        if remaining is None:
            return None
        rows = remaining


def _cheapest(positive: dict[int, int], negative: dict[int, int], keep: frozenset[int]) -> int | None:
    best, least = None, 0
    for variable in positive.keys() | negative.keys():
        if variable in keep:
            continue
        up, down = positive.get(variable, 0), negative.get(variable, 0)
        growth = up * down - up - down
        if best is None or growth < least or (growth == least and variable < best):
            best, least = variable, growth
    return best


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


Value: TypeAlias = tuple[dict[int, int], int]  # terms and constant


def _solve_equalities(rows: Rows, equalities: list[Value], keep: frozenset[int]) -> Rows | None:
    """Use each equality to replace a variable that need not be kept."""
    fresh = 0
    while equalities:
        terms, constant = equalities.pop()
        g = math.gcd(*terms.values())
        if constant % g if g else constant:
            return None
        if not g:
            continue
        terms, constant = {v: c // g for v, c in terms.items()}, constant // g
        pivot = _pivot(terms, keep)
        if pivot is None:
            key = tuple(sorted(terms.items()))
            if not (add_row(rows, key, constant) and add_row(rows, _negated(key), -constant)):
                return None
            continue
        fresh -= 1
        value, left_over = _solve_for(pivot, terms, constant, fresh)
        equalities = [_replaced(*equality, pivot, value) for equality in equalities] + left_over
        replaced = _replaced_rows(rows, pivot, value)
        if replaced is None:
            return None
        rows = replaced
    return rows


def _pivot(terms: dict[int, int], keep: frozenset[int]) -> int | None:
    """The variable to replace: of coefficient 1, or the smallest one when none of the variables is kept."""
    free = [v for v in terms if v not in keep]
    pivot = min(free, key=lambda v: (abs(terms[v]), v), default=None)
    if pivot is None or (abs(terms[pivot]) > 1 and len(free) < len(terms)):
        return None
    return pivot


def _solve_for(x: int, terms: dict[int, int], constant: int, fresh: int) -> tuple[Value, list[Value]]:
    """What `x` is by the equality `terms + constant == 0`, and the smaller equality that is left over, if any.

    With `a*x + r == 0` and `a = 1` or `-1`, `x = -a*r`. Otherwise, with `c_i = a*q_i + r_i` for the other
    coefficients, `y = x + sum(q_i * x_i)` leaves `a*y + sum(r_i * x_i) + c == 0`, in which all `r_i` are below `a`.
    """
    a = terms[x]
    if abs(a) == 1:
        return ({v: -a * c for v, c in terms.items() if v != x}, -a * constant), []
    value = {v: -(c // a) for v, c in terms.items() if v != x and c // a}
    smaller = {v: c % a for v, c in terms.items() if v != x and c % a}
    return ({**value, fresh: 1}, 0), [({**smaller, fresh: a}, constant)]


def _negated(key: Key) -> Key:
    return tuple([(variable, -c) for variable, c in key])


def _replaced(terms: dict[int, int], constant: int, variable: int, value: Value) -> Value:
    """`terms + constant` with `variable := value`."""
    factor = terms.get(variable, 0)
    if factor == 0:
        return terms, constant
    total = {v: c for v, c in terms.items() if v != variable}
    for v, c in value[0].items():
        total[v] = total.get(v, 0) + factor * c
    return {v: c for v, c in total.items() if c}, constant + factor * value[1]


def _replaced_rows(rows: Rows, variable: int, value: Value) -> Rows | None:
    """Every row with `variable := value`; None if one of them has no solution."""
    result: Rows = {}
    for key, constant in rows.items():
        if all(other != variable for other, _ in key):  # most have nothing to do with it
            result[key] = min(constant, result.get(key, constant))
            continue
        terms, total = _replaced(dict(key), constant, variable, value)
        if not add_row(result, tuple(sorted(terms.items())), total):
            return None
    return result
