"""What the executions of an extent that varies are expected to cost, and which of them is the least: by the bytes that
the reads of a region move, the operators that are launched, and what compiling copies of the region takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tempo.costs.model import POINTS, RUNS, Cost, Costs
from tempo.symbolic import Expr, Symbol

Way = Literal["hull", "blocks", "specialise"]
_LEAST_TILE = 16
_SAMPLES = 64
_CLEAR = 0.9
"""What another execution than the hull may cost at most, of what the hull does."""


@dataclass(frozen=True)
class RegionWork:
    """What a region does: `bytes` read per position, its operators, the folds among them, and the stages that blocks
    need; 0 where they cannot be. `lengths`: at points of the loops around it; `points`: how many there are. `room`:
    as many positions may be read, though no more than `hull` mean anything. `whole`: at the hull whole arrays are read.
    `masked`: what is read is masked, and not only what is made of it.
    `around`: the operators of the outermost loop, where that may be compiled for one extent after the other, of arrays
    of that extent; 0 where the extent is chosen at every point."""

    hull: int
    room: int
    bytes: float
    operators: int
    folds: int
    stages: int
    lengths: np.ndarray
    points: int
    masked: bool = True
    whole: bool = False
    around: int = 0

    def hull_cost(self, rates: Costs) -> Cost:
        part = 1 if self.whole else rates.part
        return Cost(rates, bytes=part * self._read(rates) * self.hull, launches=self.operators)

    def blocks_cost(self, rates: Costs, tile: int) -> Cost:
        """Whole blocks have no masks; there is one block beside them that does."""
        operators = self.operators + 2 * self.folds
        blocks = float((-(-self.lengths // tile)).mean())
        launched = operators * blocks + 2 * self.stages * blocks + 3 * self.folds
        moved = rates.part * (self.bytes * blocks * tile + (self._read(rates) - self.bytes) * tile)
        compiled = 2 * (operators + self.stages) + 3 * self.folds - self.operators
        return Cost(rates, bytes=moved, launches=launched, compiled=compiled / (self.points * RUNS))

    def choices_cost(self, rates: Costs, extents: Sequence[int]) -> Cost:
        every = np.asarray([*extents, self.hull])
        extent = float(every[np.minimum(np.searchsorted(every, self.lengths), len(extents))].mean())
        part, choices = (1.0, 0) if self.around else (rates.part, min(len(extents), 2))
        compiled = len(extents) * (self.around or self.operators + 1) / (self.points * RUNS)
        moved = part * self._read(rates) * extent
        return Cost(rates, bytes=moved, launches=self.operators, choices=choices, compiled=compiled)

    def _read(self, rates: Costs) -> float:
        """Bytes per position, those of masks with them."""
        return self.bytes * (3 if rates.copies and self.masked else 1)


def doubles(least: int, hull: int) -> list[int]:
    """Extents below the hull."""
    return [extent for extent in (least << power for power in range(hull.bit_length())) if extent < hull]


def cheapest(work: RegionWork, rates: Costs, extent: Way | None, tile: int | None) -> tuple[Way, int]:
    """The execution, and its tile. `extent` and `tile`: what is forced."""
    found: list[tuple[float, Way, int]] = []
    if extent in (None, "hull") and not (extent is None and tile):
        found.append((_CLEAR * work.hull_cost(rates).seconds, "hull", work.hull))
    tiles = [tile] if tile else list(_tiles(work))
    if extent in (None, "blocks") and work.stages:
        found += [(work.blocks_cost(rates, each).seconds, "blocks", each) for each in tiles if each < work.hull]
    if extent in (None, "specialise") or (extent == "blocks" and not work.stages):
        found += [
            (work.choices_cost(rates, doubles(each, work.hull)).seconds, "specialise", each)
            for each in tiles
            if each < work.hull
        ]
    return min(found)[1:] if found else ("hull", work.hull)


def _tiles(work: RegionWork) -> Iterator[int]:
    """Near each power of two the length whose blocks stay within what may be read: others are read position by
    position."""
    tile = _LEAST_TILE
    while tile < work.hull:
        near = [each for each in range(tile * 3 // 4, tile * 3 // 2 + 1) if -(-work.hull // each) * each <= work.room]
        yield min(near, key=lambda each: abs(each - tile), default=tile)
        tile *= 2


def sampled(
    length: Expr, loops: Sequence[tuple[Symbol, Expr, Expr]], sizes: Mapping[Symbol, int], hull: int
) -> tuple[np.ndarray, int]:
    """The length at points of the loops around it, outer first, and how many points they have."""
    points, values = 1, dict(sizes)
    for variable, lo, hi in loops:
        if not (lo.symbols() | hi.symbols()) <= sizes.keys():
            return np.linspace(0, hull, _SAMPLES).astype(int), POINTS
        first, end = int(lo.evaluate(sizes)), int(hi.evaluate(sizes))
        points *= max(1, end - first)
        if variable in length.symbols():
            values[variable] = np.linspace(first, max(first, end - 1), _SAMPLES).astype(int)  # type: ignore[assignment]
    if not length.symbols() <= values.keys():
        return np.linspace(0, hull, _SAMPLES).astype(int), points
    return np.broadcast_to(np.clip(length.evaluate(values), 0, hull), (_SAMPLES,)), points
