"""Reuse distances along a schedule: how far a value's buffer may wrap around along each dim.

A point q of a value must not be overwritten before it is read: for every read at p of q, and every point q' = q + d
that is written after q and before p, the place of q' differs from that of q. The dims are taken one after another: with
m the largest |d_k| among the conflicts whose earlier components are all 0, a window of m + 1 along dim k tells them
apart (Lefebvre and Feautrier, Automatic storage management for parallel programs, 1998).

The dims are taken in the order of the loops that write, from the outside in. Then earlier components that are 0 mean
that both writes stand in the same iteration of the outer loops, so d_k has the sign of the loop's direction, and only
how far q' may be ahead of q has to be bounded: by the iteration of the read, and by the last point of the domain.

The same under any order, for values that several places write, as those of a peeled loop do, and for loops that are no
shifts of the dims (`conflict_widths`). A skewed loop makes no single coordinate, so neither the order of the dims nor
the sign of a difference is known. Every pair of writes and a read are told apart by variables of their own, the order
of the three is written out, one case for each loop at which it may be decided, and Fourier-Motzkin elimination bounds
the differences.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tempo.lowering.scheduling.clusters import Cluster, ValueRead, ValueReads
from tempo.lowering.scheduling.places import Place
from tempo.schedule.tree import For
from tempo.symbolic import TRUE, Box, Condition, Context, Expr, Symbol, var

FULL = -1  # as a window width: no bound


@dataclass(frozen=True)
class Track:
    """How a place writes: its `loop` makes coordinate `position`, which is the iteration plus `offset`."""

    position: int
    loop: For
    offset: Expr

    @property
    def forward(self) -> bool:
        return self.loop.direction == "forward"


@dataclass(frozen=True)
class Writer:
    """The place that writes a value, with its tracks from the outside in; `box` are the points written.

    Coordinates without a track are the same whenever the value is written. `rank` is the node's in its cluster.
    """

    place: Place
    tracks: tuple[Track, ...]
    domain: tuple[Symbol, ...]
    box: Box
    rank: int


def writer_of(places: Sequence[Place], domain: tuple[Symbol, ...], box: Box, rank: int) -> Writer | None:
    """The writer where there is one, and every loop around it makes one coordinate; None where that is not so."""
    place, *others = places
    free, tracks = dict.fromkeys(range(len(domain))), []
    for _, loop in place.loops:
        offsets = ((at, place.point[at] - var(loop.var)) for at in free)
        position, offset = next((each for each in offsets if not each[1].dims()), (None, None))
        if others or position is None or offset is None:
            return None
        del free[position]
        tracks.append(Track(position, loop, offset))
    if others or any(place.point[at].dims() for at in free):
        return None
    return Writer(place, tuple(tracks), domain, box, rank)


def widths(writer: Writer, reads: Sequence[ValueRead], known: ValueReads) -> list[int]:
    """The window along every dim of the value, FULL where there is no bound.

    Dims without a bound are best taken first, for then fewer conflicts are left for the others.
    """
    found = _widths(writer, reads, known, frozenset())
    full = frozenset(at for at, width in enumerate(found) if width == FULL)
    return _widths(writer, reads, known, full) if full and max(found) > 1 else found


def _widths(writer: Writer, reads: Sequence[ValueRead], known: ValueReads, full: frozenset[int]) -> list[int]:
    """The same, where the dims of `full` tell all their points apart already."""
    found = [FULL if at in full else 1 for at in range(len(writer.domain))]
    for read in reads:
        for position, width in _Reuse(writer, read, known.context(read), full).widths().items():
            found[position] = FULL if FULL in (width, found[position]) else max(width, found[position])
    return found


@dataclass(frozen=True)
class _Reuse:
    """One read, and the writer, which may overwrite what it reads."""

    writer: Writer
    read: ValueRead
    context: Context
    full: frozenset[int]

    def widths(self) -> dict[int, int]:
        place, tracks = self.writer.place, self.writer.tracks
        shared = self.read.place.shared_loops(place)
        earlier = (self.read.place.order, self.read.rank) <= (place.order, self.writer.rank)
        found: dict[int, int] = {}
        carried = False  # whether the read may be in a later iteration of a loop around
        for depth, track in enumerate(tracks):
            ahead: int | None = None
            if not carried and depth < shared:
                distance = self._distance(track)
                carried = distance is None or distance > 0
                strict = self._is_first(tracks[depth + 1 : shared], earlier)
                ahead = None if distance is None else distance - strict
            elif not carried and earlier:
                break  # the loops inside run after the read
            else:
                carried = True
            found[track.position] = self._width(track, ahead)
        return found

    def _is_first(self, inner: Sequence[Track], earlier: bool) -> bool:
        """Whether, within one iteration of a loop, the read precedes all writes to where the point read was.

        `inner` are the shared loops inside. A write differs from that point along no dim that is full, and along the
        others it may be any, from the first iteration on.
        """
        for track in inner:
            distance = self._distance(track) if track.position in self.full else self._since_first(track.loop)
            if distance is None or distance > 0:
                return False
            if distance < 0:
                return True
        return earlier

    def _distance(self, track: Track) -> int | None:
        """How many iterations of a shared loop the read is behind the write, at most."""
        asked, iteration = self.read.relation[track.position], var(track.loop.var)
        ahead, behind = iteration - (asked.lo - track.offset), (asked.hi - track.offset) - iteration
        return self.context.constant_bounds(ahead if track.forward else behind)[1]

    def _since_first(self, loop: For) -> int | None:
        """How many iterations the read is behind the first one of a shared loop, at most."""
        ahead, behind = var(loop.var) - loop.lo, loop.hi - 1 - var(loop.var)
        return self.context.constant_bounds(ahead if loop.direction == "forward" else behind)[1]

    def _width(self, track: Track, ahead: int | None) -> int:
        """`ahead` bounds how far another write may be ahead; so does the end of the domain."""
        if ahead is not None and ahead <= 0:
            return 1
        end = self._to_end(track)
        bounds = [bound for bound in (ahead, end) if bound is not None]
        return max(1, min(bounds) + 1) if bounds else FULL

    def _to_end(self, track: Track) -> int | None:
        """How many points the loop makes after the one read, at most."""
        asked, dim = self.read.relation[track.position], self.writer.domain[track.position]
        lo, hi = self.writer.box.interval(dim)
        distance = hi - 1 - asked.lo if track.forward else asked.hi - lo
        return self.context.constant_bounds(distance)[1]


# -- under any order -----------------------------------------------------------------------------------------------

_MOST_CASES = 64  # per place that writes; with more nothing is proven, and everything is kept
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
        """The cases in which this instance runs before the other: the loop that decides, or the text."""
        equal: Condition = TRUE
        for _, loop in self.place.loops[: self.place.shared_loops(other.place)]:
            here, there = self.names[loop.var], other.names[loop.var]
            yield equal & (here.lt(there) if loop.direction == "forward" else there.lt(here))
            equal = equal & here.eq(there)
        if (self.place.order, self.rank) < (other.place.order, other.rank):
            yield equal


def conflict_widths(
    places: Sequence[Place], reads: Sequence[ValueRead], known: ValueReads, cluster: Cluster, rank: int
) -> list[int]:
    """The window along every dim of the value that `cluster` writes, FULL where there is no bound."""
    sizes = Context.of((), *(var(Symbol(dim.symbol.name, "size")).eq(dim.size) for dim in known.program.graph.dims))
    made = [_PlacedStatement.of(known, cluster, place, rank, "'made") for place in places]
    later = [_PlacedStatement.of(known, cluster, place, rank, "'later") for place in places]
    cases: list[_WritePair] = []
    seen: set[object] = set()  # what two reads ask alike is one case
    for case in itertools.chain.from_iterable(_cases(read, made, later, known, sizes) for read in reads):
        alike = (case.difference, frozenset(case.context.facts))
        if alike in seen:
            continue
        seen.add(alike)
        cases += () if case.context.infeasible() else (case,)
        if len(cases) > _MOST_CASES * len(places):
            return [FULL] * len(cluster.domain)
    return _Conflicts(cases, len(cluster.domain), _MOST_QUESTIONS * len(places)).widths()


@dataclass(frozen=True)
class _WritePair:
    """Writes that differ by `difference`, where a read of the first comes after both."""

    context: Context
    difference: tuple[Expr, ...]

    def within(self, zero: Sequence[int]) -> _WritePair:
        """The case with these components of the difference 0."""
        return _WritePair(self.context.assume(*(self.difference[at].eq(0) for at in zero)), self.difference)


class _Conflicts:
    def __init__(self, cases: list[_WritePair], dims: int, most_questions: int) -> None:
        self.cases = cases
        self.dims = dims
        self.most_questions = most_questions
        self.questions = 0

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
        while left and self.questions < self.most_questions:
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


def _cases(
    read: ValueRead,
    made: Sequence[_PlacedStatement],
    later: Sequence[_PlacedStatement],
    known: ValueReads,
    sizes: Context,
) -> Iterator[_WritePair]:
    """The cases of a read; none for a place that writes nothing of what it reads, as most pieces of a peeled loop."""
    reader = _PlacedStatement.of(known, read.cluster, read.place, read.rank, "'read")
    guarded = sizes.assume(*reader.facts, read.guard.substitute(read.here).substitute(reader.names))
    for one in made:
        within = [
            index.ge(interval.lo.substitute(reader.names)) & index.le(interval.hi.substitute(reader.names))
            for index, interval in zip(one.point, read.relation, strict=True)
        ]
        base = guarded.assume(*one.facts, *within)
        if base.infeasible():
            continue
        for other in later:
            difference = tuple(there - here for here, there in zip(one.point, other.point, strict=True))
            for first, second in itertools.product(one.before(other), other.before(reader)):
                yield _WritePair(base.assume(*other.facts, first, second), difference)
