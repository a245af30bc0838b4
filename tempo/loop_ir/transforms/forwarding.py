"""Store-to-load forwarding: what a block has just written is not read out of its buffer again.

A value that other loops need too lives in a buffer, also for those that use it where it is made. For a backend that
compiles loops, such a read is worse than needless: a buffer that is read after it was written is copied whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from tempo.loop_ir.ir import Assign, Block, Loop, LoopProgram, PointIndex, Read, Statement, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import with_blocks, with_segments
from tempo.symbolic import Expr

Place = tuple[tuple[Expr, ...], tuple[Expr | None, ...]]
"""In a buffer, from where and how far: None for an axis that is read or written at one point."""


@dataclass(frozen=True)
class Forwarding:
    name: ClassVar[str] = "forwarding"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return with_segments(program, lambda each: replace(each, body=forwarded(each.body)))


def forwarded(block: Block, known: Mapping[int, tuple[Place, str]] = MappingProxyType({})) -> Block:
    """The block with reads of what is known replaced by assignments; `known` is by buffer what was written last, where.

    Two places of one buffer may be the same, so a write makes all others of its buffer unknown.
    """
    now = dict(known)
    found: list[Statement] = []
    for statement in block:
        found.append(_forwarded(statement, now))
        _forget(now, (statement,))
        if isinstance(statement, Write):
            now[statement.buffer] = (statement.index, statement.extents), statement.value
    return tuple(found)


def _forwarded(statement: Statement, known: Mapping[int, tuple[Place, str]]) -> Statement:
    if isinstance(statement, Read) and not statement.fresh:
        place, value = known.get(statement.buffer, (None, ""))
        return Assign(statement.result, value) if place == _place(statement) else statement
    if isinstance(statement, Loop):
        known = dict(known)
        _forget(known, statement.body)
    return with_blocks(statement, lambda block: forwarded(block, known))


def _place(read: Read) -> Place:
    starts = tuple(entry.index if isinstance(entry, PointIndex) else entry.start for entry in read.index)
    extents = tuple(None if isinstance(entry, PointIndex) else entry.extent for entry in read.index)
    return starts, extents


def _forget(known: dict[int, tuple[Place, str]], block: Block) -> None:
    for each in walk(block):
        if isinstance(each, Write):
            known.pop(each.buffer, None)
