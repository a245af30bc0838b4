"""Coalescing: what is added to at indices lies where the sum will lie, if both are never needed at once.

    b0 = x                                      b1 = x
    for i in 0..1:                              for i in 0..1:
      v = b0; b1 = scatter_add(v, index, more)    v = b1; b1 = scatter_add(v, index, more)
    for i in 1..T:                              for i in 1..T:
      v = b1; b1 = scatter_add(v, index, more)    v = b1; b1 = scatter_add(v, index, more)

The first step then adds to what is there, as the others do, and copies nothing. (Chaitin, Auslander, Chandra, Cocke,
Hopkins and Markstein, "Register allocation via coloring", Computer Languages 6, 1981.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.loop_ir.analysis.liveness import Liveness, in_segments
from tempo.loop_ir.analysis.names import blocks
from tempo.loop_ir.ir import Assign, Block, CallSegment, Compute, LoopProgram, Read, Segment, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, returning_what_it_writes, rewritten, with_segments


@dataclass(frozen=True)
class Coalescing:
    """Slots of a segment that is called once. For backends whose compiler updates in place what a loop carries."""

    name: ClassVar[str] = "coalescing"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        calls = Counter(each.segment for each in program.items if isinstance(each, CallSegment))
        touched = Counter(id for segment in program.segments for id in segment.buffers)
        own = {id for id in in_segments(program) if touched[id] == 1 and program.buffers[id].is_slot}

        def coalesced(segment: Segment) -> Segment:
            if calls[segment.id] != 1:
                return segment
            while (pair := next(_pairs(program, segment, own), None)) is not None:
                segment = _renamed(segment, *pair)
            return segment

        return with_segments(program, coalesced)


def _pairs(program: LoopProgram, segment: Segment, own: set[int]) -> Iterator[tuple[int, int]]:
    """Slots of one type that are never needed at once, of which the second holds what was added to the first."""
    found = [(base, sum) for block in blocks(segment.body) for base, sum in _added(block) if base != sum]
    if not found:
        return
    together = Liveness(program, segment, [segment.body]).together()
    for base, sum in found:
        alike = {base, sum} <= own and _kind(program, base) == _kind(program, sum)
        if alike and base not in together[sum] and sum not in together[base]:
            yield base, sum


def _kind(program: LoopProgram, id: int) -> tuple[object, ...]:
    buffer = program.buffers[id]
    return buffer.dtype, buffer.shape


def _added(block: Block) -> Iterator[tuple[int, int]]:
    """By sum that a block writes to a slot, the slots in which lies what it may be added to."""
    updates = {each.result: each for each in block if isinstance(each, Compute) and each.op == "scatter_add"}
    for write in block:
        if isinstance(write, Write) and write.value in updates and not write.index:
            for read in _reads(block, updates[write.value].operands[0]):
                yield read.buffer, write.buffer


def _reads(block: Block, name: str) -> Iterator[Read]:
    """The reads of slots that a name may be, by itself or by a choice."""
    for each in walk(block):
        if isinstance(each, Read) and each.result == name and not each.index:
            yield each
        if isinstance(each, Assign) and each.result == name:
            yield from _reads(block, each.value)


def _renamed(segment: Segment, old: int, new: int) -> Segment:
    def changed(each: Statement, scope: BlockScope) -> Block | None:
        return (replace(each, buffer=new),) if isinstance(each, Read | Write) and each.buffer == old else None

    return returning_what_it_writes(replace(segment, body=rewritten(segment.body, changed)))
