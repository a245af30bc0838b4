"""Partial dead store elimination: a slot is written where something reads what is written.

    for i in 0..T: ...; b2 = w              for i in 0..T: ...; if i >= T - 1: b2 = w
    b3 = b2                                 b3 = b2

What a program gives back of its last point is written at every point, and what it was holds the memory of a point for
an iteration longer than anything reads it. (Knoop, Rüthing and Steffen, "Partial dead code elimination", 1994.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.analysis.needed_slots import NeededSlots, bytes_at
from tempo.loop_ir.ir import Block, Branch, LoopProgram, Read, Segment, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, returning_what_it_writes, rewritten, with_segments
from tempo.symbolic import TRUE


@dataclass(frozen=True)
class DeadStores:
    """For backends for which another branch costs nothing that counts: those whose loops are Python's."""

    name: ClassVar[str] = "dead_stores"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return with_segments(program, partial(_needed, program, context))


def _needed(program: LoopProgram, context: LoopContext, segment: Segment) -> Segment:
    found = NeededSlots.of(program, segment, bytes_at(context.sizes))
    every = list(walk(segment.body))
    dead, stores = Counter[int](), Counter[int]()
    for write in (each for each in every if isinstance(each, Write)):
        stores[write.buffer] += 1
        dead[write.buffer] += not found.needed(write)
    looked_at = {each.buffer for each in every if isinstance(each, Read)}  # in a choice that is never taken, then
    kept = {id for id in looked_at if dead[id] == stores[id]}
    body = rewritten(segment.body, partial(_where_read, found, kept))
    return returning_what_it_writes(replace(segment, body=body))


def _where_read(found: NeededSlots, kept: Set[int], statement: Statement, scope: BlockScope) -> Block | None:
    if not isinstance(statement, Write) or statement.buffer in kept:
        return None
    needed = found.needed(statement)
    if not needed:
        return ()
    return None if TRUE in needed or len(needed) > 1 else (Branch(needed[0], (statement,)),)
