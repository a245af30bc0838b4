"""Streamed inputs that are taken some points ahead of the segment that reads them.

A loop of the host around a streamed input calls a segment for every array, and all that an iteration hands on goes in
and out of each call. An iterator depends on nothing that a segment makes, so the loop is strip-mined and distributed:
the arrays of some iterations are taken first, into a staging buffer, and their segment, now a loop, runs over these
iterations in one call. Where the call of the host was, the segment moves what was taken to where the call wrote it, so
all else is as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tempo import dtypes
from tempo.loop_ir.analysis.whole_points import marks
from tempo.loop_ir.ir import (
    Assign,
    Axis,
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
    Write,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.loop_ir.transforms.forwarding import forwarded
from tempo.symbolic import Symbol, const, var

MOST_BYTES = 1 << 22  # of the arrays of a strip together: a larger array takes longer than a call


_OF_THE_HOST = CallHost | Read | Write | CallSegment | Branch | Guard


@dataclass(frozen=True)
class TakeAhead:
    """The program with loops in strips of at most so many points, where the host does no more than to take arrays."""

    name: ClassVar[str] = "read_ahead"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        if not context.fuses_segments:
            return program
        strips = {at: _strip(program, at, context.sizes, context.ahead) for at in range(len(program.items))}
        return _Distribution(program).done(strips) if any(strip > 1 for strip in strips.values()) else program


def _strip(program: LoopProgram, number: int, sizes: Mapping[Symbol, int], most: int) -> int:
    """How many points of an item are taken at once. A segment that may fail is called for each, since what has been
    taken for points behind it would be lost."""
    loop = program.items[number]
    if not isinstance(loop, Loop) or loop.direction != "forward" or number not in program.offsets:
        return 1
    inside = tuple(walk(loop.body))
    calls = [each for each in inside if isinstance(each, CallHost)]
    if not calls or not all(isinstance(each, _OF_THE_HOST) for each in inside):
        return 1
    if not all(program.hosts[call.call].is_stream for call in calls) or _may_fail(program.called(loop.body)):
        return 1
    taken = (program.hosts[call.call].type for call in calls)
    bytes = sum(
        math.prod(int(extent.evaluate(sizes)) for extent in type.shape) * dtypes.itemsize(type.dtype) for type in taken
    )
    strip = min(most, MOST_BYTES // max(bytes, 1))
    return strip if strip > kept_back(program, number, loop) else 1


def kept_back(program: LoopProgram, number: int, loop: Loop) -> int:
    """How many iterations before a call that fails are run one by one, since each of them is to be remembered."""
    return marks(program, number, loop.var).depth - 2


def staging(loop: Loop) -> tuple[int, ...]:
    """The buffers that the arrays of a strip are taken into."""
    return tuple(each.buffer for each in walk(loop.body) if isinstance(each, Write)) if loop.strip > 1 else ()


def _may_fail(segments: Iterable[Segment]) -> bool:
    computes = (each for segment in segments for each in walk(segment.body) if isinstance(each, Compute))
    return any(each.attrs.get("checked") for each in computes)


@dataclass
class _Distribution:
    program: LoopProgram
    segments: list[Segment] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def done(self, strips: Mapping[int, int]) -> LoopProgram:
        items: list[Statement] = []
        for number, item in enumerate(self.program.items):
            if isinstance(item, Loop) and strips[number] > 1:
                items.append(self.distributed(item, strips[number]))
            else:
                items.extend(rewritten((item,), self.renumbered))
        buffers = {**self.program.buffers, **{each.id: each for each in self.buffers}}
        return replace(self.program, items=tuple(items), segments=tuple(self.segments), buffers=buffers)

    def renumbered(self, statement: Statement, scope: BlockScope) -> Block | None:
        if not isinstance(statement, CallSegment):
            return None
        id = len(self.segments)
        self.segments.append(replace(self.program.segments[statement.segment], id=id))
        return (CallSegment(id),)

    def distributed(self, loop: Loop, strip: int) -> Loop:
        staged = {
            id(each): self.staged(each, loop, strip)
            for each in walk(loop.body)
            if isinstance(each, CallHost) and each.writes
        }
        (inner,) = forwarded((replace(loop, body=self.iteration(loop.body, staged, loop, strip)),))
        assert isinstance(inner, Loop)
        self.segments.append(Segment.of(len(self.segments), (inner,), is_loop=True))
        calls = self.calls(loop.body, staged, loop, strip)
        return replace(loop, body=(*calls, CallSegment(len(self.segments) - 1)), strip=strip)

    def staged(self, call: CallHost, loop: Loop, strip: int) -> Buffer:
        """A place for what a call takes in a strip."""
        node = self.program.hosts[call.call]
        axes = (Axis(loop.var, 0, "window", const(strip)),)
        number = len(self.program.buffers) + len(self.buffers)
        self.buffers.append(Buffer(number, node.name, node.dtype, axes, node.shape, location=node.location))
        return self.buffers[-1]

    def iteration(self, block: Block, staged: Mapping[int, Buffer], loop: Loop, strip: int) -> Block:
        """What the segment does in place of the block."""

        def inside(each: Statement, scope: BlockScope) -> Block | None:
            match each:
                case CallSegment(number):
                    return self.program.segments[number].body
                case CallHost(call, writes=writes) if writes:
                    name = f"taken___{call}"  # no tensor's: see `RunLowering.name`
                    index = (PointIndex(var(loop.var) % strip),)
                    taken = (Read(f"{name}___0", staged[id(each)].id, index), Assign(name, f"{name}___0"))
                    return (*taken, *(replace(write, value=name) for write in writes))
                case CallHost():
                    return ()
            return None

        return rewritten(block, inside)

    def calls(self, block: Block, staged: Mapping[int, Buffer], loop: Loop, strip: int) -> Block:
        """What the host does in place of the block."""

        def outside(each: Statement, scope: BlockScope) -> Block | None:
            match each:
                case CallSegment():
                    return ()
                case CallHost(writes=writes):
                    index = (var(loop.var) % strip,)
                    taken = (Write(staged[id(each)].id, index, write.value) for write in writes[:1])
                    return (replace(each, writes=tuple(taken)),)
            return None

        return rewritten(block, outside)
