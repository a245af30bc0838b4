"""Which buffers may have points in the host pool, and who needs which: interval arithmetic at every iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo.loop_ir.analysis.liveness import buffer_bytes, touched
from tempo.loop_ir.ir import (
    Axis,
    Block,
    Branch,
    CallHost,
    CallSegment,
    Evict,
    Fetch,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Statement,
    Stop,
    WindowIndex,
    Write,
    nested,
    walk,
)
from tempo.symbolic import Expr, Symbol, const, maximum, minimum, var
from tempo.symbolic.widths import IntegerRange, Ranges, bounds, exactly

CHUNKS = 32
"""Into how many a loop is cut, if it has so many iterations."""
_LEAST = 1 / 64
"""A buffer with less than this part of the bytes of all that could go stays."""
_MOST = 1 / 3
"""The part of its points that a buffer may have places for; one that needs more stays."""
Points = np.ndarray[Any, Any]
Span = tuple[int, int]
"""From where up to where."""


@dataclass(frozen=True)
class _Access:
    """The points that each iteration reads or writes: from `lo` up to `hi`."""

    lo: Points
    hi: Points
    writes: bool


@dataclass(frozen=True)
class Unit:
    """A statement of the driver that needs points of a buffer: a loop, of which a chunk of `chunk` iterations does, or
    one that is a chunk by itself.

    Chunk c touches points from `step * c + base` on, `width` of them at most. `fetched` and `evicted`: from where to
    where, counted from there; `written`: no others are. `first`: of the loop.
    """

    at: Statement
    loop: Loop | None
    chunk: int
    step: int
    base: int
    width: int
    fetched: Span | None
    evicted: Span | None
    written: Span
    first: int

    def start(self, chunk: Expr) -> Expr:
        return chunk * self.step + self.base

    def fetch(self, buffer: int, chunk: Expr) -> Iterator[Fetch]:
        if self.fetched is not None:
            lo, hi = self.fetched
            later = self.start(chunk + (-1 if self.is_backward else 1))
            ahead = (later + lo, later + hi) if self.evicted is None and self.loop is not None else None
            start = self.start(chunk)
            yield Fetch(buffer, start + lo, start + hi, start, ahead)

    def evict(self, buffer: int, chunk: Expr) -> Iterator[Evict]:
        if self.evicted is not None:
            start, (lo, hi), (least, most) = self.start(chunk), self.evicted, self.written
            yield Evict(buffer, maximum(start + lo, const(least)), minimum(start + hi, const(most)), start)

    @property
    def is_backward(self) -> bool:
        return self.loop is not None and self.loop.direction == "backward"


@dataclass(frozen=True)
class Pooled:
    """The axis along which points of a buffer are in the pool, how many there are, and who needs them."""

    axis: int
    points: int
    units: tuple[Unit, ...]

    @property
    def width(self) -> int:
        return max(unit.width for unit in self.units)


def pooled(program: LoopProgram, sizes: Mapping[Symbol, int], everything: bool) -> Iterator[tuple[int, Pooled]]:
    """The buffers that go to the pool. `everything`: inputs as well, and what one unit keeps for itself."""
    roles = ("internal", "input") if everything else ("internal",)
    calls = [each.segment for each in walk(program.items) if isinstance(each, CallSegment)]
    kept = set(program.outputs.values()) | {state.read.buffer for state in program.states.values()}
    kept |= {id for each in calls if calls.count(each) > 1 for id in program.segments[each].buffers}
    known = {symbol: exactly(size) for symbol, size in sizes.items()}
    found: dict[int, Pooled] = {}
    for id, buffer in program.buffers.items():
        if buffer.role not in roles or id in kept:
            continue
        if any(expr.symbols() - sizes.keys() for expr in buffer.logical_shape):
            continue
        for axis, points in enumerate(buffer.extents(sizes)[: len(buffer.axes)]):
            units = _Finder(program, id, axis, points, known).block(program.items, known)
            if units is not None and len(units) > (0 if everything else 1):
                found[id] = Pooled(axis, points, tuple(units))
                break
    bytes = {id: buffer_bytes(program, id, sizes) for id in found}
    yield from ((id, each) for id, each in found.items() if bytes[id] >= _LEAST * sum(bytes.values()))


@dataclass(frozen=True)
class _Finder:
    """The units of one buffer along an axis with so many points; None: there is one that needs too many at once."""

    program: LoopProgram
    buffer: int
    axis: int
    points: int
    known: Ranges

    def block(self, block: Block, ranges: Ranges) -> list[Unit] | None:
        found: list[Unit] = []
        for statement in block:
            units = self.statement(statement, ranges) if self.buffer in touched(self.program, statement) else []
            if units is None:
                return None
            found += units
        return found

    def statement(self, statement: Statement, ranges: Ranges) -> list[Unit] | None:
        match statement:
            case Loop(body=body):
                unit = self.over(statement, statement, body, ranges)
                inner = self.span(statement, ranges)
                return [unit] if unit else None if inner is None else self.block(body, {**ranges, statement.var: inner})
            case Branch() | Guard():
                sides = [self.block(block, ranges) for block in nested(statement)]
                return None if None in sides else [unit for side in sides if side for unit in side]
            case CallSegment(segment):
                body = self.program.segments[segment].body
                unit = None
                if len(body) == 1 and isinstance(loop := body[0], Loop):
                    unit = self.over(statement, loop, loop.body, ranges)
                unit = unit or self.unit(statement, None, body, ranges)
            case _:
                unit = self.unit(statement, None, (statement,), ranges)
        return None if unit is None else [unit]

    def span(self, loop: Loop, ranges: Ranges) -> IntegerRange | None:
        """The values of its variable; None: there is none, or that is not known."""
        if (loop.lo.symbols() | loop.hi.symbols()) - ranges.keys():
            return None
        lo, hi = bounds(loop.lo, ranges).lo, bounds(loop.hi, ranges).hi
        return IntegerRange(lo, hi - 1) if lo < hi else None

    def over(self, at: Statement, loop: Loop, body: Block, ranges: Ranges) -> Unit | None:
        """Of a loop that runs as often wherever it stands, and to its end."""
        is_known = (loop.lo.symbols() | loop.hi.symbols()) <= self.known.keys()
        if not is_known or any(isinstance(each, Stop) for each in walk(self.inlined(body))):
            return None
        return self.unit(at, loop, body, ranges)

    def inlined(self, block: Block) -> Block:
        """With the bodies of segments that are called in it."""
        return (*block, *(each for called in self.program.called(block) for each in called.body))

    def unit(self, at: Statement, loop: Loop | None, body: Block, ranges: Ranges) -> Unit | None:
        span = None if loop is None else self.span(loop, ranges)
        if loop is not None and span is None:
            return None
        values = [0] if span is None else list(range(span.lo, span.hi + 1))
        accesses: list[_Access] = []
        for each, loops in self.uses(body, ()):
            found = self.positions(each, loops, None if loop is None else loop.var, values, ranges)
            if found is None:
                return None
            accesses.append(_Access(*found, isinstance(each, Write)))
        chunk = max(1, -(-len(values) // CHUNKS))
        return self.moving(at, loop, chunk, values[0], accesses, self.is_sure(body))

    def uses(self, block: Block, loops: tuple[Loop, ...]) -> Iterator[tuple[Read | Write, tuple[Loop, ...]]]:
        """Who touches the buffer, in order, with the loops around it."""
        for statement in block:
            if isinstance(statement, Read | Write) and statement.buffer == self.buffer:
                yield statement, loops
            around = (*loops, statement) if isinstance(statement, Loop) else loops
            for inner in nested(statement):
                yield from self.uses(inner, around)
            if isinstance(statement, CallSegment):
                yield from self.uses(self.program.segments[statement.segment].body, loops)

    def positions(
        self,
        each: Read | Write,
        loops: tuple[Loop, ...],
        variable: Symbol | None,
        values: list[int],
        ranges: Ranges,
    ) -> tuple[Points, Points] | None:
        """From where to where the points lie, for each value of the variable; None where that is not known."""
        if not each.index:
            return None
        if isinstance(each, Write):
            start, extent = each.index[self.axis], each.extents[self.axis] or const(1)
        else:
            entry = each.index[self.axis]
            if isinstance(entry, WindowIndex) and self.program.buffers[self.buffer].axes[self.axis].kind == "window":
                return None  # it may wrap
            start, extent = (entry.start, entry.extent) if isinstance(entry, WindowIndex) else (entry.index, const(1))
        lows, highs = [], []
        for value in values:
            here = dict(ranges) if variable is None else {**ranges, variable: exactly(value)}
            for loop in loops:
                span = self.span(loop, here)
                if span is None:
                    return None
                here[loop.var] = span
            if (start.symbols() | extent.symbols()) - here.keys():
                return None
            at = bounds(start, here)
            lows.append(at.lo)
            highs.append(at.hi + bounds(extent, here).hi)
        return np.array(lows), np.array(highs)

    def is_sure(self, block: Block) -> bool:
        """Whether whatever may be written of the buffer is, every time, and of a point all that there is of it."""
        written = [(each, loops) for each, loops in self.uses(block, ()) if isinstance(each, Write)]
        is_whole = all(self.is_whole(each, loops) for each, loops in written)
        return is_whole and {each.index for each, _ in written} == self.certain(block)

    def is_whole(self, write: Write, loops: tuple[Loop, ...]) -> bool:
        """Whether all places along the other axes are written."""
        axes = self.program.buffers[self.buffer].axes
        others = list(zip(axes, write.index, write.extents, strict=True))
        del others[self.axis]
        return all(self.covers(axis, start, extent, loops) for axis, start, extent in others)

    def covers(self, axis: Axis, start: Expr, extent: Expr | None, loops: tuple[Loop, ...]) -> bool:
        over = next((loop for loop in loops if start == var(loop.var)), None)
        if extent is not None:
            first, last = start, start + extent
        elif over is not None:
            first, last = over.lo, over.hi
        else:
            first, last = start, start + 1
        found = [first, last - axis.extent]
        return all(each.symbols() <= self.known.keys() and bounds(each, self.known) == (0, 0) for each in found)

    def certain(self, block: Block) -> set[tuple[Expr, ...]]:
        found: set[tuple[Expr, ...]] = set()
        for statement in block:
            match statement:
                case Write(buffer=buffer, index=index) if buffer == self.buffer:
                    found.add(index)
                case Branch(then=then, otherwise=otherwise):
                    found |= self.certain(then) & self.certain(otherwise)
                case Loop(body=body):
                    found |= self.certain(body)
                case CallHost(writes=writes):
                    found |= {each.index for each in writes if each.buffer == self.buffer}
                case CallSegment(segment):
                    found |= self.certain(self.program.segments[segment].body)
        return found

    def moving(
        self, at: Statement, loop: Loop | None, chunk: int, first: int, accesses: list[_Access], is_sure: bool
    ) -> Unit | None:
        """The unit, where no chunk of it needs too many points."""
        count = len(accesses[0].lo)
        chunks = np.arange(count) // chunk
        starts = [min(int(each.lo[chunks == number].min()) for each in accesses) for number in range(chunks[-1] + 1)]
        step = starts[1] - starts[0] if len(starts) > 1 else 0
        if loop is not None and step == 0:
            return None  # the points are the same for all of it
        base = min(at - step * number for number, at in enumerate(starts))
        shifts = base + step * chunks

        written = [each for each in accesses if each.writes]
        reads = _hull([each for each in accesses if not each.writes], shifts)
        writes, ends = _hull(written, shifts), _hull(written, 0 * shifts)
        width = max(span[1] for span in (reads, writes) if span is not None)
        if width > _MOST * self.points:
            return None
        is_sure = is_sure and _is_dense(written, chunks, shifts, writes, ends)
        fetched = reads if writes is None else _needed(accesses, loop, is_sure, reads, writes)
        return Unit(at, loop, chunk, step, base, width, fetched, writes, ends or (0, 0), first)


def _hull(accesses: list[_Access], shifts: Points) -> Span | None:
    """All the points, counted from those of `shifts`."""
    if not accesses:
        return None
    lo, hi = ([getattr(each, side) - shifts for each in accesses] for side in ("lo", "hi"))
    return int(np.min(lo)), int(np.max(hi))


def _is_dense(written: list[_Access], chunks: Points, shifts: Points, span: Span | None, ends: Span | None) -> bool:
    """Whether every chunk writes all points of its span that lie between the ends."""
    if span is None or ends is None:
        return False
    for number in range(int(chunks[-1]) + 1):
        here = chunks == number
        lo, hi = max(int(shifts[here][0]) + span[0], ends[0]), min(int(shifts[here][0]) + span[1], ends[1])
        made = np.zeros(max(0, hi - lo) + 1, np.int64)
        for each in written:
            np.add.at(made, each.lo[here] - lo, 1)
            np.add.at(made, each.hi[here] - lo, -1)
        if not bool((np.cumsum(made)[:-1] > 0).all()):
            return False
    return True


def _needed(accesses: list[_Access], loop: Loop | None, is_sure: bool, reads: Span | None, writes: Span) -> Span | None:
    """What must be there before a chunk of what it also writes: what chunks before have written."""
    if reads is None:
        return None if is_sure else writes
    if not (is_sure and _writes_first(accesses, loop)):
        return min(reads[0], writes[0]), max(reads[1], writes[1])
    backward = loop is not None and loop.direction == "backward"
    lo, hi = (max(reads[0], writes[1]), reads[1]) if backward else (reads[0], min(reads[1], writes[0]))
    return (lo, hi) if lo < hi else None


def _writes_first(accesses: list[_Access], loop: Loop | None) -> bool:
    """Whether no point is read that is written later, in the same iteration or one after it."""
    backward = loop is not None and loop.direction == "backward"
    for at, write in enumerate(accesses):
        for before, read in enumerate(accesses) if write.writes else ():
            if read.writes:
                continue
            behind = write.hi <= read.lo if backward else read.hi <= write.lo
            same = (read.lo == write.lo) & (read.hi == write.hi) & (at < before)
            if not bool((behind | same).all()):
                return False
    return True
