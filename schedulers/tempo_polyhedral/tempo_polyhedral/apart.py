"""What needs no common order: statements before and after all loops, and groups that no dependence connects.

isl's effort grows faster than the problem, and what shares no dependence gains nothing from one loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo.schedule import Dependence, Run, ScheduleTree, SchedulingProblem, sequence
from tempo.symbolic import TRUE


@dataclass(frozen=True)
class Apart:
    """`first` and `last` have no dims: they run before, or after, all that does. `groups` run in any order."""

    first: tuple[str, ...]
    groups: tuple[SchedulingProblem, ...]
    last: tuple[str, ...]

    @staticmethod
    def of(problem: SchedulingProblem) -> Apart:
        single = {each.name for each in problem.statements if not each.dims and each.condition == TRUE}
        sources: dict[str, set[str]] = defaultdict(set)
        readers: dict[str, set[str]] = defaultdict(set)
        for each in problem.dependences:
            sources[each.target].add(each.source)
            readers[each.source].add(each.target)
        first = _closed(single, sources, readers)
        last = _closed(single - first.keys(), readers, sources)
        kept = dict.fromkeys(
            each.name for each in problem.statements if each.name not in first and each.name not in last
        )
        near = {name: sorted((sources[name] | readers[name]) & kept.keys()) for name in kept}
        groups = tuple(_part(problem, group) for group in _connected(near))
        return Apart(tuple(first), groups, tuple(last)[::-1])

    def tree(self, groups: list[ScheduleTree]) -> ScheduleTree:
        """The tree of the whole problem, from those of the groups."""
        return sequence([*map(Run, self.first), *groups, *map(Run, self.last)])


def _closed(wanted: set[str], needs: Mapping[str, set[str]], needed: Mapping[str, set[str]]) -> dict[str, None]:
    """Those of `wanted` that need nothing but such, what is needed first."""
    found: dict[str, None] = {}
    pending = sorted(wanted, reverse=True)
    while pending:
        name = pending.pop()
        if name in wanted and name not in found and found.keys() >= needs.get(name, set()):
            found[name] = None
            pending += sorted(needed.get(name, ()), reverse=True)
    return found


def _connected(near: Mapping[str, Sequence[str]]) -> Iterator[set[str]]:
    seen: set[str] = set()
    for first in near:
        if first in seen:
            continue
        group, pending = {first}, [first]
        while pending:
            fresh = set(near[pending.pop()]) - group
            group |= fresh
            pending += fresh
        seen |= group
        yield group


def _part(problem: SchedulingProblem, names: set[str]) -> SchedulingProblem:
    def within(each: Dependence) -> bool:
        return each.source in names and each.target in names

    statements = tuple(each for each in problem.statements if each.name in names)
    return replace(problem, statements=statements, dependences=tuple(filter(within, problem.dependences)))
