"""Store-to-load forwarding: what a block has just written is not read out of its buffer again.

A value that other loops need too lives in a buffer, also for those that use it where it is made. For a backend that
compiles loops, such a read is worse than needless: a buffer that is read after it was written is copied whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.loop_ir.ir import Assign, Block, Loop, LoopProgram, PointIndex, Read, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import with_blocks
from tempo.symbolic import Expr

Place = tuple[int, tuple[Expr, ...], tuple[Expr | None, ...]]
"""A buffer, from where and how far: None for an axis that is read or written at one point."""


@dataclass(frozen=True)
class Forwarding:
    name: ClassVar[str] = "forwarding"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        segments = tuple(replace(each, body=forwarded(each.body)) for each in program.segments)
        return replace(program, segments=segments)


def forwarded(block: Block, known: dict[Place, str] | None = None) -> Block:
    """The block with reads of what is known replaced by assignments; `known` are the names of values, by place.

    Two places of one buffer may be the same, so a write makes all others of its buffer unknown.
    """
    known = {} if known is None else dict(known)
    found: list[Statement] = []
    for statement in block:
        found.append(_forwarded(statement, known))
        _forget(known, {each.buffer for each in walk((statement,)) if isinstance(each, Write)})
        if isinstance(statement, Write):
            known[statement.buffer, statement.index, statement.extents] = statement.value
    return tuple(found)


def _forwarded(statement: Statement, known: dict[Place, str]) -> Statement:
    if isinstance(statement, Read) and not statement.fresh:
        place = _place(statement)
        return Assign(statement.result, known[place]) if place in known else statement
    if isinstance(statement, Loop):
        known = dict(known)
        _forget(known, {each.buffer for each in walk(statement.body) if isinstance(each, Write)})
    return with_blocks(statement, lambda block: forwarded(block, known))


def _place(read: Read) -> Place:
    starts = tuple(entry.index if isinstance(entry, PointIndex) else entry.start for entry in read.index)
    extents = tuple(None if isinstance(entry, PointIndex) else entry.extent for entry in read.index)
    return read.buffer, starts, extents


def _forget(known: dict[Place, str], buffers: Iterable[int]) -> None:
    gone = set(buffers)
    for place in [place for place in known if place[0] in gone]:
        del known[place]
