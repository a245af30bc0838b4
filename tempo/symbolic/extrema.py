"""Sums of extrema that need none: `max(x, y) + min(x + s, y + s) = x + y + s`; `max(x, y) - max(x + s, y + s) = -s`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tempo.symbolic.expr import Atom, Expr, Max, Min


def resolved(terms: Sequence[tuple[Atom, int]]) -> tuple[tuple[Atom, Atom], Expr] | None:
    """Two of the terms whose sum is an expression without their extrema, with that sum; None where there are none."""
    extrema = [(atom, c) for atom, c in terms if isinstance(atom, Min | Max) and len(atom.args) == 2]
    for (left, c), (right, d) in combinations(extrema, 2):
        if abs(c) != abs(d) or (type(left) is type(right)) == (c == d):
            continue
        (x, y), (u, v) = left.args, right.args
        for first, second in ((u, v), (v, u)):
            shift = first - x
            if shift == second - y:
                # The extrema of x and y are x and y in some order, or cancel.
                return (left, right), ((x + second) if c == d else -shift) * c
    return None
