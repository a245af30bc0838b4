"""Sums of extrema that need none: `max(x, y) + min(x + s, y + s) = x + y + s`; `max(x, y) - max(x + s, y + s) = -s`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tempo.symbolic.expr import Atom, Expr, Max, Min, of_atom


def resolved(terms: Sequence[tuple[Atom, int]]) -> list[tuple[Expr, int]] | None:
    """Parts of the same sum, where the extrema of two terms are not needed; None where there are no such two."""
    extrema = [(atom, c) for atom, c in terms if isinstance(atom, Min | Max) and len(atom.args) == 2]
    for (left, c), (right, d) in combinations(extrema, 2):
        (x, y), others = left.args, right.args
        shift = next((u - x for u, v in (others, others[::-1]) if u - x == v - y), None)
        if shift is None or abs(c) != abs(d) or (type(left) is type(right)) == (c == d):
            continue
        # The extrema of x and y are x and y in some order, or cancel.
        rest = [(of_atom(atom), k) for atom, k in terms if atom not in (left, right)]
        return [*rest, (x + y + shift if c == d else -shift, c)]
    return None
