"""Dimensions, and boxes: products of symbolic half-open intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tempo.symbolic.condition import Condition, conjunction
from tempo.symbolic.expr import ZERO, Bindings, Expr, Substitution, Symbol, Value, as_expr, var
from tempo.symbolic.structural import Structural

LARGEST_SIZE = 2**30
"""Of a dim: so that an index, plus or minus another or a small number, fits into 32 bits."""


@dataclass(frozen=True)
class Dim:
    """A temporal dimension, `0 <= symbol < size`; `size` is a number, `symbol.size`, or an expression of sizes.

    `sequential`: its points are run one after another, so that what a few of them need is kept: it becomes no axis.
    """

    symbol: Symbol
    size: Expr
    sequential: bool = False

    def __str__(self) -> str:
        return f"{self.symbol} in 0..{self.size}"


@dataclass(frozen=True, eq=False)
class Box(Structural):
    """`lo <= dim < hi` for every `(dim, lo, hi)` of `bounds`, which are in canonical order."""

    bounds: tuple[tuple[Symbol, Expr, Expr], ...] = ()

    @staticmethod
    def full(dims: Iterable[Dim]) -> Box:
        return Box(tuple((dim.symbol, ZERO, dim.size) for dim in dims))

    @property
    def dims(self) -> tuple[Symbol, ...]:
        return tuple(symbol for symbol, _, _ in self.bounds)

    def interval(self, symbol: Symbol) -> tuple[Expr, Expr]:
        """`(lo, hi)`, half-open; `KeyError` for a dim that the box does not have."""
        for found, lo, hi in self.bounds:
            if found == symbol:
                return lo, hi
        raise KeyError(symbol)

    def lo(self, symbol: Symbol) -> Expr:
        return self.interval(symbol)[0]

    def hi(self, symbol: Symbol) -> Expr:
        return self.interval(symbol)[1]

    def contains(self, point: Mapping[Symbol, Expr | int]) -> Condition:
        """That `point`, which gives every dim of the box, lies in it."""
        coordinates = ((as_expr(point[symbol]), lo, hi) for symbol, lo, hi in self.bounds)
        return conjunction(part for x, lo, hi in coordinates for part in (x.ge(lo), x.lt(hi)))

    def condition(self) -> Condition:
        """That the dims themselves lie in the box."""
        return self.contains({symbol: var(symbol) for symbol in self.dims})

    def nonempty(self) -> Condition:
        return conjunction(lo.lt(hi) for _, lo, hi in self.bounds)

    def replace(self, symbol: Symbol, lo: Expr, hi: Expr) -> Box:
        """The same box with other bounds of one dim."""
        return Box(tuple((symbol, lo, hi) if bound[0] == symbol else bound for bound in self.bounds))

    def substitute(self, mapping: Substitution) -> Box:
        """Replace symbols in the bounds (the dims of the box stay)."""
        return Box(tuple((s, lo.substitute(mapping), hi.substitute(mapping)) for s, lo, hi in self.bounds))

    def evaluate(self, env: Bindings) -> tuple[tuple[Value, Value], ...]:
        """The bounds as `(lo, hi)` numbers, in the order of the dims."""
        return tuple((lo.evaluate(env), hi.evaluate(env)) for _, lo, hi in self.bounds)

    def __str__(self) -> str:
        return ", ".join(f"{lo} <= {symbol} < {hi}" for symbol, lo, hi in self.bounds) or "()"
