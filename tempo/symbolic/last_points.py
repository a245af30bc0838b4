"""Last points of rows that have lengths of their own, `-1 <= t.last`, in what is to be proven."""

from __future__ import annotations

from tempo.symbolic.condition import Condition
from tempo.symbolic.expr import var


def over_counts(condition: Condition) -> Condition:
    """With `t.last - 2` for `t.last`: proofs take what is no dim to be at least 1."""
    lasts = (symbol for symbol in condition.symbols() if symbol.kind == "last")
    return condition.substitute({symbol: var(symbol) - 2 for symbol in lasts})
