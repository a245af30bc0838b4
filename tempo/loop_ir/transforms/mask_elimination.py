"""Masks of what nothing has written yet: a buffer that begins as zeros already holds what such a mask would put there.

    v = read(b, [0, hull));  mask(v, t + 1, fill 0)      where point t of b is written at t

A mask costs a copy of all that is read, where what comes next is a contraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
    Statement,
    WindowIndex,
    Write,
    nested,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten_program
from tempo.sdg.exact import same
from tempo.symbolic import Condition, Context, Expr, Symbol, const, var


@dataclass(frozen=True)
class MaskElimination:
    """The program without these masks; the buffers that they look at begin as zeros (`Buffer.zeroed`)."""

    name: ClassVar[str] = "mask_elimination"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        idle = {id(each.mask): each for each in _IdleMasks(program, context.sizes).found()}

        def without(each: Statement, scope: BlockScope) -> Block | None:
            return (Assign(idle[id(each)].mask.result, idle[id(each)].mask.operands[0]),) if id(each) in idle else None

        zeroed = {each.read.buffer for each in idle.values()}
        buffers = {key: replace(each, zeroed=key in zeroed) for key, each in program.buffers.items()}
        return replace(rewritten_program(program, without), buffers=buffers) if idle else program


def idle_masks(program: LoopProgram, sizes: Mapping[Symbol, int]) -> frozenset[str]:
    """The names that these masks give to what they let through."""
    return frozenset(each.mask.result for each in _IdleMasks(program, sizes).found())


@dataclass(frozen=True)
class _Site:
    """Where a statement runs. `item`: its place among the items. `path`: what is around it, outer first; in front the
    item itself."""

    item: int
    path: Block


@dataclass(frozen=True)
class _Masking:
    """A mask of what `read` sees."""

    mask: Compute
    read: Read
    place: _Site


class _IdleMasks:
    def __init__(self, program: LoopProgram, sizes: Mapping[Symbol, int]) -> None:
        self.program, self.sizes = program, sizes
        self.writes: dict[int, list[tuple[Write, _Site]]] = {}
        self.masks: list[_Masking] = []
        for item, statement in enumerate(program.items):
            self._find((statement,), _Site(item, ()))

    def found(self) -> Iterator[_Masking]:
        return filter(self.is_idle, self.masks)

    def _find(self, block: Block, place: _Site) -> None:
        reads: dict[str, Read] = {}  # by all names that they go under
        for statement in block:
            match statement:
                case CallSegment(segment=number):
                    self._find(self.program.segments[number].body, place)
                case Write(buffer=buffer):
                    self.writes.setdefault(buffer, []).append((statement, place))
                case Read(result=result):
                    reads[result] = statement
                case Assign(result=result, value=value) if value in reads:
                    reads[result] = reads[value]
                case Compute(operands=(value, *_)) if statement.is_mask and value in reads:
                    self.masks.append(_Masking(statement, reads[value], place))
            for inner in nested(statement):
                self._find(inner, replace(place, path=(*place.path, statement)))

    def is_idle(self, each: _Masking) -> bool:
        """Whether nothing was written yet where the mask puts zeros."""
        mask, read = each.mask, each.read
        buffer, (length,) = self.program.buffers[read.buffer], mask.scalars
        assert isinstance(length, Expr)
        at = _entry(read, mask.attrs["axis"] % len(mask.type.shape))
        if not same(float(mask.attrs["fill"]), 0.0) or buffer.role != "internal" or at is None:
            return False
        window = read.index[at]
        assert isinstance(window, WindowIndex)
        if not self._in_a_row(buffer, at, window):
            return False
        here = Context.of((), *_facts(each.place.path), length.lt(window.extent))
        end, writes = window.start + length, self.writes.get(buffer.id, ())
        return all(_is_before(write, there, at, each.place, end, here) for write, there in writes)

    def _in_a_row(self, buffer: Buffer, at: int, window: WindowIndex) -> bool:
        """Whether the window sees positions of the buffer as they lie, each once."""
        axis = buffer.axes[at]
        if axis.kind == "full" and window.exact:
            return True
        needed = axis.extent.symbols() | window.extent.symbols()
        if window.start != const(0) or not needed <= self.sizes.keys():
            return False
        return int(window.extent.evaluate(self.sizes)) <= int(axis.extent.evaluate(self.sizes))


def _is_before(write: Write, there: _Site, at: int, place: _Site, end: Expr, here: Context) -> bool:
    """Whether all that was written there when the read runs lies before `end`."""
    if there.item > place.item:
        return True
    if len(write.index) <= at:
        return False
    loops = (each.var for each in there.path if isinstance(each, Loop))
    own = {each: var(replace(each, name=f"{each.name}'")) for each in loops}  # at another iteration
    facts = [each.substitute(own) for each in _facts(there.path)]
    first = there.path[0] if there.path and place.path and there.path[0] is place.path[0] else None
    if isinstance(first, Loop):
        earlier, now = own[first.var], var(first.var)
        facts.append(earlier.le(now) if first.direction == "forward" else earlier.ge(now))
    extent = write.extents[at]
    last = write.index[at] + (const(1) if extent is None else extent)
    known = here.assume(*facts)
    return known.implies(known.simplify(last.substitute(own)).le(end))


def _entry(read: Read, axis: int) -> int | None:
    """Where in the index of the read an axis of its result is; None: beyond."""
    windows = [at for at, entry in enumerate(read.index) if isinstance(entry, WindowIndex)]
    return windows[axis] if axis < len(windows) else None


def _facts(path: Block) -> Iterator[Condition]:
    for each in path:
        if isinstance(each, Loop):
            yield var(each.var).ge(each.lo)
            yield var(each.var).lt(each.hi)
