"""Buckets: shapes are made for what the bucket of a size holds, and the size is a number of the run.

    x[0:t.size]   shows   t.length   positions of   t.extent,   1 <= t.length <= t.extent

The program is the same with `t.length` in place of `t.size`. Extents that vary with it are made static as those are
that vary with a dim (`tempo.passes.ragged.static_extents`), so what lies behind the length never counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tempo.errors import SizeError
from tempo.sdg.graph import Graph
from tempo.sdg.rewriter import with_sizes
from tempo.symbolic import Symbol, var

Bucket = Literal["pow2"] | tuple[int, ...]
"""The next power of two, or the least of some sizes, in order, that is no less."""


@dataclass(frozen=True)
class Buckets:
    """`of`: by dim, which has a size of its own."""

    of: Mapping[Symbol, Bucket] = field(default_factory=dict)

    def graph(self, graph: Graph) -> Graph:
        """The graph with lengths in place of sizes."""
        sizes = (symbol.of_kind("size") for symbol in self.of)
        return with_sizes(graph, {size: var(size.of_kind("length")) for size in sizes}) if self.of else graph

    def sizes(self, sizes: Mapping[Symbol, int]) -> Mapping[Symbol, int]:
        """With a length and an extent for each dim in a bucket. Raises `SizeError` for a size that is in none."""
        found = {symbol: sizes[size] for symbol in self.of if (size := symbol.of_kind("size")) in sizes}
        lengths = {symbol.of_kind("length"): size for symbol, size in found.items()}
        extents = {symbol.of_kind("extent"): self._extent(symbol, size) for symbol, size in found.items()}
        return {**sizes, **lengths, **extents} if found else sizes

    def _extent(self, symbol: Symbol, size: int) -> int:
        found = bucketed(self.of[symbol], size)
        if found is None:
            greatest = self.of[symbol][-1]
            raise SizeError(
                f"{symbol.name} has the size {size}, and the greatest of its buckets is {greatest}",
                hint=f'give a greater one: tp.Options(buckets={{"{symbol.name}": [..., {size}]}}), or "pow2"',
            )
        return found


def bucketed(bucket: Bucket, size: int) -> int | None:
    """What is made for a size; None where there is nothing so large."""
    if bucket == "pow2":
        return 1 << (size - 1).bit_length()
    return next((each for each in bucket if each >= size), None)
