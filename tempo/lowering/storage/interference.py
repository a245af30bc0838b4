"""Windows under any order: the conflicts of `reuse.py`, found for loops that are no shifts of the dims.

A skewed loop makes no single coordinate, so neither the order of the dims nor the sign of a difference is known. Every
pair of writes and a read are told apart by variables of their own, the order of the three is written out, one case for
each level at which it may be decided, and Fourier-Motzkin elimination bounds the differences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tempo.lowering.scheduling.clusters import Cluster
from tempo.lowering.scheduling.places import Place
from tempo.lowering.scheduling.reads import ValueRead, ValueReads
from tempo.lowering.storage.reuse_distance import FULL
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol, var

_MOST_CASES = 48  # per value; with more nothing is proven, and everything is kept
_MOST_QUESTIONS = 150  # the same for bounds


@dataclass(frozen=True)
class _PlacedStatement:
    """A statement at a place, in variables of its own; `facts` say where it runs."""

    place: Place
    rank: int
    names: dict[Symbol, Expr]
    point: tuple[Expr, ...]
    facts: tuple[Condition, ...]

    @staticmethod
    def of(known: ValueReads, cluster: Cluster, place: Place, rank: int, role: str) -> _PlacedStatement:
        names = {loop.var: var(Symbol(f"{loop.var.name}{role}", "dim")) for _, loop in place.loops}
        point = tuple(index.substitute(names) for index in place.point)
        facts = [place.condition.substitute(names)]
        for _, loop in place.loops:
            facts += [names[loop.var].ge(loop.lo.substitute(names)), names[loop.var].lt(loop.hi.substitute(names))]
        for index, (_, lo, hi) in zip(point, known.program.box(cluster).bounds, strict=True):
            facts += [index.ge(lo), index.lt(hi)]
        return _PlacedStatement(place, rank, names, point, tuple(facts))

    def before(self, other: _PlacedStatement) -> Iterator[Condition]:
        """The cases in which this instance runs before the other: the level that decides, or the text."""
        equal: Condition = TRUE
        for mine, theirs in itertools.islice(
            zip(self.place.levels, other.place.levels), self.place.shared_levels(other.place)
        ):
            here, there = mine.iteration.substitute(self.names), theirs.iteration.substitute(other.names)
            yield equal & (here.lt(there) if mine.forward else there.lt(here))
            if mine.piece != theirs.piece:
                return
            equal = equal & here.eq(there)
        if (self.place.order, self.rank) < (other.place.order, other.rank):
            yield equal


def conflict_widths(
    places: Sequence[Place], reads: Sequence[ValueRead], known: ValueReads, cluster: Cluster, rank: int
) -> list[int]:
    """The window along every dim of the value that `cluster` writes, FULL where there is no bound."""
    conflicts = _Conflicts.of(places, reads, known, cluster, rank)
    return [FULL] * len(cluster.domain) if conflicts is None else conflicts.widths()


@dataclass(frozen=True)
class _WritePair:
    """Writes that differ by `difference`, where a read of the first comes after both."""

    context: Context
    difference: tuple[Expr, ...]

    def within(self, zero: Sequence[int]) -> _WritePair:
        """The case with these components of the difference 0."""
        return _WritePair(self.context.assume(*(self.difference[at].eq(0) for at in zero)), self.difference)


class _Conflicts:
    def __init__(self, cases: list[_WritePair], dims: int) -> None:
        self.cases = cases
        self.dims = dims
        self.questions = 0

    @staticmethod
    def of(
        places: Sequence[Place], reads: Sequence[ValueRead], known: ValueReads, cluster: Cluster, rank: int
    ) -> _Conflicts | None:
        cases: list[_WritePair] = []
        for read, first, second in itertools.product(reads, places, places):
            made = _PlacedStatement.of(known, cluster, first, rank, "'made")
            later = _PlacedStatement.of(known, cluster, second, rank, "'later")
            for case in _cases(read, made, later, known):
                if len(cases) >= _MOST_CASES:
                    return None
                if not case.context.infeasible():
                    cases.append(case)
        return _Conflicts(cases, len(cluster.domain))

    def widths(self) -> list[int]:
        """Those that keep least. Where some dim is full anyway, taking it first may leave no conflicts for others."""
        found = self._one_by_one(())
        if FULL not in found or max(found) <= 1:
            return found
        return min((found, *(self._one_by_one((first,)) for first in range(self.dims))), key=_kept)

    def _one_by_one(self, full: Sequence[int]) -> list[int]:
        """Dim by dim after those of `full`, the smallest bounds first; one without a bound is kept in full."""
        found = [FULL] * self.dims
        left, zero = [at for at in range(self.dims) if at not in full], list(full)
        while left and self.questions < _MOST_QUESTIONS:
            cases = [case.within(zero) for case in self.cases]
            cases = [case for case in cases if not case.context.infeasible()]
            bounds = {at: self._largest(cases, at) for at in left}
            at = min(left, key=lambda each: (bounds[each] is None, bounds[each] or 0))
            bound = bounds[at]
            if bound is not None:
                found[at] = bound + 1
            left.remove(at)
            zero.append(at)
        return found

    def _largest(self, cases: Sequence[_WritePair], at: int) -> int | None:
        """The largest |difference| along a dim."""
        largest = 0
        for case in cases:
            self.questions += 1
            low, high = case.context.constant_bounds(case.difference[at])
            if low is None or high is None:
                return None
            largest = max(largest, -low, high)
        return largest


def _kept(widths: Sequence[int]) -> tuple[int, int]:
    return widths.count(FULL), math.prod(width for width in widths if width != FULL)


def _cases(read: ValueRead, made: _PlacedStatement, later: _PlacedStatement, known: ValueReads) -> Iterator[_WritePair]:
    reader = _PlacedStatement.of(known, read.cluster, read.place, read.rank, "'read")
    asked = [
        condition
        for index, interval in zip(made.point, read.relation, strict=True)
        for condition in (
            index.ge(interval.lo.substitute(reader.names)),
            index.le(interval.hi.substitute(reader.names)),
        )
    ]
    guard = read.guard.substitute(read.here).substitute(reader.names)
    graph = known.program.graph
    sizes = [var(Symbol(dim.symbol.name, "size")).eq(dim.size) for dim in graph.dims]
    base = Context.of((), *sizes, *made.facts, *later.facts, *reader.facts, *asked, guard)
    difference = tuple(there - here for here, there in zip(made.point, later.point, strict=True))
    for one, other in itertools.product(made.before(later), later.before(reader)):
        yield _WritePair(base.assume(one, other), difference)
