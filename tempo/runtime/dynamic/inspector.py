"""The inspector: from the indices of a run to the order in which a recurrence may be made, a tile of points at a time.

Points are scheduled as Hu (1961, Parallel sequencing and assembly line problems) schedules tasks: those first that most
others wait for, one after another, each in the first tile that has room behind what it reads. Of trees and chains there
is no order in fewer tiles.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Parallelism:
    """Of points: how many read none, how many others there are, the *work*, and how many of these lie at most one after
    another of which each reads the one before, the *span*."""

    alone: int
    work: int
    span: int

    def base(self, lanes: int) -> int:
        """The tiles of the points that read none."""
        return -(-self.alone // lanes)

    def more(self, lanes: int) -> int:
        """The fewest tiles that the others may be in; of trees and rows as many as they are."""
        return max(self.span, -(-self.work // lanes))

    def tiles(self, lanes: int) -> int:
        return self.base(lanes) + self.more(lanes)


def parallelism(read: Array, first: int) -> Parallelism:
    """Of what `tiles` is given."""
    return Parallelism(first, len(read), int(_waiting(read, first).max(initial=0)))


def row_parallelism(lengths: Array, size: int, backward: bool) -> Parallelism:
    """Of what `row_tiles` is given."""
    chains = lengths - _alone(lengths, size, backward)
    return Parallelism(int(lengths.sum() - chains.sum()), int(chains.sum()), int(chains.max(initial=0)))


def _alone(lengths: Array, size: int, backward: bool) -> Array:
    """By row, whether the first point of it that is made reads none."""
    return (lengths == size) & (lengths > 0) if backward else lengths > 0


def tiles(read: Array, first: int, lanes: int, most: float) -> Tiles | None:
    """The points from 0 on, of which those from `first` on read the points of their row in `read`, all before them.

    None where it would take more than `most` tiles.
    """
    base, count = -(-first // lanes), len(read)
    rest = most - base
    if rest * lanes < count or _longest_run(read, first) > rest:
        return None
    waiting = _waiting(read, first)
    depth = int(waiting.max(initial=0))
    if depth > rest:
        return None
    placed = _Placed(first, count, base, lanes, depth)
    for points in np.split(np.argsort(-waiting, kind="stable"), np.cumsum(np.bincount(depth - waiting)))[:-1]:
        placed.put(points, read)
        if placed.tiles > rest:
            return None
    return placed.found()


def _waiting(read: Array, first: int) -> Array:
    """Of each point from `first` on, how many there are at most one after another of which each reads the one before,
    from it on."""
    found = [0] * (first + len(read))
    rows = zip(*read[::-1].T.tolist())  # a list for each would set off the collector of garbage
    for point, row in zip(range(len(found) - 1, first - 1, -1), rows):
        found[point] = behind = found[point] + 1
        for each in row:
            if found[each] < behind:
                found[each] = behind
    return np.array(found[first:], np.intp)


def _longest_run(read: Array, first: int) -> int:
    """How many points there are at most one after another of which each reads the one before: in a chain, all."""
    breaks = np.flatnonzero(~(read == np.arange(first - 1, first - 1 + len(read))[:, None]).any(axis=1))
    return int(np.diff(breaks, prepend=-1, append=len(read)).max()) - 1


class _Placed:
    """The points that have a place, in the tiles behind the first `base`; they are counted from `first`."""

    def __init__(self, first: int, count: int, base: int, lanes: int, depth: int) -> None:
        self.first, self.base, self.lanes = first, base, lanes
        self.tile = np.zeros(first + count, np.int32)
        self.tile[:first] = np.arange(first) // lanes
        self.lane = np.zeros(first + count, np.int32)
        self.lane[:first] = np.arange(first) % lanes
        self.tiles = 0
        # Graham (1966): nor does such an order ever take more.
        self.room = np.full(depth + -(-count // lanes), lanes)

    def put(self, points: Array, read: Array) -> None:
        """Points that do not wait for one another, each behind what it reads, where there is room first."""
        behind = np.maximum(self.tile[read[points]].max(axis=1) + 1 - self.base, 0)
        order = np.argsort(behind, kind="stable")
        points, behind = points[order], behind[order]
        free = np.cumsum(self.room) - self.room  # the number of free places in front of each tile
        nth = np.arange(len(points))
        place = np.maximum.accumulate(free[behind] - nth) + nth
        tile = np.searchsorted(free, place, side="right") - 1
        self.tile[self.first + points] = self.base + tile
        self.lane[self.first + points] = self.lanes - self.room[tile] + place - free[tile]
        self.room -= np.bincount(tile, minlength=len(self.room))
        self.tiles = max(self.tiles, int(tile[-1]) + 1)

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
    """The points of rows in as few tiles as there can be: in the first tiles what reads none, and then each row laid
    behind the one before, lane after lane, by McNaughton's wrap-around rule (1959, Scheduling with deadlines and loss
    functions). What goes beyond the last tile of a lane is made before, in the first ones of the next; no row has more
    points than there are tiles, so no two of its points share one.

    None where no point reads another.
    """
    rows = np.argsort(-lengths, kind="stable")
    counts = lengths[rows]
    if counts.max(initial=0) < 2:
        return None
    found, reads_none = row_parallelism(lengths, size, backward), _alone(counts, size, backward)
    alone, total, chains = found.alone, found.work, counts - reads_none
    base, more = max(1, found.base(lanes)), found.more(lanes)
    starts = np.cumsum(chains) - chains
    wrapped = np.maximum(starts % more + chains - more, 0)
    rank, at = np.repeat(np.arange(len(rows)), chains), np.arange(total) - np.repeat(starts, chains)
    is_wrapped = at < wrapped[rank]
    tile = np.where(is_wrapped, at, starts[rank] % more + at - wrapped[rank])
    behind = (base + tile) * lanes + starts[rank] // more + is_wrapped
    places = np.concatenate([np.arange(alone), behind])
    rank, depth = np.concatenate([np.flatnonzero(reads_none), rank]), np.concatenate([np.zeros(alone, int), at])
    depth[alone:] += reads_none[rank[alone:]]
    row, time = rows[rank], counts[rank] - 1 - depth if backward else depth
    tiles = base + more
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
