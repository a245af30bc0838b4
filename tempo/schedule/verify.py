"""Whether a schedule tree is right: executed on known sizes, without the statements' work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo.errors import ScheduleError, SizeError
from tempo.schedule.execution import Array, Executions, Sizes, execute
from tempo.schedule.problem import Dependence, SchedulingProblem, Statement
from tempo.schedule.ranges import box_maxima
from tempo.schedule.tree import ScheduleTree
from tempo.symbolic import Symbol

_NEVER = -1


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
