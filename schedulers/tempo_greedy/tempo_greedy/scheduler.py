"""The recursion: the components of a level, the loops around them, and the same again inside each loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo.schedule import For, Run, ScheduleTree, SchedulingProblem
from tempo.schedule.levels import LegalLoop, within
from tempo.symbolic import Context, Symbol, var
from tempo_greedy.delays import shortened
from tempo_greedy.emit import Guards, Placed, guarded, hoist, hull
from tempo_greedy.fusion import Group, fuse
from tempo_greedy.items import items_of
from tempo_greedy.links import ActiveLink, active_links


class GreedyScheduler:
    """`schedule(problem)` returns the tree; `UnsupportedError` where the order needs more than loops with delays."""

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        everything = {index: Placed.of(statement) for index, statement in enumerate(problem.statements)}
        context = Context.of((), problem.facts)
        return _level(problem, everything, active_links(problem), context)


def _level(
    problem: SchedulingProblem, placed: Mapping[int, Placed], links: Sequence[ActiveLink], context: Context
) -> ScheduleTree:
    """The tree of statements under the same loops, `links` being what those leave unordered."""
    dims = {index: _open_dims(member) for index, member in placed.items()}
    items, links = items_of(problem, dims, links)
    groups = fuse(problem, items, links)
    number = {member: index for index, group in enumerate(groups) for member in group.delays}
    inner: list[list[ActiveLink]] = [[] for _ in groups]
    outer: set[int] = set()  # statements whose values are read outside of their group
    for link in links:
        if number[link.source] == number[link.target]:
            inner[number[link.source]].append(link)
        elif link.carries_data:
            outer.add(link.source)
    return guarded([_group(problem, group, placed, inner[index], outer, context) for index, group in enumerate(groups)])


def _open_dims(member: Placed) -> tuple[Symbol, ...]:
    looped = {dim for dim, _ in member.point}
    return tuple(dim for dim in member.statement.dims if dim not in looped)


def _group(
    problem: SchedulingProblem,
    group: Group,
    placed: Mapping[int, Placed],
    links: Sequence[ActiveLink],
    outer: set[int],
    context: Context,
) -> tuple[Guards, ScheduleTree]:
    """The guards in front of the group's loop (or statement), and the loop."""
    names = group.members
    guards, members = hoist([placed[name] for name in names], context)
    if group.kind is None:
        statement = members[0].statement
        return guards, Run(statement.name, tuple(members[0].index(dim) for dim in statement.dims))
    context = context.assume(*guards)
    dim, direction = group.kind
    delays = shortened(problem, group, links, outer)
    behind = [delays[name] if direction == "forward" else -delays[name] for name in names]
    lo, hi = hull(members, dim, behind, context)
    body_context = context.assume(var(dim).ge(lo), var(dim).lt(hi))
    body = {name: member.in_loop(dim, shift, lo, hi) for name, member, shift in zip(names, members, behind)}
    left = within(LegalLoop(dim, direction, delays, True), links)
    return guards, For(dim, lo, hi, direction, _level(problem, body, left, body_context))
