"""What the search for a mapping counts with: bytes of tensors, at the sizes known or at a middling guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.sdg.graph import Node
from tempo.symbolic import Expr, Symbol

UNKNOWN = 32
"""What a size that is not known counts as."""


@dataclass(frozen=True)
class Sizes:
    known: Mapping[Symbol, int]

    def extent(self, expr: Expr) -> int:
        """The value of an extent; a dim counts as half of an unknown size."""
        values = {symbol: self.known.get(symbol, UNKNOWN) for symbol in expr.symbols()}
        values.update(dict.fromkeys(expr.dims(), UNKNOWN // 2))
        return max(0, int(expr.evaluate(values)))

    def are_known(self, exprs: Iterable[Expr]) -> bool:
        """Whether every size in the expressions is."""
        return all(symbol in self.known for expr in exprs for symbol in expr.symbols())

    def bytes(self, node: Node) -> int:
        """The bytes of all results of a node at one point."""
        total = 0
        for type in node.results:
            elements = 1
            for size in type.shape:
                elements *= self.extent(size)
            total += elements * dtypes.itemsize(type.dtype)
        return total
