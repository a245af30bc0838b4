"""What a segment hands on: not the slots that are written anew before anything reads them.

A backend that compiles whole segments pays for each array that goes in and out of a call, and a loop of the host makes
a call at every step.
"""

from __future__ import annotations

from dataclasses import replace

from tempo.lowering.liveness import Liveness
from tempo.lowering.loop_ir import LoopProgram, Segment, Write, walk


def without_scratch(program: LoopProgram) -> LoopProgram:
    """The program whose segments return no more than something may read."""
    return replace(program, segments=tuple(_leaving(program, segment) for segment in program.segments))


def _leaving(program: LoopProgram, segment: Segment) -> Segment:
    live = Liveness(program, segment, [segment.body]).at_end
    kept = (id for id in segment.results if id in live or not program.buffers[id].is_slot)
    return replace(segment, results=tuple(kept))


def scratch(segment: Segment) -> frozenset[int]:
    """The slots that live in one call of the segment: nobody need give it any."""
    written = {each.buffer for each in walk(segment.body) if isinstance(each, Write)}
    return frozenset(written.difference(segment.results))
