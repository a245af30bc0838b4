"""Dependences as the scheduler works on them: between statements by number, with distances, narrowed by outer loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tempo.schedule import Dependence, Interval, SchedulingProblem, Statement
from tempo.schedule.levels import Direction, Distance
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol, var


@dataclass(frozen=True)
class Ends:
    """What all narrowings of one dependence share."""

    problem: SchedulingProblem
    dependence: Dependence
    source: Statement
    target: Statement
    relation: Mapping[Symbol, Interval]
    known: dict[tuple[object, ...], Distance] = field(compare=False, repr=False)
    """Distances found so far in the problem: many dependences are alike but for the names."""


@dataclass(frozen=True)
class ActiveLink:
    """A dependence, restricted to the instances that the loops chosen so far leave unordered (`condition`)."""

    source: int
    target: int
    ends: Ends
    condition: Condition
    _distances: dict[Symbol, Distance] = field(default_factory=dict, compare=False, repr=False)

    @property
    def dependence(self) -> Dependence:
        return self.ends.dependence

    @property
    def carries_data(self) -> bool:
        return self.dependence.kind == "data"

    def distance(self, dim: Symbol) -> Distance | None:
        """See `tempo.schedule.levels.Link`."""
        if dim not in self.ends.relation or dim not in self.ends.target.dims:
            return None
        if dim not in self._distances:
            self._distances[dim] = self._distance(dim, self.ends.relation[dim])
        return self._distances[dim]

    def _distance(self, dim: Symbol, interval: Interval) -> Distance:
        nearest, farthest = var(dim) - interval.hi, var(dim) - interval.lo
        if nearest.is_const and farthest.is_const:
            return Distance(nearest.const, farthest.const)
        source, target = self.ends.source, self.ends.target
        likeness = (source.box, source.condition, target.box, target.condition, self.condition)
        key = (dim, *self.ends.dependence.relation, *likeness)
        if key not in self.ends.known:
            self.ends.known[key] = self._bounded(dim, nearest, farthest)
        return self.ends.known[key]

    def _bounded(self, dim: Symbol, nearest: Expr, farthest: Expr) -> Distance:
        """The bounds over all instances that the link orders; that the source has its points only in its box helps."""
        context, box = self._context(), self.ends.source.box
        lows = context.constant_bounds(nearest)[0], context.constant_bounds(var(dim) - box.hi(dim) + 1)[0]
        highs = context.constant_bounds(farthest)[1], context.constant_bounds(var(dim) - box.lo(dim))[1]
        lo = max((bound for bound in lows if bound is not None), default=None)
        hi = min((bound for bound in highs if bound is not None), default=None)
        # Bounds that cross mean that no instance is constrained; any distance is right then.
        return Distance(lo, max(lo, hi) if lo is not None and hi is not None else hi)

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Self | None:
        """See `tempo.schedule.levels.Link`."""
        plain = self.distance(dim)
        assert plain is not None
        distance = plain.along(direction).delayed(delay)
        if distance.lo is not None and distance.lo > 0:
            return None
        if distance.hi == 0:
            return self
        # The source's index in the same iteration: with a delay the target's own index is behind.
        same = var(dim) + (delay if direction == "forward" else -delay)
        interval = self.ends.relation[dim]
        left = same.ge(interval.lo) & same.le(interval.hi)
        return replace(self, condition=self.condition & left, _distances={})

    def is_void(self) -> bool:
        """Whether it is proven that the link constrains no instances at any size."""
        return self._context().infeasible()

    def _context(self) -> Context:
        """What holds at every point of the target that reads an instance of the source."""
        source, target, problem = self.ends.source, self.ends.target, self.ends.problem
        facts = [problem.facts, target.condition, self.condition]
        for dim, lo, hi in source.box.bounds:
            interval = self.ends.relation[dim]
            facts += [interval.lo.lt(hi), interval.hi.ge(lo), interval.lo.le(interval.hi)]
        if all(interval.is_point for interval in self.ends.relation.values()):
            facts.append(source.condition.substitute({dim: i.lo for dim, i in self.ends.relation.items()}))
        dims = [dim for dim in problem.dims if dim.symbol in target.dims]
        return Context.of(dims, *(fact for fact in facts if fact != TRUE), box=target.box)


def active_links(problem: SchedulingProblem) -> list[ActiveLink]:
    """The dependences of the problem, statements by their position in it."""
    position = {statement.name: index for index, statement in enumerate(problem.statements)}
    known: dict[tuple[object, ...], Distance] = {}
    links = []
    for dependence in problem.dependences:
        source, target = problem.by_name[dependence.source], problem.by_name[dependence.target]
        relation = dict(zip(source.dims, dependence.relation, strict=True))
        ends = Ends(problem, dependence, source, target, relation, known)
        links.append(ActiveLink(position[source.name], position[target.name], ends, dependence.condition))
    return links
