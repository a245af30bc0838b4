"""Which components share a loop: typed fusion, greedy, with constant delays where they make it legal.

Components are placed one by one, producers first. A component joins the loop of a producer that it reads the most
bytes from; else a loop of its kind that it has nothing to do with, for a later reader may want both; else it opens
one. A loop with host statements is joined by others only for the data that they read there: it cannot be compiled
as a whole. The loop over a dim that the caller steps through is joined by all that may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tempo.schedule import SchedulingProblem
from tempo.schedule.levels import Direction, LegalLoop, topological
from tempo.symbolic import Symbol
from tempo_greedy.items import Item
from tempo_greedy.links import ActiveLink
from tempo_greedy.order import Order

_SIBLINGS_TRIED = 8  # bounds the search, so that placing stays linear

Kind = tuple[Symbol, Direction]


@dataclass
class Group:
    """Components that share a loop over `kind`; `delays[s]` iterations late, the instance at its own index runs.

    `kind` is None for a statement all of whose dims have loops.
    """

    kind: Kind | None
    host: bool
    delays: dict[int, int] = field(default_factory=dict)

    @property
    def members(self) -> list[int]:
        return sorted(self.delays)


def fuse(problem: SchedulingProblem, items: Sequence[Item], links: Sequence[ActiveLink]) -> list[Group]:
    """The loops of a level, in an order that the links allow, else in the order of the problem."""
    fusion = _Fusion(problem, items, links)
    for number, item in enumerate(items):
        fusion.place(number, item)
    return fusion.ordered()


class _Fusion:
    """The state of placing the components of one level."""

    def __init__(self, problem: SchedulingProblem, items: Sequence[Item], links: Sequence[ActiveLink]) -> None:
        self.problem = problem
        self.item_of = {member: number for number, item in enumerate(items) for member in item.members}
        self.reads: list[list[ActiveLink]] = [[] for _ in items]
        self.readers: list[list[ActiveLink]] = [[] for _ in items]
        for link in links:
            source, target = self.item_of[link.source], self.item_of[link.target]
            if source != target:
                self.reads[target].append(link)
                self.readers[source].append(link)
        self.preferred = self._preferences(items)
        self.groups: list[Group] = []
        self.order = Order()
        self.group_of: dict[int, int] = {}
        self.siblings: dict[tuple[Kind, bool], list[int]] = {}

    def _preferences(self, items: Sequence[Item]) -> list[LegalLoop[int] | None]:
        """For each component the loop that most of its readers would share with it, readers first."""
        found: list[LegalLoop[int] | None] = [None] * len(items)
        for number in reversed(range(len(items))):
            item = items[number]
            votes = dict.fromkeys(range(len(item.options)), 0)
            for link in self.readers[number] if len(item.options) > 1 else ():
                wanted = found[self.item_of[link.target]]
                option = self._shared_option(item, link, wanted)
                if option is not None:
                    votes[option] += 1
            # max keeps the first of equals: the option that the component itself prefers
            found[number] = item.options[max(votes, key=votes.__getitem__)] if votes else None
        return found

    def _shared_option(self, item: Item, link: ActiveLink, wanted: LegalLoop[int] | None) -> int | None:
        if wanted is None or not link.carries_data:
            return None
        distance = link.distance(wanted.dim)
        if distance is None or distance.along(wanted.direction).lo is None:
            return None
        kinds = [(loop.dim, loop.direction) for loop in item.options]
        kind = (wanted.dim, wanted.direction)
        return kinds.index(kind) if kind in kinds else None

    def place(self, number: int, item: Item) -> None:
        sources: dict[int, list[ActiveLink]] = {}
        for link in self.reads[number]:
            sources.setdefault(self.group_of[link.source], []).append(link)
        for group in self._candidates(number, item, sources):
            delay = self._joining_delay(group, item, sources)
            if delay is not None:
                self._join(group, number, item, delay, sources)
                return
        self._join(self._open(number, item), number, item, 0, sources)

    def _candidates(self, number: int, item: Item, sources: Mapping[int, list[ActiveLink]]) -> list[int]:
        """Groups to try: those of producers by the bytes read from them, then the latest of the same kind."""
        gains = {group: self._gain(links) for group, links in sources.items()}
        producers = sorted((group for group in gains if gains[group]), key=lambda group: (-gains[group], -group))
        loop = self.preferred[number]
        if loop is None:
            return producers
        siblings = self.siblings.get(self._siblings_key((loop.dim, loop.direction), item.host), [])
        return [*producers, *(group for group in siblings[-_SIBLINGS_TRIED:][::-1] if group not in producers)]

    def _siblings_key(self, kind: Kind, host: bool) -> tuple[Kind, bool]:
        """A dim that the caller steps through has one loop, with what the host does at each step."""
        return kind, host and kind[0] != self.problem.outermost

    def _gain(self, links: Sequence[ActiveLink]) -> float:
        """Bytes per point that are read while they are fresh; at least 1 where any data is read at all."""
        sources = {link.source for link in links if link.carries_data}
        return sum(max(self.problem.statements[source].bytes, 1.0) for source in sources)

    def _joining_delay(self, group: int, item: Item, sources: Mapping[int, list[ActiveLink]]) -> int | None:
        """How far behind the item has to run in the group's loop; None where it cannot join."""
        kind = self.groups[group].kind
        option = item.option(*kind) if kind is not None else None
        if option is None or self.order.leads_to(group, sources):
            return None
        needed = 0
        for link in sources.get(group, ()):
            plain = link.distance(option.dim)
            distance = plain.along(option.direction) if plain is not None else None
            if distance is None or distance.lo is None:
                return None
            needed = max(needed, self.groups[group].delays[link.source] - option.delays[link.target] - distance.lo)
        return needed

    def _open(self, number: int, item: Item) -> int:
        loop = self.preferred[number]
        kind = (loop.dim, loop.direction) if loop is not None else None
        self.groups.append(Group(kind, item.host))
        group = self.order.add()
        if kind is not None:
            self.siblings.setdefault(self._siblings_key(kind, item.host), []).append(group)
        return group

    def _join(self, group: int, number: int, item: Item, delay: int, sources: Mapping[int, list[ActiveLink]]) -> None:
        joined = self.groups[group]
        option = item.option(*joined.kind) if joined.kind is not None else None
        for member in item.members:
            joined.delays[member] = delay + (option.delays[member] if option is not None else 0)
            self.group_of[member] = group
        joined.host = joined.host or item.host
        for source in sources:
            if source != group:
                self.order.connect(source, group)

    def ordered(self) -> list[Group]:
        ranks = [min(group.delays) for group in self.groups]
        return [self.groups[index] for index in topological(ranks, self.order.edges())]
