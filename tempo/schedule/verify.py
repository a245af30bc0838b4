"""Whether a schedule tree is right: executed on known sizes, without the statements' work.

All executions get their places in the order, vectorised over the loops; then each must come after the latest of what it
depends on, a box of the points of another statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tempo.errors import ScheduleError, SizeError
from tempo.schedule.problem import Dependence, SchedulingProblem, Statement
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Condition, Expr, Symbol

Array = np.ndarray[Any, Any]
Sizes = Mapping[Symbol, int]
_NEVER = -1


# -- executions ----------------------------------------------------------------------------------------------------


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


# -- the greatest element of many boxes ------------------------------------------------------------------------------


def box_maxima(values: Array, lows: list[Array], highs: list[Array], empty: int) -> Array:
    """For each k the maximum of `values[lows[0][k]:highs[0][k], lows[1][k]:highs[1][k], ...]`, `empty` where that is
    empty. Bounds lie within the array.

    Axes along which all boxes are alike are folded at once. Of the others one, that with the widest boxes, is looked
    up in a table of maxima over powers of two, and the rest are walked.
    """
    count = len(lows[0])
    if not count:
        return np.full(count, empty, np.int64)
    lows, highs = list(lows), list(highs)
    for axis in reversed(range(values.ndim)):
        if values.ndim > 1 and np.ptp(lows[axis]) == np.ptp(highs[axis]) == 0:
            inside = np.arange(values.shape[axis])[lows.pop(axis)[0] : highs.pop(axis)[0]]
            values = values.take(inside, axis).max(axis, initial=empty)
    return _varying_maxima(values, lows, highs, empty)


def _varying_maxima(values: Array, lows: list[Array], highs: list[Array], empty: int) -> Array:
    widths = [np.maximum(hi - lo, 0) for lo, hi in zip(lows, highs)]
    widest = [int(width.max()) for width in widths]
    axis = max(range(len(widest)), key=widest.__getitem__)
    others = [k for k in range(values.ndim) if k != axis]
    tables = list(_tables(np.moveaxis(values, axis, 0), widest[axis]))
    levels = np.frexp(np.maximum(widths[axis], 1))[1] - 1  # the greatest e with 2**e <= width
    nonempty = np.all([width > 0 for width in widths], axis=0)
    found = np.full(len(lows[0]), empty, np.int64)
    for steps in product(*(range(widest[k]) for k in others)):
        inside = nonempty & np.all([step < widths[k] for k, step in zip(others, steps)], axis=0)
        for level, table in enumerate(tables):
            here = inside & (levels == level)
            where = tuple(lows[k][here] + step for k, step in zip(others, steps))
            start, last = lows[axis][here], highs[axis][here] - (1 << level)
            best = np.maximum(table[(start, *where)], table[(last, *where)])
            found[here] = np.maximum(found[here], best)
    return found


def _tables(values: Array, width: int) -> Iterator[Array]:
    """`tables[e][i]` is the maximum of `values[i:i + 2**e]`, for all e with `2**e <= width`."""
    span = 1
    while span <= width:
        yield values
        values = np.maximum(values[:-span], values[span:]) if span < len(values) else values
        span *= 2


# -- the order -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PointTimes:
    """When every point of a statement runs: an array over its dims, `_NEVER` where there is no instance."""

    statement: Statement
    ranks: Array

    def instance(self, at: Iterable[int]) -> str:
        return f"{self.statement.name}({', '.join(str(int(index)) for index in at)})"


def verify(problem: SchedulingProblem, tree: ScheduleTree, sizes: Sizes) -> None:
    """Raise ScheduleError unless each instance of each statement runs exactly once, after all that it depends on.

    `sizes` has every size symbol of the problem; SizeError when they contradict its facts.
    """
    if not problem.facts.evaluate(sizes):
        given = ", ".join(f"{symbol} = {value}" for symbol, value in sizes.items())
        raise SizeError(f"the sizes {given} contradict what the problem says of them: {problem.facts}")
    executions: dict[str, list[Executions]] = {statement.name: [] for statement in problem.statements}
    for found in execute(tree, sizes):
        if found.run.statement not in executions:
            raise ScheduleError(f"the schedule runs {found.run}, but the problem has no such statement")
        executions[found.run.statement].append(found)
    orders = {name: _order(problem, problem.by_name[name], found, sizes) for name, found in executions.items()}
    for dependence in problem.dependences:
        _check_dependence(problem, dependence, orders, sizes)


def _order(problem: SchedulingProblem, statement: Statement, found: list[Executions], sizes: Sizes) -> _PointTimes:
    """The ranks of a statement's instances; ScheduleError unless each runs once, and nothing else does."""
    shape = tuple(int(problem.dim(dim).size.evaluate(sizes)) for dim in statement.dims)
    order = _PointTimes(statement, np.full(shape, _NEVER, np.int64))
    runs = np.zeros(shape, np.int64)
    for executions in found:
        flat = _flat_points(order, executions)
        np.add.at(runs.reshape(-1), flat, 1)
        order.ranks.reshape(-1)[flat] = executions.ranks
    expected = _instances(statement, shape, sizes)
    for wrong, how in (
        (expected & (runs == 0), "never runs"),
        (runs > 1, "runs more than once"),
        (~expected & (runs > 0), "runs, but the problem has no such instance"),
    ):
        if wrong.any():
            raise ScheduleError(f"{order.instance(np.argwhere(wrong)[0])} {how}")
    return order


def _flat_points(order: _PointTimes, executions: Executions) -> Array:
    shape = order.ranks.shape
    if len(executions.points) != len(shape):
        raise ScheduleError(f"the schedule runs {executions.run}, but {order.statement.name} has {len(shape)} dims")
    inside = np.ones(len(executions.ranks), bool)
    for index, extent in zip(executions.points, shape):
        inside &= (index >= 0) & (index < extent)
    if not inside.all():
        at = int(np.argmin(inside))
        raise ScheduleError(f"{order.instance(p[at] for p in executions.points)} runs, which is outside of its domain")
    if not shape:
        return np.zeros(len(executions.ranks), np.int64)
    return np.ravel_multi_index(executions.points, shape)


def _instances(statement: Statement, shape: tuple[int, ...], sizes: Sizes) -> Array:
    """Where in its domain the statement has instances."""
    points = dict(zip(statement.dims, np.indices(shape, sparse=True)))
    env = {**sizes, **points}
    wanted = np.broadcast_to(np.asarray(statement.condition.evaluate(env)), shape).astype(bool)
    for dim, lo, hi in statement.box.bounds:
        wanted = wanted & (points[dim] >= lo.evaluate(env)) & (points[dim] < hi.evaluate(env))
    return wanted


def _check_dependence(
    problem: SchedulingProblem, dependence: Dependence, orders: Mapping[str, _PointTimes], sizes: Sizes
) -> None:
    source, target = orders[dependence.source], orders[dependence.target]
    points = np.nonzero(target.ranks != _NEVER) if target.ranks.ndim else ()
    count = len(points[0]) if points else int(target.ranks != _NEVER)
    env = {**sizes, **dict(zip(target.statement.dims, points))}
    holds = np.broadcast_to(np.asarray(dependence.condition.evaluate(env)), (count,)).astype(bool)
    env = {**sizes, **dict(zip(target.statement.dims, (index[holds] for index in points)))}
    lows, highs = _read(dependence, source, env, int(holds.sum()))
    own = (target.ranks[points] if points else target.ranks.reshape(-1)[:count])[holds]
    last = box_maxima(source.ranks, lows, highs, _NEVER) if lows else np.full(len(own), source.ranks.item())
    if np.all(last < own):
        return
    at = int(np.argmax(last >= own))
    early = _where_rank(source, last[at])
    late = [index[holds][at] for index in points]
    raise ScheduleError(
        f"{target.instance(late)} runs before {source.instance(early)}, which it depends on:"
        f" {problem.describe(dependence)}"
        if last[at] > own[at]
        else f"{target.instance(late)} depends on itself: {problem.describe(dependence)}"
    )


def _read(
    dependence: Dependence, source: _PointTimes, env: Mapping[Symbol, Any], count: int
) -> tuple[list[Array], list[Array]]:
    """The half-open bounds, within the source's domain, of what each instance depends on."""
    lows, highs = [], []
    for interval, extent in zip(dependence.relation, source.ranks.shape, strict=True):
        lo, hi = (np.broadcast_to(np.asarray(e.evaluate(env)), (count,)) for e in (interval.lo, interval.hi))
        lows.append(np.clip(lo, 0, extent))
        highs.append(np.clip(hi + 1, 0, extent))
    return lows, highs


def _where_rank(order: _PointTimes, rank: int) -> Array:
    at: Array = np.argwhere(order.ranks == rank)[0]
    return at
