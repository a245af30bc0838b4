"""The loops over a dim that stand behind one another, and which of them each node runs in at the earliest.

A recurrence and its gradient are two: forward, and backward with what the first has kept. What a node reads at its own
point, or a known number of points away, may be made in the same loop; what it reads otherwise (the sum over all points,
the last one) is there when the loop has ended. So are the values of a loop in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tempo.analysis.dependence.acyclic import Need
from tempo.analysis.dependence.levels import Direction, Level, LoopBody, least_delays
from tempo.errors import UnsupportedError
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Body = LoopBody[int, Need]


@dataclass(frozen=True)
class Loops:
    """`directions` of the loops in order; `of`: the number of that of each node; `carried`: the nodes on cycles.

    `ahead`: how many points further on in its direction each loop must be for some of its nodes, since others read
    these against the direction. `around`: the dims of loops around all of them.
    """

    dim: Symbol
    directions: tuple[Direction, ...]
    of: Mapping[int, int]
    carried: frozenset[int]
    ahead: tuple[int, ...]
    around: tuple[Symbol, ...]


def loops_of(graph: Graph, body: Body, dim: Symbol) -> Loops:
    """The loops over a dim in one body.

    Raises UnsupportedError where there are several, and one calls, or a cycle reads other than a few points away.
    """
    return _Assignment(graph, body, dim).loops()


@dataclass
class _Assignment:
    graph: Graph
    body: Body
    dim: Symbol
    directions: list[Direction | None] = field(default_factory=list)
    of: dict[int, int] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    carried: set[int] = field(default_factory=set)
    refused: UnsupportedError | None = None

    def __post_init__(self) -> None:
        self.into: dict[int, list[Need]] = {}
        for link in self.body.links:
            self.into.setdefault(link.target, []).append(link)

    def loops(self) -> Loops:
        for unit in self.body.units:
            self.place(unit)
        if len(self.directions) > 1 and self.refused is not None:
            raise self.refused
        directions = tuple(direction or "forward" for direction in self.directions)
        open_dims = {symbol for id in self.of for symbol in self.body.dims[id]}
        around = {symbol for id in self.of for symbol in self.graph.nodes[id].domain} - open_dims
        several = enumerate(directions if len(directions) > 1 else ())
        ahead = tuple(self.ahead(number, direction) for number, direction in several)
        return Loops(self.dim, directions, self.of, frozenset(self.carried), ahead, self.graph.canonical(around))

    def ahead(self, number: int, direction: Direction) -> int:
        members = [id for id, of in self.of.items() if of == number]
        links = (link for id in members for link in self.into.get(id, ()) if self.of.get(link.source) == number)
        delays = self.delays(members, links, direction)
        assert delays is not None, "there is a loop in this direction"
        return max(delays.values())

    def delays(self, members: list[int], links: Iterable[Need], direction: Direction) -> Mapping[int, int] | None:
        """By how many points each node has to come later than the foremost; None where no loop in this direction may
        hold them."""
        edges = []
        for link in links:
            distance = link.distance(self.dim)
            assert distance is not None, "both are over the dim"
            step = distance.along(direction).lo
            assert step is not None, "it is near"
            edges.append((link.source, link.target, step))
        return least_delays(members, edges)

    def place(self, unit: Level[int]) -> None:
        members = [id for id in unit.names if self.is_over(id)]
        links = [link for id in unit.names for link in self.into.get(id, ())]
        within = [link for link in links if link.source in unit.names]
        first = max((self.earliest(link) for link in links if link.source not in unit.names), default=0)
        is_loop = unit.loop is not None and unit.loop.dim == self.dim
        ways: list[Direction] = ["forward", "backward"]
        if is_loop and unit.loop is not None:
            ways = [unit.loop.direction]
        elif not all(self.is_near(link) for link in within):
            ways = []
        elif within:  # a loop over another dim carries them: over this one they may read both ways
            ways = [way for way in ways if self.delays(members, within, way) is not None]
        if not ways:
            members = []  # the points along the dim are not apart: they stay as they are
        if members:
            self.refused = self.refused or self.refusal(members, within)
            number = self.number(first, ways[0] if len(ways) == 1 else None)
            self.of.update(dict.fromkeys(members, number))
        if is_loop:
            self.carried.update(members)
        behind = max((self.of[id] + 1 for id in members), default=first)
        self.ready.update({id: behind for id in unit.names if id not in self.of})

    def is_over(self, id: int) -> bool:
        return self.dim in self.body.dims[id] and not self.graph.nodes[id].is_given

    def earliest(self, link: Need) -> int:
        """The first loop in which what a link needs can be read."""
        if link.source not in self.of:
            return self.ready.get(link.source, 0)
        return self.of[link.source] + (0 if self.is_over(link.target) and self.is_near(link) else 1)

    def is_near(self, link: Need) -> bool:
        """Whether it reads a known number of points away."""
        distance = link.distance(self.dim)
        return distance is not None and distance.lo is not None and distance.lo == distance.hi

    def number(self, first: int, direction: Direction | None) -> int:
        """The first loop from `first` on that goes in the direction, or in none yet."""
        while True:
            if first >= len(self.directions):
                self.directions += [None] * (first + 1 - len(self.directions))
            if direction is None:
                return first
            if self.directions[first] in (None, direction):
                self.directions[first] = direction
                return first
            first += 1

    def refusal(self, members: list[int], within: list[Need]) -> UnsupportedError | None:
        """Why a loop cannot be run again, if it cannot."""
        call = next((self.graph.nodes[id] for id in members if self.graph.nodes[id].is_call), None)
        if call is not None:
            what = "a backend call" if call.is_backend_call else "a call of the host"
            return UnsupportedError(
                f"recompute= names {self.dim.name!r}, and {call.name or call.op} is {what} at each of its points",
                location=call.location,
                hint="what calls cannot be computed again",
            )
        far = next((self.graph.nodes[link.target] for link in within if not self.is_near(link)), None)
        if far is None:
            return None
        return UnsupportedError(
            f"recompute= names {self.dim.name!r}, along which {far.name or far.op} reads more than a few points away",
            location=far.location,
            hint="what is computed again may read points that lie a known number of steps away",
        )


def bodies_with(found: list[Body], dim: Symbol) -> Iterator[Body]:
    """Those of the bodies of a program in which there is a loop over the dim."""
    return (body for body in found if any(unit.loop is not None and unit.loop.dim == dim for unit in body.units))
