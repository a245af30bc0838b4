"""What holds of dims and sizes by definition: their intervals, and the sizes that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo.symbolic.condition import TRUE, Condition, nonnegative, zero
from tempo.symbolic.domain import Box, Dim
from tempo.symbolic.expr import Expr, Symbol, var
from tempo.symbolic.proofs.counterexamples import Drawn, Points
from tempo.symbolic.proofs.intervals import Intervals
from tempo.symbolic.proofs.linear import Variables


class World:
    """Shared by a context and all that are derived from it."""

    def __init__(self, box: Box, sizes: Mapping[Symbol, Expr]) -> None:
        self._box = box
        self._bounds = {symbol: (lo, hi) for symbol, lo, hi in box.bounds}
        self._sizes = sizes
        self.dims = frozenset(self._bounds)
        self.intervals = Intervals.of(box, sizes)
        self.variables = Variables(self._definition)
        self._drawn: Drawn | None = None

    @staticmethod
    def of(dims: tuple[Dim, ...], box: Box | None) -> World:
        given = {} if box is None else {bound[0]: bound for bound in box.bounds}
        bounds = [given.pop(bound[0], bound) for bound in Box.full(dims).bounds]
        sizes = {Symbol(dim.symbol.name, "size"): dim.size for dim in dims}
        return World(Box((*bounds, *given.values())), {s: size for s, size in sizes.items() if size != var(s)})

    def points(self, facts: Sequence[Condition]) -> Points:
        """Some of those at which all this holds, and the facts."""
        if self._drawn is None:
            self._drawn = Drawn(self._box, self._sizes)
        return self._drawn.points(facts)

    def _definition(self, symbol: Symbol) -> Condition:
        if symbol.kind == "size":
            equal = self._sizes.get(symbol)
            positive = nonnegative(var(symbol) - 1)
            return positive if equal is None else positive & zero(var(symbol) - equal)
        if symbol not in self._bounds:
            return TRUE
        lo, hi = self._bounds[symbol]
        size = self._sizes.get(Symbol(symbol.name, "size"))
        inside = var(symbol).ge(lo) & var(symbol).lt(hi)
        return inside if size is None or size.is_const else inside & size.ge(1)

    def __str__(self) -> str:
        return str(self._box)
