"""Dependences as `tempo.schedule.levels` wants them: with distances, narrowed by the loops around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from tempo.schedule import Dependence, SchedulingProblem, Statement
from tempo.schedule.levels import Direction, Distance
from tempo.symbolic import Condition, Context, Symbol, var


@dataclass(frozen=True)
class Link:
    """One dependence, restricted to the instances of its target where `condition` holds.

    The condition grows with every loop: it keeps those whose source lies in the same iteration of all of them.
    """

    problem: SchedulingProblem
    dependence: Dependence
    condition: Condition

    @property
    def source(self) -> str:
        return self.dependence.source

    @property
    def target(self) -> str:
        return self.dependence.target

    def distance(self, dim: Symbol) -> Distance | None:
        """Bounds of (index of the target - index of the source) along `dim`, over all that the link still orders."""
        source = self._statement(self.source)
        if dim not in source.dims or dim not in self._statement(self.target).dims:
            return None
        interval = self.dependence.relation[source.dims.index(dim)]
        context = self._context()
        lo = context.constant_bounds(var(dim) - interval.hi)[0]
        hi = context.constant_bounds(var(dim) - interval.lo)[1]
        return Distance(lo, hi)

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Self | None:
        """What a loop over `dim` leaves of the link: the source is read in the same iteration.

        In it the target's own index is `delay` iterations behind the source's.
        """
        source = self._statement(self.source)
        interval = self.dependence.relation[source.dims.index(dim)]
        same = var(dim) + (delay if direction == "forward" else -delay)
        left = replace(self, condition=self.condition & same.ge(interval.lo) & same.le(interval.hi))
        return None if left.is_void() else left

    def is_void(self) -> bool:
        """Whether no instance is ordered by the link, at any size."""
        return self._context().infeasible()

    def _context(self) -> Context:
        """What holds at every point of the target that reads an instance of the source."""
        source, target = self._statement(self.source), self._statement(self.target)
        facts = [self.problem.facts, target.condition, self.condition]
        for (_, lo, hi), interval in zip(source.box.bounds, self.dependence.relation):
            facts += [interval.lo.lt(hi), interval.hi.ge(lo), interval.lo.le(interval.hi)]
        if all(interval.is_point for interval in self.dependence.relation):
            point = {dim: interval.lo for dim, interval in zip(source.dims, self.dependence.relation)}
            facts.append(source.condition.substitute(point))
        dims = [dim for dim in self.problem.dims if dim.symbol in target.dims]
        return Context.of(dims, *facts, box=target.box)

    def _statement(self, name: str) -> Statement:
        return self.problem.by_name[name]


def links_of(problem: SchedulingProblem) -> Iterator[Link]:
    """The dependences that order anything."""
    for dependence in problem.dependences:
        link = Link(problem, dependence, dependence.condition)
        if not link.is_void():
            yield link
