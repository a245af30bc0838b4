"""Delays that shorten the way from producers to consumers, within a loop that already is legal.

A value of which every reader shares the loop is kept for as many iterations as its farthest reader is behind. Moving a
statement later keeps what it reads for longer and what it writes for shorter; it moves when that needs fewer bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo.schedule import SchedulingProblem, Statement
from tempo.symbolic import Symbol
from tempo_greedy.fusion import Group
from tempo_greedy.links import ActiveLink

_UNKNOWN_SIZE = 64  # what a size that is no number counts as; only magnitudes are compared
_SWEEPS = 2
_READERS_WEIGHED = 32  # a value with more readers stays where it is, so that a sweep is linear

Edge = tuple[int, int, int, int | None, bool]  # source, target, least and greatest distance, whether it is data


def shortened(
    problem: SchedulingProblem, group: Group, links: Sequence[ActiveLink], outer: set[int]
) -> Mapping[int, int]:
    """The delays of the group's statements after every move that saves bytes; `outer` are read outside of the group."""
    if not any(group.delays.values()):
        return group.delays
    assert group.kind is not None
    return _Moves(problem, group, [_edge(link, group) for link in links], outer).made()


def _edge(link: ActiveLink, group: Group) -> Edge:
    assert group.kind is not None
    dim, direction = group.kind
    plain = link.distance(dim)
    assert plain is not None
    distance = plain.along(direction)
    assert distance.lo is not None
    return link.source, link.target, distance.lo, distance.hi, link.carries_data


class _Moves:
    def __init__(self, problem: SchedulingProblem, group: Group, edges: Sequence[Edge], outer: set[int]) -> None:
        assert group.kind is not None
        self.delays = dict(group.delays)
        self.into: dict[int, list[Edge]] = {member: [] for member in self.delays}
        self.out_of: dict[int, list[Edge]] = {member: [] for member in self.delays}
        for edge in edges:
            if edge[0] != edge[1]:
                self.out_of[edge[0]].append(edge)
                self.into[edge[1]].append(edge)
        self.weights = {
            member: 0.0 if self._is_kept_whole(member, outer) else _volume(problem, member, group.kind[0])
            for member in self.delays
        }

    def _is_kept_whole(self, member: int, outer: set[int]) -> bool:
        """Whether it is stored in full anyway, so that no delay changes its bytes."""
        return member in outer or any(data and hi is None for _, _, _, hi, data in self.out_of[member])

    def made(self) -> Mapping[int, int]:
        for _ in range(_SWEEPS):
            moved = [self._move(member) for member in sorted(self.delays, reverse=True)]
            if not any(moved):
                break
        return self.delays

    def _move(self, member: int) -> bool:
        readers = [edge for edge in self.out_of[member] if edge[4]]
        read = [edge for edge in self.into[member] if edge[4]]
        if any(len(self.out_of[source]) > _READERS_WEIGHED for source in (member, *(edge[0] for edge in read))):
            return False
        now, latest = self.delays[member], self._latest(member)
        if not readers or latest is None or latest <= now:
            return False
        touched = {member, *(edge[0] for edge in read)}
        before = self._kept(touched)
        self.delays[member] = latest
        if self._kept(touched) < before:
            return True
        self.delays[member] = now
        return False

    def _latest(self, member: int) -> int | None:
        """The greatest delay with which no reader, of data or order, is too early."""
        return min((self.delays[target] + lo for _, target, lo, _, _ in self.out_of[member]), default=None)

    def _kept(self, members: set[int]) -> float:
        """Bytes kept for later iterations."""
        return sum(self.weights[member] * self._reach(member) for member in members)

    def _reach(self, member: int) -> int:
        ends = (self.delays[target] + (hi or 0) for _, target, _, hi, data in self.out_of[member] if data)
        return max(ends, default=self.delays[member]) - self.delays[member]


def _volume(problem: SchedulingProblem, member: int, dim: Symbol) -> float:
    """Bytes that one iteration of the loop over `dim` writes."""
    statement: Statement = problem.statements[member]
    total = max(statement.bytes, 1.0)
    for other in statement.dims:
        size = problem.dim(other).size
        total *= 1 if other == dim else size.as_int() if size.is_const else _UNKNOWN_SIZE
    return total
