"""The executions of a tree at known sizes, each with its place in the order, vectorised over the loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo.errors import ScheduleError
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Condition, Expr, Symbol

Array = np.ndarray[Any, Any]
Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Executions:
    """All executions of one `Run` of the tree: their points, an array per dim, and their ranks in the whole order."""

    run: Run
    points: tuple[Array, ...]
    ranks: Array


@dataclass(frozen=True)
class _PlacedPoints:
    """All executions of one place in the tree, an entry each: the loops' variables, and the keys that order them.

    Keys are, from outside in, the places in the sequences and the iterations of the loops around.
    """

    count: int
    env: Mapping[Symbol, Array]
    keys: tuple[Array, ...]

    def where(self, kept: Array) -> _PlacedPoints:
        env = {symbol: values[kept] for symbol, values in self.env.items()}
        return _PlacedPoints(int(np.count_nonzero(kept)), env, tuple(key[kept] for key in self.keys))


def execute(tree: ScheduleTree, sizes: Sizes) -> list[Executions]:
    """Every execution of every `Run`; ScheduleError where the tree uses a variable that no loop around it has."""
    found = list(_execute(tree, _PlacedPoints(1, {}, ()), sizes))
    ranks = _ranks([frame.keys for _, _, frame in found], [frame.count for _, _, frame in found])
    return [Executions(run, points, rank) for (run, points, _), rank in zip(found, ranks)]


def _execute(
    tree: ScheduleTree, frame: _PlacedPoints, sizes: Sizes
) -> Iterator[tuple[Run, tuple[Array, ...], _PlacedPoints]]:
    if not frame.count:
        return
    if isinstance(tree, Sequence):
        for place, item in enumerate(tree.items):
            here = np.full(frame.count, place)
            yield from _execute(item, _PlacedPoints(frame.count, frame.env, (*frame.keys, here)), sizes)
    elif isinstance(tree, For):
        yield from _execute(tree.body, _iterations(tree, frame, sizes), sizes)
    elif isinstance(tree, If):
        yield from _execute(tree.body, frame.where(_evaluate(tree.condition, frame, sizes).astype(bool)), sizes)
    else:
        yield tree, tuple(_evaluate(index, frame, sizes) for index in tree.point), frame


def _evaluate(value: Expr | Condition, frame: _PlacedPoints, sizes: Sizes) -> Array:
    missing = [symbol for symbol in value.symbols() if symbol not in frame.env and symbol not in sizes]
    if missing:
        raise ScheduleError(f"the schedule uses {missing[0]} in `{value}`, where no loop around it has it")
    return np.broadcast_to(np.asarray(value.evaluate({**sizes, **frame.env})), (frame.count,))


def _iterations(loop: For, frame: _PlacedPoints, sizes: Sizes) -> _PlacedPoints:
    lo, hi = _evaluate(loop.lo, frame, sizes), _evaluate(loop.hi, frame, sizes)
    lengths = np.maximum(hi - lo, 0)
    total = int(lengths.sum())
    firsts = np.cumsum(lengths) - lengths
    values = np.arange(total) - np.repeat(firsts - lo, lengths)
    env = {symbol: np.repeat(outer, lengths) for symbol, outer in frame.env.items()}
    keys = tuple(np.repeat(key, lengths) for key in frame.keys)
    step = values if loop.direction == "forward" else -values
    return _PlacedPoints(total, {**env, loop.var: values}, (*keys, step))


def _ranks(keys: list[tuple[Array, ...]], counts: list[int]) -> list[Array]:
    """Positions in the lexicographic order of the keys, the shorter filled up with zeros: no two keys are equal."""
    if not keys:
        return []
    columns = np.zeros((max(map(len, keys)) + 1, sum(counts)), np.int64)  # one more: lexsort needs a column
    ends = np.cumsum(counts)
    for end, count, own in zip(ends, counts, keys):
        for column, key in zip(columns, own):
            column[end - count : end] = key
    ranks = np.empty(columns.shape[1], np.int64)
    ranks[np.lexsort(columns[::-1])] = np.arange(columns.shape[1])
    return np.split(ranks, ends[:-1])
