"""Levels: which dims have to be sequential, in which direction, and around what (Allen and Kennedy).

The algorithm works on an abstract dependence graph, to which the SDG and the scheduling problem both map: names with
dims, and links between them with a distance per dim. Strongly connected components of the links; within one, a dim
along which every link has a distance of one sign or zero, up to a constant delay per name, is sequential there; the
links that it carries are dropped, and the rest is looked at again inside. A dim that is never needed is parallel.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from tempo.sdg.components import strongly_connected
from tempo.symbolic import Symbol

Name = TypeVar("Name", bound=Hashable)
AnyName = TypeVar("AnyName", bound=Hashable, covariant=True)
Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")


@dataclass(frozen=True)
class Distance:
    """Inclusive bounds of (index of the target - index of the source) along a dim; None is unbounded."""

    lo: int | None
    hi: int | None

    def along(self, direction: Direction) -> Distance:
        """Counted in iterations of a loop in this direction: positive means that the source runs in an earlier one."""
        if direction == "forward":
            return self
        return Distance(None if self.hi is None else -self.hi, None if self.lo is None else -self.lo)

    def delayed(self, iterations: int) -> Distance:
        """After the target is moved by so many iterations relative to the source."""
        return Distance(
            None if self.lo is None else self.lo + iterations, None if self.hi is None else self.hi + iterations
        )


class Link(Protocol[AnyName]):
    """Instances of `target` run after instances of `source`."""

    @property
    def source(self) -> AnyName: ...
    @property
    def target(self) -> AnyName: ...

    def distance(self, dim: Symbol) -> Distance | None:
        """The distance along `dim`; None when source or target does not have it."""

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Self | None:
        """What is left of the link within one iteration of a loop over `dim` in which the target runs `delay`
        iterations later than the source; None when the loop carries all of it."""


AnyLink = TypeVar("AnyLink", bound=Link)  # type: ignore[type-arg]


@dataclass(frozen=True)
class LegalLoop(Generic[Name]):
    """A legal loop around a component: `delays[name]` iterations behind, the name's instance at its own index runs.

    `carries`: some link has its ends in different iterations, so the loop cannot be parallel.
    """

    dim: Symbol
    direction: Direction
    delays: Mapping[Name, int]
    carries: bool


@dataclass(frozen=True)
class Level(Generic[Name]):
    """One component. `loop` is None for a name without a cycle, and where no dim serves: then `stuck` has links."""

    names: tuple[Name, ...]
    loop: LegalLoop[Name] | None = None
    body: LoopBody[Name, Any] | None = None
    stuck: tuple[Any, ...] = ()

    @property
    def inner(self) -> tuple[Level[Name], ...]:
        return () if self.body is None else self.body.units


@dataclass(frozen=True)
class LoopBody(Generic[Name, AnyLink]):
    """The components inside the same loops, sources first, the dims that are not looped over yet, the links left."""

    units: tuple[Level[Name], ...]
    dims: Mapping[Name, tuple[Symbol, ...]]
    links: tuple[AnyLink, ...]


def levels(names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]) -> tuple[Level[Name], ...]:
    """The levels of a graph of names (with their dims, outermost first), sources before targets."""
    return _body(names, links).units


def blocks(names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]) -> list[LoopBody[Name, AnyLink]]:
    """The same seen from the inside: the bodies of all loops, inner ones before those around, and the whole last."""
    pending, found = [_body(names, links)], list[LoopBody[Name, AnyLink]]()
    while pending:
        found.append(pending.pop())
        pending += [level.body for level in found[-1].units if level.body is not None]
    return found[::-1]


def _body(names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]) -> LoopBody[Name, AnyLink]:
    units = (_level(members, names, inner) for members, inner in components(names, links))
    return LoopBody(tuple(units), names, tuple(links))


def _level(
    members: tuple[Name, ...], names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]
) -> Level[Name]:
    if not links:
        return Level(members)
    loop = next((found for found in loops(members, names, links) if found.carries), None)
    if loop is None:
        return Level(members, stuck=tuple(links))
    left = {name: tuple(dim for dim in names[name] if dim != loop.dim) for name in members}
    return Level(members, loop, _body(left, within(loop, links)))


def components(names: Iterable[Name], links: Sequence[AnyLink]) -> list[tuple[tuple[Name, ...], list[AnyLink]]]:
    """The strongly connected components with the links inside each; sources first, else in the order of `names`."""
    order = {name: position for position, name in enumerate(names)}
    successors: dict[Name, list[Name]] = {name: [] for name in order}
    for link in links:
        successors[link.source].append(link.target)
    found = [tuple(sorted(members, key=order.__getitem__)) for members in strongly_connected(order, successors)]
    number = {name: index for index, members in enumerate(found) for name in members}
    inner: list[list[AnyLink]] = [[] for _ in found]
    between: set[tuple[int, int]] = set()
    for link in links:
        ends = number[link.source], number[link.target]
        if ends[0] == ends[1]:
            inner[ends[0]].append(link)
        else:
            between.add(ends)
    ranked = topological([order[members[0]] for members in found], between)
    return [(found[index], inner[index]) for index in ranked]


def topological(ranks: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """The indices 0, 1, ... of an acyclic graph, ends of edges after their starts, else by rank."""
    following: list[list[int]] = [[] for _ in ranks]
    waiting = [0] * len(ranks)
    for start, end in edges:
        following[start].append(end)
        waiting[end] += 1
    ready = [(rank, index) for index, rank in enumerate(ranks) if not waiting[index]]
    heapq.heapify(ready)
    found = []
    while ready:
        _, index = heapq.heappop(ready)
        found.append(index)
        for end in following[index]:
            waiting[end] -= 1
            if not waiting[end]:
                heapq.heappush(ready, (ranks[end], end))
    return found


def loops(
    members: Sequence[Name], names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]
) -> Iterator[LegalLoop[Name]]:
    """Every legal loop around a component, dims in the order of its first name's."""
    shared = set(names[members[0]]).intersection(*(names[name] for name in members))
    for dim in (dim for dim in names[members[0]] if dim in shared):
        for direction in DIRECTIONS:
            loop = loop_over(members, links, dim, direction)
            if loop is not None:
                yield loop


def loop_over(
    members: Sequence[Name], links: Sequence[AnyLink], dim: Symbol, direction: Direction
) -> LegalLoop[Name] | None:
    """The loop over `dim` with the least delays under which no link goes to a later iteration; None: there is none."""
    edges: list[tuple[Name, Name, int]] = []
    reaches: list[tuple[Name, Name, int | None]] = []
    for link in links:
        plain = link.distance(dim)
        distance = plain.along(direction) if plain is not None else None
        if distance is None or distance.lo is None:
            return None
        edges.append((link.source, link.target, distance.lo))
        reaches.append((link.source, link.target, distance.hi))
    delays = least_delays(members, edges)
    if delays is None:
        return None
    carries = any(hi is None or hi + delays[target] > delays[source] for source, target, hi in reaches)
    return LegalLoop(dim, direction, delays, carries)


def least_delays(members: Sequence[Name], edges: Sequence[tuple[Name, Name, int]]) -> dict[Name, int] | None:
    """The least delays >= 0 with `delay[target] + distance >= delay[source]` on every edge; None: there are none.

    Longest paths by Bellman and Ford. A simple path enters each name once, so a delay above the sum of what each name
    could be pushed by at most comes from a cycle whose distances sum to less than zero.
    """
    if any(source == target and distance < 0 for source, target, distance in edges):
        return None
    pushes: dict[Name, list[tuple[Name, int]]] = {}
    most: dict[Name, int] = {}
    for source, target, distance in edges:
        pushes.setdefault(source, []).append((target, distance))
        most[target] = max(most.get(target, 0), -distance)
    limit = sum(most.values())
    delays = dict.fromkeys(members, 0)
    pending = deque(source for source, _, distance in edges if distance < 0)
    queued = set(pending)
    while pending:
        source = pending.popleft()
        queued.discard(source)
        for target, distance in pushes.get(source, ()):
            if delays[target] >= delays[source] - distance:
                continue
            delays[target] = delays[source] - distance
            if delays[target] > limit:
                return None
            if target not in queued:
                queued.add(target)
                pending.append(target)
    return delays


def within(loop: LegalLoop[Name], links: Iterable[AnyLink]) -> list[AnyLink]:
    """What is left of the links inside one iteration of the loop."""
    left = (
        link.narrowed(loop.dim, loop.direction, loop.delays[link.target] - loop.delays[link.source]) for link in links
    )
    return [link for link in left if link is not None]
