"""Partial dead store elimination: a slot is written where something reads what is written.

    for i in 0..T: ...; b2 = w              for i in 0..T: ...; if i >= T - 1: b2 = w
    b3 = b2                                 b3 = b2

What a program gives back of its last point is written at every point, and what it was holds the memory of a point for
an iteration longer than anything reads it. (Knoop, Rüthing and Steffen, "Partial dead code elimination", 1994.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.analysis.needed_slots import NeededSlots, bytes_at
from tempo.loop_ir.ir import Block, Branch, LoopProgram, Segment, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.symbolic import TRUE


@dataclass(frozen=True)
class DeadStores:
    """For backends for which another branch costs nothing that counts: those whose loops are Python's."""

    name: ClassVar[str] = "dead_stores"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return with_segments(program, partial(_needed, program, context))


def _needed(program: LoopProgram, context: LoopContext, segment: Segment) -> Segment:
    found = NeededSlots.of(program, segment, bytes_at(context.sizes))
    body = rewritten(segment.body, partial(_where_read, found))
    written = {each.buffer for each in walk(body) if isinstance(each, Write)}
    return replace(segment, body=body, results=tuple(id for id in segment.results if id in written))


def _where_read(found: NeededSlots, statement: Statement, scope: BlockScope) -> Block | None:
    needed = found.needed(statement) if isinstance(statement, Write) else (TRUE,)
    if not needed:
        return ()
    return None if TRUE in needed or len(needed) > 1 else (Branch(needed[0], (statement,)),)
