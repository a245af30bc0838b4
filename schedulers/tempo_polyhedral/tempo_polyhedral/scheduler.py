"""The scheduler: a problem to isl, and isl's order back as a tree."""

from __future__ import annotations

from collections.abc import Mapping

from tempo_greedy.scheduler import GreedyScheduler

from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence
from tempo_polyhedral.encode import encode
from tempo_polyhedral.isl import IslError, Settings, loops, schedule
from tempo_polyhedral.tidy import tidy

FUSING = Settings(whole_component=True, max_coefficient=1, max_constant=64)


class PolyhedralScheduler:
    """`schedule(problem)` returns the tree; where isl finds none, what the greedy scheduler says."""

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        try:
            return solve(problem, FUSING)
        except IslError:
            return GreedyScheduler().schedule(problem)


def solve(problem: SchedulingProblem, settings: Settings, separate: bool = False) -> ScheduleTree:
    if not problem.statements:
        return Sequence()
    given = encode(problem)
    before = [link.relation for link in given.links]
    near = [link.relation for link in given.links if link.closeness]
    order = schedule(given.parameters, given.context, given.domains, before, near, settings)
    names = {f"s{place}": statement.name for place, statement in enumerate(problem.statements)}
    return tidy(problem, _named(loops(order, separate), names))


def _named(tree: ScheduleTree, names: Mapping[str, str]) -> ScheduleTree:
    if isinstance(tree, Sequence):
        return Sequence(tuple(_named(item, names) for item in tree.items))
    if isinstance(tree, If):
        return If(tree.condition, _named(tree.body, names))
    if isinstance(tree, For):
        return For(tree.var, tree.lo, tree.hi, tree.direction, _named(tree.body, names))
    return Run(names[tree.statement], tree.point)
