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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from tempo.loop_ir.ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.loop_ir.transforms.offload.units import Pooled, Unit, pooled
from tempo.sdg.builder import fresh_dim
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import TRUE, Condition, Expr, const, minimum, var


@dataclass(frozen=True)
class Offload:
    """The program with buffers in the host pool; itself where there is no pool, or nothing for it."""

    name: ClassVar[str] = "offload"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        found = dict(pooled(program, context.sizes, context.offload == "all")) if context.offload else {}
        return _Rewriting(program, found).done() if found else program


Shifts = Mapping[int, tuple[int, Expr]]
"""By buffer, the axis and the point that lies at position 0."""


Access = TypeVar("Access", Read, Write)


class _Rewriting:
    def __init__(self, program: LoopProgram, pooled: Mapping[int, Pooled]) -> None:
        self.program, self.pooled = program, pooled
        self.segments: dict[int, Segment] = {}
        self.units: dict[int, dict[int, Unit]] = {}  # by the identity of a statement, then by buffer
        for buffer, each in pooled.items():
            for unit in each.units:
                self.units.setdefault(id(unit.at), {})[buffer] = unit
        self.taken = {each.var.name for each in program.statements() if isinstance(each, Loop)}

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

    def buffer(self, buffer: Buffer, pooled: Pooled) -> Buffer:
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
        symbol = fresh_dim(f"{loop.var.name}_chunk", self.taken)
        self.taken.add(symbol.name)
        start = var(symbol) * unit.chunk + loop.lo
        body = _shifted(loop.body, {**here, **self.shifts(units, var(symbol))})
        part = replace(loop, lo=start, hi=minimum(start + unit.chunk, loop.hi), body=body)
        self.segments[segment.id] = replace(segment, body=(part,), is_loop=False)
        fetched, evicted = self.transfers(units, var(symbol))
        count = (loop.hi - loop.lo + (unit.chunk - 1)) // unit.chunk
        return Loop(symbol, const(0), count, loop.direction, (*fetched, CallSegment(segment.id), *evicted))


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

    held = _held_by_slots(block) if shifts else set[str]()

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
