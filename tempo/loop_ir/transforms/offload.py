"""What a loop keeps for another one goes to a pool of the host in between, and comes back where it is wanted.

A buffer that is kept in full along an axis, of which every loop of the driver touches a few points at a time, one
behind another, has places for as many points as a chunk of iterations touches. A segment that is a loop is strip-mined:
the driver calls it for a chunk of its iterations, after what they read was fetched, and evicts what they wrote. In a
loop of the driver the first iteration of every chunk fetches and the last evicts. What no loop moves over is a chunk by
itself. Positions are counted from the first point of the chunk, so all is in order in memory, as it was.

What a loop itself writes before it reads it is not fetched, but for what the chunk before has written. Where a loop
writes nothing of a buffer, the next chunk is fetched while one runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from tempo import dtypes
from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Block,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Evict,
    Fetch,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Stop,
    WindowIndex,
    Write,
    nested,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import TRUE, Condition, Expr, Symbol, const, maximum, minimum, var
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
class Offload:
    """The program with buffers in the host pool; itself where there is no pool, or nothing for it."""

    name: ClassVar[str] = "offload"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        pooled = dict(_pooled(program, context.sizes, context.offload == "all")) if context.offload else {}
        return _Rewriting(program, pooled).done() if pooled else program


# -- who touches which points ------------------------------------------------------------------------------------------


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
class _Pooled:
    """The axis along which points of a buffer are in the pool, how many there are, and who needs them."""

    axis: int
    points: int
    units: tuple[Unit, ...]

    @property
    def width(self) -> int:
        return max(unit.width for unit in self.units)


def _pooled(program: LoopProgram, sizes: Mapping[Symbol, int], everything: bool) -> Iterator[tuple[int, _Pooled]]:
    """The buffers that go to the pool. `everything`: inputs as well, and what one unit keeps for itself."""
    roles = ("internal", "input") if everything else ("internal",)
    calls = [each.segment for each in walk(program.items) if isinstance(each, CallSegment)]
    kept = set(program.outputs.values()) | {state.read.buffer for state in program.states.values()}
    kept |= {id for each in calls if calls.count(each) > 1 for id in program.segments[each].buffers}
    known = {symbol: exactly(size) for symbol, size in sizes.items()}
    found: dict[int, _Pooled] = {}
    for id, buffer in program.buffers.items():
        if buffer.role not in roles or id in kept:
            continue
        if any(expr.symbols() - sizes.keys() for expr in buffer.logical_shape):
            continue
        for axis, points in enumerate(buffer.extents(sizes)[: len(buffer.axes)]):
            units = _Finder(program, id, axis, points, known).block(program.items, known)
            if units is not None and len(units) > (0 if everything else 1):
                found[id] = _Pooled(axis, points, tuple(units))
                break
    bytes = {id: _bytes(program.buffers[id], sizes) for id in found}
    yield from ((id, each) for id, each in found.items() if bytes[id] >= _LEAST * sum(bytes.values()))


def _bytes(buffer: Buffer, sizes: Mapping[Symbol, int]) -> int:
    return math.prod(buffer.extents(sizes)) * dtypes.itemsize(buffer.dtype)


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
            units = self.statement(statement, ranges) if self.touches(statement) else []
            if units is None:
                return None
            found += units
        return found

    def touches(self, statement: Statement) -> bool:
        inside = list(walk((statement,)))
        called = (id for each in self.program.called((statement,)) for id in each.buffers)
        return self.buffer in called or any(
            isinstance(each, Read | Write) and each.buffer == self.buffer for each in inside
        )

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
        accesses = [
            _Access(*found, isinstance(each, Write))
            for each, loops in self.uses(body, ())
            if (found := self.positions(each, loops, None if loop is None else loop.var, values, ranges)) is not None
        ]
        if len(accesses) < sum(1 for _ in self.uses(body, ())):
            return None
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


# -- rewriting ---------------------------------------------------------------------------------------------------------

Shifts = Mapping[int, tuple[int, Expr]]
"""By buffer, the axis and the point that lies at position 0."""


Access = TypeVar("Access", Read, Write)


class _Rewriting:
    def __init__(self, program: LoopProgram, pooled: Mapping[int, _Pooled]) -> None:
        self.program, self.pooled = program, pooled
        self.segments: dict[int, Segment] = {}
        self.units: dict[int, dict[int, Unit]] = {}  # by the identity of a statement, then by buffer
        for buffer, each in pooled.items():
            for unit in each.units:
                self.units.setdefault(id(unit.at), {})[buffer] = unit
        self.taken = {each.var for each in program.statements() if isinstance(each, Loop)}

    def done(self) -> LoopProgram:
        program, items, stopped, offsets = self.program, list[Statement](), list[int | None](), {}
        for number, (item, stop) in enumerate(zip(program.items, program.stopped, strict=True)):
            made = self.statement(item, {})
            if number in program.offsets and len(made) == 1 and isinstance(made[0], Loop) == isinstance(item, Loop):
                offsets[len(items)] = program.offsets[number]
            items += made
            stopped += [stop] * len(made)
        windows = {buffer: self.buffer(program.buffers[buffer], each) for buffer, each in self.pooled.items()}
        segments = tuple(self.segments.get(each.id, each) for each in program.segments)
        buffers = {**program.buffers, **windows}
        return replace(
            program, items=tuple(items), stopped=tuple(stopped), offsets=offsets, buffers=buffers, segments=segments
        )

    def buffer(self, buffer: Buffer, pooled: _Pooled) -> Buffer:
        axes = list(buffer.axes)
        axes[pooled.axis] = replace(axes[pooled.axis], kind="full", extent=const(pooled.width))
        return replace(buffer, axes=tuple(axes), pooled=(pooled.axis, pooled.points))

    def block(self, block: Block, here: Shifts) -> Block:
        return tuple(made for each in block for made in self.statement(each, here))

    def statement(self, statement: Statement, here: Shifts) -> Block:
        units = self.units.get(id(statement), {})
        chunked = {buffer: unit for buffer, unit in units.items() if unit.loop is not None}
        alone = {buffer: unit for buffer, unit in units.items() if unit.loop is None}
        inside = {**here, **self.shifts(alone, const(0))}
        match statement:
            case Loop():
                made: Block = (self.loop(statement, chunked, inside),)
            case CallSegment(segment):
                made = (self.call(self.program.segments[segment], chunked, inside),)
            case Branch(then=then, otherwise=otherwise):
                made = (replace(statement, then=self.block(then, here), otherwise=self.block(otherwise, here)),)
            case Guard(body=body):
                made = (replace(statement, body=self.block(body, here)),)
            case _:
                made = _shifted((statement,), inside)
        fetched, evicted = self.transfers(alone, const(0))
        return (*fetched, *made, *evicted)

    def shifts(self, units: Mapping[int, Unit], chunk: Expr) -> Shifts:
        return {buffer: (self.pooled[buffer].axis, unit.start(chunk)) for buffer, unit in units.items()}

    def loop(self, loop: Loop, units: Mapping[int, Unit], here: Shifts) -> Loop:
        """A loop of the driver: iterations fetch and evict that begin and end a chunk."""
        if not units:
            return replace(loop, body=self.block(loop.body, here))
        unit = next(iter(units.values()))
        number = var(loop.var) - unit.first
        chunk, place = number // unit.chunk, number % unit.chunk
        body = self.block(loop.body, {**here, **self.shifts(units, chunk)})
        low = place.eq(const(0))
        high = place.eq(const(unit.chunk - 1)) | var(loop.var).eq(loop.hi - 1)
        begins, ends = (high, low) if unit.is_backward else (low, high)
        fetched, evicted = self.transfers(units, chunk)
        return replace(loop, body=(*_where(begins, fetched), *body, *_where(ends, evicted)))

    def transfers(self, units: Mapping[int, Unit], chunk: Expr) -> tuple[Block, Block]:
        fetched = (each for buffer, unit in units.items() for each in unit.fetch(buffer, chunk))
        return tuple(fetched), tuple(each for buffer, unit in units.items() for each in unit.evict(buffer, chunk))

    def call(self, segment: Segment, units: Mapping[int, Unit], here: Shifts) -> Statement:
        """A call of a segment, or a loop of the driver that calls it for one chunk after the other."""
        if not units:
            self.segments[segment.id] = replace(segment, body=_shifted(segment.body, here))
            return CallSegment(segment.id)
        unit, (loop,) = next(iter(units.values())), segment.body
        assert isinstance(loop, Loop), "chunks are of its iterations"
        symbol = self.fresh(loop.var)
        start = var(symbol) * unit.chunk + loop.lo
        body = _shifted(loop.body, {**here, **self.shifts(units, var(symbol))})
        part = replace(loop, lo=start, hi=minimum(start + unit.chunk, loop.hi), body=body)
        self.segments[segment.id] = replace(segment, body=(part,), is_loop=False)
        fetched, evicted = self.transfers(units, var(symbol))
        count = (loop.hi - loop.lo + (unit.chunk - 1)) // unit.chunk
        return Loop(symbol, const(0), count, loop.direction, (*fetched, CallSegment(segment.id), *evicted))

    def fresh(self, symbol: Symbol) -> Symbol:
        name = f"{symbol.name}_chunk"
        while Symbol(name, symbol.kind) in self.taken:
            name += "_"
        self.taken.add(Symbol(name, symbol.kind))
        return Symbol(name, symbol.kind)


def _where(condition: Condition, block: Block) -> Block:
    return block if condition == TRUE or not block else (Branch(condition, block),)


def _shifted(block: Block, shifts: Shifts) -> Block:
    """The block with places in pooled buffers counted from the first point that is there."""

    def moved(each: Access) -> Access:
        if each.buffer not in shifts:
            return each
        axis, base = shifts[each.buffer]
        index: list[Any] = [*each.index]
        index[axis] = _from(index[axis], base)
        return replace(each, index=tuple(index))

    held = _held_by_slots(block)

    def change(statement: Statement, scope: BlockScope) -> Iterable[Statement] | None:
        match statement:
            case Read():
                fresh = statement.buffer in shifts and statement.result in held
                return (replace(moved(statement), fresh=statement.fresh or fresh),)
            case Write():
                return (moved(statement),)
            case CallHost(reads=reads, writes=writes):
                return (replace(statement, reads=tuple(map(moved, reads)), writes=tuple(map(moved, writes))),)
        return None

    return rewritten(block, change) if shifts else block


def _held_by_slots(block: Block) -> set[str]:
    """What is read that a slot may be a view of: it is another chunk's place before the slot is done with."""
    sources: dict[str, set[str]] = {}
    held: set[str] = set()
    for statement in walk(block):
        match statement:
            case Read(result):
                sources[result] = {result}
            case Assign(result, value):
                sources[result] = sources.get(result, set()) | sources.get(value, set())
            case Compute(result, op, operands=operands) if op in OPERATORS and OPERATORS[op].views:
                sources[result] = set().union(*(sources.get(each, set()) for each in operands))
            case Write(_, (), value):
                held |= sources.get(value, set())
    return held


def _from(entry: Any, base: Expr) -> Any:
    match entry:
        case PointIndex(index):
            return PointIndex(index - base)
        case WindowIndex(start):
            return replace(entry, start=start - base)
    return entry - base
