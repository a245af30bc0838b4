"""What the executions of an extent that varies are expected to cost, and which of them is the least.

A model of three things: the bytes that the reads of a region move, the operators that are launched, and what compiling
copies of the region takes. It decides between factors, not between percents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tempo.symbolic import Expr, Symbol

Way = Literal["hull", "blocks", "specialise"]
_LEAST_TILE = 16
_SAMPLES = 64
_CLEAR = 0.9
"""What another execution than the hull may cost at most, of what the hull does."""
RUNS = 10
"""Of an executable, for which it is compiled."""
POINTS = 1000
"""How often a region or a loop runs where that is not known."""


@dataclass(frozen=True)
class Costs:
    """Of a backend, in seconds: a byte that is read from memory, an operator or a turn of a loop beside its
    arithmetic, a choice, and compiling an operator. `copies`: whether a mask on what is read costs as much as reading
    it twice more, as it does where operators are not fused. `part`: what reading a part of an array costs, to reading
    all of one; XLA copies the part before a contraction on a CPU."""

    byte: float
    operator: float
    choice: float
    compiling: float
    copies: bool
    part: float = 1


EAGER = Costs(byte=1 / 8e9, operator=3e-6, choice=3e-7, compiling=1e-4, copies=True)
FUSED = Costs(byte=1 / 8e9, operator=1e-6, choice=5e-6, compiling=5e-3, copies=False, part=2)
EAGER_CUDA = Costs(byte=1 / 1.5e12, operator=8e-6, choice=3e-7, compiling=1e-4, copies=True)
FUSED_CUDA = Costs(byte=1 / 1.5e12, operator=4e-6, choice=3e-5, compiling=1e-2, copies=False)


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

    def hull_cost(self, costs: Costs) -> float:
        part = 1 if self.whole else costs.part
        return self.operators * costs.operator + part * self._reading(costs) * self.hull

    def blocks_cost(self, costs: Costs, tile: int) -> float:
        """Whole blocks have no masks; there is one block beside them that does."""
        operators = self.operators + 2 * self.folds
        blocks = -(-self.lengths // tile)
        launched = operators * blocks.mean() + 2 * self.stages * blocks.mean() + 3 * self.folds
        byte = self.bytes * costs.byte
        moved = costs.part * (byte * blocks.mean() * tile + (self._reading(costs) - byte) * tile)
        compiled = (2 * (operators + self.stages) + 3 * self.folds - self.operators) * costs.compiling
        return float(launched * costs.operator + moved + compiled / (self.points * RUNS))

    def choices_cost(self, costs: Costs, extents: Sequence[int]) -> float:
        every = np.asarray([*extents, self.hull])
        extent = every[np.minimum(np.searchsorted(every, self.lengths), len(extents))]
        launched, part = self.operators * costs.operator, 1.0
        if not self.around:
            launched, part = launched + costs.choice * min(len(extents), 2), costs.part
        compiled = len(extents) * (self.around or self.operators + 1) * costs.compiling
        return float(launched + part * self._reading(costs) * extent.mean() + compiled / (self.points * RUNS))

    def _reading(self, costs: Costs) -> float:
        """Seconds per position, masked."""
        return self.bytes * costs.byte * (3 if costs.copies and self.masked else 1)


def doubles(least: int, hull: int) -> list[int]:
    """Extents below the hull."""
    return [extent for extent in (least << power for power in range(hull.bit_length())) if extent < hull]


def cheapest(work: RegionWork, costs: Costs, extent: Way | None, tile: int | None) -> tuple[Way, int]:
    """The execution, and its tile. `extent` and `tile`: what is forced."""
    found: list[tuple[float, Way, int]] = []
    if extent in (None, "hull") and not (extent is None and tile):
        found.append((_CLEAR * work.hull_cost(costs), "hull", work.hull))
    tiles = [tile] if tile else list(_tiles(work))
    if extent in (None, "blocks") and work.stages:
        found += [(work.blocks_cost(costs, each), "blocks", each) for each in tiles if each < work.hull]
    if extent in (None, "specialise") or (extent == "blocks" and not work.stages):
        found += [
            (work.choices_cost(costs, doubles(each, work.hull)), "specialise", each)
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
