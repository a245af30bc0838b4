"""What goes in and out of a segment: not the slots that are written anew before anything reads them.

A backend that compiles whole segments pays for each array that goes in and out of a call, and a loop of the host makes
a call at every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo import dtypes
from tempo.loop_ir.analysis.liveness import Liveness
from tempo.loop_ir.analysis.whole_points import replaced
from tempo.loop_ir.ir import Buffer, LoopProgram, Segment
from tempo.loop_ir.passes import LoopContext

_SMALL = 1 << 16
"""Bytes. What is written to a larger slot is better written to where the last value was, so that goes in."""


@dataclass(frozen=True)
class PassThrough:
    """The program whose segments return no more than something may read, and are given no more than they read. The
    latter where segments make the buffers that they are given None for."""

    name: ClassVar[str] = "pass_through"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        remembered = replaced(program)
        segments = tuple(_less(each, program, context, remembered) for each in program.segments)
        return replace(program, segments=segments)


def _less(segment: Segment, program: LoopProgram, context: LoopContext, remembered: frozenset[int]) -> Segment:
    live = Liveness(program, segment, [segment.body])
    slots = {id for id in segment.buffers if program.buffers[id].is_slot}
    scratch = {id for id in slots.intersection(segment.results) if id not in live.at_end}
    results = tuple(id for id in segment.results if id not in scratch)
    if not context.allocates_inside:
        return replace(segment, results=results)
    made = (program.buffers[id] for id in slots.intersection(results) if id not in live.at_start)
    anew = {each.id for each in made if each.role == "internal" and (each.id in remembered or _is_small(each, context))}
    return replace(segment, results=results, unread=frozenset(scratch if segment.loop else scratch | anew))


def _is_small(buffer: Buffer, context: LoopContext) -> bool:
    return math.prod(buffer.extents(context.sizes)) * dtypes.itemsize(buffer.dtype) <= _SMALL
