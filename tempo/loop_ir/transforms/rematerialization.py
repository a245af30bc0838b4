"""Rematerialization: of what is kept, what is only another view of all of it is made again where it is read.

    b1[t] = x; b2[t] = reshape(x)    ...    y = b2[t]        b1[t] = x    ...    y = reshape(b1[t])

A recurrence keeps for its gradient whatever that reads: an array, and the same array in another shape. (Briggs, Cooper
and Torczon, "Rematerialization", PLDI 1992.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.loop_ir.analysis.names import blocks
from tempo.loop_ir.ir import Block, Compute, LoopProgram, PointIndex, Read, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, returning_what_it_writes, rewritten_program, with_segments
from tempo.sdg.operators import OPERATORS


@dataclass(frozen=True)
class Rematerialization:
    """Arrays of all points, read point by point. Of views of views the first is kept."""

    name: ClassVar[str] = "rematerialization"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        found = dict(_views(program))
        if not found:
            return program

        def changed(each: Statement, scope: BlockScope) -> Block | None:
            if isinstance(each, Write) and each.buffer in found:
                return ()
            return tuple(_read(each, found)) if isinstance(each, Read) and each.buffer in found else None

        made = with_segments(rewritten_program(program, changed), returning_what_it_writes)
        offsets = {item: {id: at for id, at in each.items() if id not in found} for item, each in made.offsets.items()}
        return replace(made, offsets=offsets)


@dataclass(frozen=True)
class _View:
    """What a buffer holds is what `made` makes of what buffer `of` holds at the same point."""

    of: int
    made: Compute


def _views(program: LoopProgram) -> Iterator[tuple[int, _View]]:
    statements = list(program.statements())
    writes = Counter(each.buffer for each in statements if isinstance(each, Write))
    whole = {each.buffer for each in statements if isinstance(each, Read) and not _is_of_a_point(each)}
    looked_at = {*program.outputs.values(), *(each.read.buffer for each in program.states.values())}
    looked_at.update(each.buffer for each in walk(program.items) if isinstance(each, Read | Write))

    def may_be(id: int) -> bool:
        buffer = program.buffers[id]
        return (
            buffer.role == "internal"
            and bool(buffer.axes)
            and not buffer.is_circular
            and not buffer.local
            and writes[id] == 1
            and id not in looked_at
        )

    for segment in program.segments:
        for block in blocks(segment.body):
            made = {each.result: each for each in block if isinstance(each, Compute)}
            kept: dict[str, Write] = {}
            for each in block:
                if not isinstance(each, Write) or not each.is_point or not may_be(each.buffer):
                    continue
                value = made.get(each.value)
                of = kept.get(value.operands[0]) if value is not None and _is_view(value) else None
                if value is None or of is None or each.buffer in whole or not _alike(program, each, of):
                    kept[each.value] = each
                else:
                    yield each.buffer, _View(of.buffer, value)


def _is_view(value: Compute) -> bool:
    """Of all of its one operand, at every point alike."""
    operator = OPERATORS[value.op]
    return operator.views and operator.kind == "movement" and len(value.operands) == 1 and not value.scalars


def _is_of_a_point(read: Read) -> bool:
    return not read.fresh and all(isinstance(entry, PointIndex) for entry in read.index)


def _alike(program: LoopProgram, one: Write, other: Write) -> bool:
    return one.index == other.index and program.buffers[one.buffer].axes == program.buffers[other.buffer].axes


def _read(read: Read, views: Mapping[int, _View]) -> Iterator[Statement]:
    view = views[read.buffer]
    name = f"{read.result}_of"
    yield replace(read, result=name, buffer=view.of)
    yield replace(view.made, result=read.result, operands=(name,))
