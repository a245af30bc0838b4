"""The inspector: from the indices of a run to the order in which a recurrence may be made, a tile of points at a time.

A point's level is one more than the greatest of those that it reads. Points are taken level by level; what is left of a
tile where a level ends goes to those of the next whose own are all in earlier tiles.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tiles:
    """`order[tile, lane]`, which repeats the last point of a tile that has fewer; `position[n]`, the place of each
    point in it; the first `base` of its tiles have the points that read none."""

    order: Array
    position: Array
    base: int


def tiles(read: Array, first: int, lanes: int, most: float) -> Tiles | None:
    """The points from 0 on, of which those from `first` on read the points of their row in `read`, all before them.

    None where it would take more than `most` tiles.
    """
    base, count = -(-first // lanes), len(read)
    rest = most - base
    if rest * lanes < count or _longest_run(read, first) > rest:
        return None
    level = _levels(read, first)
    placed, ends = _Placed(first, count, base, lanes), np.cumsum(np.bincount(level))
    for ready in np.split(np.argsort(level, kind="stable"), ends[:-1]):
        if placed.tiles > rest:
            return None
        placed.put(ready, read)
    return None if placed.tiles > rest else placed.found()


def _levels(read: Array, first: int) -> Array:
    """Of each point; of those that read none but the ones before `first` it is 0."""
    level = [-1] * first
    for row in read.tolist():
        level.append(max(map(level.__getitem__, row)) + 1)
    return np.array(level[first:], np.intp)


def _longest_run(read: Array, first: int) -> int:
    """How many points there are at most one after another of which each reads the one before: in a chain, all."""
    breaks = np.flatnonzero(~(read == np.arange(first - 1, first - 1 + len(read))[:, None]).any(axis=1))
    return int(np.diff(breaks, prepend=-1, append=len(read)).max()) - 1


class _Placed:
    """The points that have a place, in the tiles behind the first `base`; they are counted from `first`."""

    def __init__(self, first: int, count: int, base: int, lanes: int) -> None:
        self.first, self.base, self.lanes = first, base, lanes
        self.tile = np.zeros(first + count, np.int32)
        self.tile[:first] = np.arange(first) // lanes
        self.lane = np.zeros(first + count, np.int32)
        self.lane[:first] = np.arange(first) % lanes
        self.tiles, self.used = 0, lanes  # of the last tile, that is

    def put(self, ready: Array, read: Array) -> None:
        open_tile, room = self.base + self.tiles - 1, self.lanes - self.used
        if room and self.tiles:
            left = np.ones(ready.size, bool)
            chosen = np.flatnonzero(self.tile[read[ready]].max(axis=1) < open_tile)[:room]
            left[chosen] = False
            self._set(ready[chosen], open_tile, self.used + np.arange(chosen.size))
            self.used += chosen.size
            ready = ready[left]
        if ready.size:
            places = np.arange(ready.size)
            self._set(ready, self.base + self.tiles + places // self.lanes, places % self.lanes)
            self.tiles += -(-ready.size // self.lanes)
            self.used = (ready.size - 1) % self.lanes + 1

    def _set(self, points: Array, tile: Any, lane: Any) -> None:
        self.tile[self.first + points], self.lane[self.first + points] = tile, lane

    def found(self) -> Tiles:
        shape = self.base + self.tiles, self.lanes
        order = np.full(shape, -1, np.int32)
        order[self.tile, self.lane] = np.arange(self.tile.size)
        last = (order >= 0).sum(axis=1) - 1
        order = np.where(order < 0, order[np.arange(len(order)), last][:, None], order)
        return Tiles(order, (self.tile * self.lanes + self.lane).astype(np.int32), self.base)


@dataclass(frozen=True)
class RowTiles:
    """Points of rows in tiles: `row[tile, lane]` and `time[tile, lane]` say which, `step[tile, lane]` where what is
    read lies, `position[row, time]` where each does. The first `base` tiles have points that read none.
    """

    row: Array
    time: Array
    step: Array
    position: Array
    base: int


def row_tiles(lengths: Array, size: int, lanes: int, backward: bool) -> RowTiles | None:
    """The points of rows in the order in which they may be made: the first of all rows, or the last, then what reads
    these, and so on. Rows go from the longest to the shortest, so those that go on are the first ones, and stay in
    their order; as long as they fill a tile, levels follow one another without a gap.

    None where no point reads another.
    """
    longest = np.argsort(-lengths, kind="stable")
    counts = lengths[longest]
    alive = np.searchsorted(-counts, -np.arange(int(counts.max(initial=0))), side="left")  # by level
    if len(alive) < 2:
        return None
    alone = int((lengths == size).sum()) if backward else int(alive[0])  # of the first level, those that read none
    base = max(1, -(-alone // lanes))
    starts = [base * lanes - alone]
    here = starts[0] + int(alive[0])
    for before, count in itertools.pairwise(alive.tolist()):
        starts.append(here if before >= lanes else -(-here // lanes) * lanes)
        here = starts[-1] + count
    rank, depth = np.nonzero(np.arange(len(alive)) < counts[:, None])
    places = np.array(starts)[depth] + rank
    first = (depth == 0) & (rank < alone)
    places[first] = rank[first]
    row, time = longest[rank], np.asarray(counts[rank] - 1 - depth if backward else depth)
    tiles = -(-here // lanes)
    position = np.zeros((len(lengths), size), np.int32)
    position[row, time] = places
    filled = np.full(tiles * lanes, -1)
    filled[places] = np.arange(len(places))
    last = np.maximum.accumulate(np.where(filled >= 0, np.arange(len(filled)), 0))
    taken = np.where(filled >= 0, filled, filled[last])
    row, time = row[taken], time[taken]
    at = time + 1 if backward else time - 1
    there = (at >= 0) & (at < lengths[row])
    step = np.where(there, position[row, np.clip(at, 0, size - 1)], 0)
    made = [each.astype(np.int32).reshape(tiles, lanes) for each in (row, time, step)]
    return RowTiles(made[0], made[1], made[2], position, base)
