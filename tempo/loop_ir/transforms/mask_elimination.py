"""Masks of what nothing has written yet: a buffer that begins as zeros already holds what such a mask would put there.

    v = read(b, [0, hull));  mask(v, t + 1, fill 0)      where point t of b is written at t

A mask costs a copy of all that is read, where what comes next is a contraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.ir import (
    Assign,
    Block,
    Buffer,
    CallSegment,
    Compute,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    nested,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.sdg.exact import same
from tempo.symbolic import Condition, Context, Expr, Symbol, const, var


@dataclass(frozen=True)
class MaskElimination:
    """The program without these masks; the buffers that they look at begin as zeros (`Buffer.zeroed`)."""

    name: ClassVar[str] = "mask_elimination"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        rewriter = _IdleMasks(program, context.sizes)
        segments = rewriter.segments()
        buffers = {id: replace(each, zeroed=id in rewriter.zeroed) for id, each in program.buffers.items()}
        return replace(program, segments=segments, buffers=buffers) if rewriter.zeroed else program


def idle_masks(program: LoopProgram, sizes: Mapping[Symbol, int]) -> frozenset[str]:
    """The names that these masks give to what they let through."""
    rewriter = _IdleMasks(program, sizes)
    rewriter.segments()
    return frozenset(rewriter.idle)


@dataclass(frozen=True)
class _Writing:
    """`item`: its place among the items. `path`: what is around it, outer first; in front the item itself."""

    write: Write
    item: int
    path: Block


class _IdleMasks:
    def __init__(self, program: LoopProgram, sizes: Mapping[Symbol, int]) -> None:
        self.program, self.sizes = program, sizes
        self.items: dict[int, tuple[int, Block]] = {}  # of a segment, where it is called
        self.writes: dict[int, list[_Writing]] = {}
        self.zeroed: set[int] = set()
        self.idle: set[str] = set()
        for item, statement in enumerate(program.items):
            self._find((statement,), item, ())

    def _find(self, block: Block, item: int, path: Block) -> None:
        for statement in block:
            if isinstance(statement, CallSegment):
                self.items[statement.segment] = item, path
                self._find(self.program.segments[statement.segment].body, item, path)
            if isinstance(statement, Write):
                self.writes.setdefault(statement.buffer, []).append(_Writing(statement, item, path))
            for inner in nested(statement):
                self._find(inner, item, (*path, statement))

    def segments(self) -> tuple[Segment, ...]:
        return tuple(self.segment(number, each) for number, each in enumerate(self.program.segments))

    def segment(self, number: int, segment: Segment) -> Segment:
        if number not in self.items:
            return segment
        item, path = self.items[number]
        return replace(segment, body=rewritten(segment.body, finish=partial(self.block, item), scope=BlockScope(path)))

    def block(self, item: int, block: Block, scope: BlockScope) -> Block:
        reads: dict[str, Read] = {}
        found: list[Statement] = []
        for statement in block:
            match statement:
                case Read(result=result):
                    reads[result] = statement
                case Assign(result=result, value=value) if value in reads:
                    reads[result] = reads[value]
                case Compute(operands=(value, *_)) if statement.is_mask and value in reads:
                    statement = self.without_idle(statement, reads[value], item, scope.path)
            found.append(statement)
        return tuple(found)

    def without_idle(self, mask: Compute, read: Read, item: int, path: Block) -> Statement:
        """The mask; what it looks at under its name where it is idle."""
        if not self.is_idle(mask, read, item, path):
            return mask
        self.zeroed.add(read.buffer)
        self.idle.add(mask.result)
        return Assign(mask.result, mask.operands[0])

    def is_idle(self, mask: Compute, read: Read, item: int, path: Block) -> bool:
        """Whether nothing was written yet where the mask puts zeros."""
        buffer, (length,) = self.program.buffers[read.buffer], mask.scalars
        assert isinstance(length, Expr)
        at = _entry(read, mask.attrs["axis"] % len(mask.type.shape))
        if not same(float(mask.attrs["fill"]), 0.0) or buffer.role != "internal" or at is None:
            return False
        window = read.index[at]
        assert isinstance(window, WindowIndex)
        if not self._in_a_row(buffer, at, window):
            return False
        here = Context.of((), *_facts(path), length.lt(window.extent))
        end = window.start + length
        return all(self._is_before(each, at, item, path, end, here) for each in self.writes.get(buffer.id, ()))

    def _in_a_row(self, buffer: Buffer, at: int, window: WindowIndex) -> bool:
        """Whether the window sees positions of the buffer as they lie, each once."""
        axis = buffer.axes[at]
        if axis.kind == "full" and window.exact:
            return True
        needed = axis.extent.symbols() | window.extent.symbols()
        if window.start != const(0) or not needed <= self.sizes.keys():
            return False
        return int(window.extent.evaluate(self.sizes)) <= int(axis.extent.evaluate(self.sizes))

    def _is_before(self, writing: _Writing, at: int, item: int, path: Block, end: Expr, here: Context) -> bool:
        """Whether all that it has written when the read runs lies before `end`."""
        write = writing.write
        if writing.item > item:
            return True
        if len(write.index) <= at:
            return False
        own = {each.var: _other(each.var) for each in writing.path if isinstance(each, Loop)}
        facts = [each.map_exprs(lambda expr: _renamed(expr, own)) for each in _facts(writing.path)]
        first = writing.path[0] if writing.path and path and writing.path[0] is path[0] else None
        if isinstance(first, Loop):
            earlier, now = var(own[first.var]), var(first.var)
            facts.append(earlier.le(now) if first.direction == "forward" else earlier.ge(now))
        extent = write.extents[at]
        last = write.index[at] + (const(1) if extent is None else extent)
        there = here.assume(*facts)
        return there.implies(there.simplify(_renamed(last, own)).le(end))


def _entry(read: Read, axis: int) -> int | None:
    """Where in the index of the read an axis of its result is; None: beyond."""
    windows = [at for at, entry in enumerate(read.index) if isinstance(entry, WindowIndex)]
    return windows[axis] if axis < len(windows) else None


def _facts(path: Block) -> Iterator[Condition]:
    for each in path:
        if isinstance(each, Loop):
            yield var(each.var).ge(each.lo)
            yield var(each.var).lt(each.hi)


def _other(symbol: Symbol) -> Symbol:
    """The variable of a loop at another of its iterations."""
    return replace(symbol, name=f"{symbol.name}'")


def _renamed(expr: Expr, names: Mapping[Symbol, Symbol]) -> Expr:
    return expr.substitute({old: var(new) for old, new in names.items()})
