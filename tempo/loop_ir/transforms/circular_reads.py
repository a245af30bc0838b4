"""Circular buffers read as they lie, where the order of positions makes no difference.

The last w points of a dim lie in a buffer of w positions, turned by where the last one was written. To read them in
order is to copy them. What takes each alone and adds them up, or takes their maximum, gives the same of any order; so
does attention, for keys and values turned alike. Before the buffer is full its first positions are the points in order.

Outputs of which a caller takes a few points at a time need no place for more: they become circular buffers along the
dim that the caller steps through, unless the program reads them: then all their points are there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.loop_ir.analysis.names import operands, used
from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Block,
    Buffer,
    CallHost,
    Compute,
    LoopProgram,
    Read,
    Statement,
    WindowIndex,
    Write,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten_program
from tempo.loop_ir.transforms.dynamic_extent.regions import FOLDED, factor_along
from tempo.sdg.graph import Port
from tempo.sdg.operators import Role
from tempo.symbolic import Context, Expr, Symbol, const

Resolve = Callable[[Expr], int]


@dataclass(frozen=True)
class CircularReads:
    """The program with such reads as one slice of the whole buffer."""

    name: ClassVar[str] = "circular_reads"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        rewriter = _AnyOrder(program.buffers, lambda expr: int(expr.evaluate(context.sizes)))
        return rewritten_program(program, finish=rewriter.block)


@dataclass(frozen=True)
class _AnyOrder:
    buffers: Mapping[int, Buffer]
    resolve: Resolve

    def block(self, block: Block, scope: BlockScope) -> Block:
        for window in dict.fromkeys(window for _, _, window in self.turned(block)):
            reads = {read.result: axis for read, axis, each in self.turned(block) if each == window}
            if _in_any_order(block, scope.leaving, reads, window, self.resolve):
                whole = replace(window, start=const(0), exact=True)
                block = tuple(_with_window(each, reads, window, whole) for each in block)
        return block

    def turned(self, block: Block) -> Iterator[tuple[Read, int, WindowIndex]]:
        """The reads of all that a circular axis holds: with the axis of what is seen, and the window."""
        for read in block:
            if not isinstance(read, Read):
                continue
            windows = [
                (axis, entry)
                for axis, entry in zip(self.buffers[read.buffer].axes, read.index, strict=True)
                if isinstance(entry, WindowIndex)
            ]
            for at, (axis, entry) in enumerate(windows):
                if axis.kind != "window" or not axis.extent.is_const:
                    continue
                size = axis.extent.as_int()
                if self.resolve(entry.extent) == size and _is_all(entry, size):
                    yield read, at, entry


def _is_all(window: WindowIndex, size: int) -> bool:
    """Whether the window is all of the buffer wherever it does not begin at 0; it may be so already."""
    if window.length is None:
        return True
    nowhere = Context.of(())
    later = nowhere.assume(window.start.ge(1))
    return window.start != const(0) and nowhere.implies(window.start.ge(0)) and later.implies(window.length.ge(size))


def _in_any_order(
    block: Block, kept: frozenset[str], reads: Mapping[str, int], window: WindowIndex, resolve: Resolve
) -> bool:
    """Whether all that is made of the reads is the same for any order along the axis, if they all have the same."""
    axes = dict(reads)
    for statement in block:
        if axes.keys().isdisjoint(used((statement,))):
            continue
        if not isinstance(statement, Assign | Compute):
            return False
        seen = [axes.get(name) for name in operands(statement)]
        axis = seen[0] if isinstance(statement, Assign) else _along(statement, seen, window, resolve)
        if axis is None:
            return False
        if axis != FOLDED:
            axes[statement.result] = axis
    return kept.isdisjoint(axes)


def _along(compute: Compute, axes: list[int | None], window: WindowIndex, resolve: Resolve) -> int | None:
    """The axis of the result, or `FOLDED`; None where the order matters, or that is not known."""
    factor = factor_along(compute, axes, resolve)
    if factor is None or list(factor.operands) != axes:
        return None
    is_told = "length" in compute.attrs
    if (is_told and compute.scalars[0] != (window.length or window.extent)) or (factor.ordered and not is_told):
        return None
    if factor.role is Role.REDUCING:
        return FOLDED
    return factor.result if factor.role is Role.PARALLEL else None


def _with_window(statement: Statement, reads: Mapping[str, int], old: WindowIndex, new: WindowIndex) -> Statement:
    if not isinstance(statement, Read) or statement.result not in reads:
        return statement
    return replace(statement, index=tuple(new if entry == old else entry for entry in statement.index))


@dataclass(frozen=True)
class ChunkedOutputs:
    """The program with no more points of the outputs of `LoopContext.narrow` than it says, where nothing reads them."""

    name: ClassVar[str] = "chunked_outputs"
    needed: ClassVar[str] = "a stream that has no end keeps no more points than it gives"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        if context.narrow is None:
            return program
        outputs, dim, width = context.narrow
        narrow = {program.outputs[Port("output", name)] for name in outputs} - _needed_whole(program, dim)
        axes = {id: _position(program.buffers[id], dim) for id in narrow}
        narrowed = {id: _narrowed(program.buffers[id], axis, width) for id, axis in axes.items()}

        def turned(write: Write) -> Write:
            if write.buffer not in axes:
                return write
            at = axes[write.buffer]
            return replace(write, index=(*write.index[:at], write.index[at] % width, *write.index[at + 1 :]))

        def changed(each: Statement, scope: BlockScope) -> Block | None:
            match each:
                case Write():
                    return (turned(each),)
                case CallHost(writes=writes):
                    return (replace(each, writes=tuple(map(turned, writes))),)
            return None

        return replace(rewritten_program(program, changed), buffers={**program.buffers, **narrowed})


def is_chunked(buffer: Buffer, dim: Symbol) -> bool:
    """Whether the buffer of an output has only the points along `dim` that were made last."""
    return any(axis.dim == dim and axis.kind == "window" for axis in buffer.axes)


def _position(buffer: Buffer, dim: Symbol) -> int:
    return next(at for at, axis in enumerate(buffer.axes) if axis.dim == dim)


def _narrowed(buffer: Buffer, at: int, width: int) -> Buffer:
    axis = buffer.axes[at]
    narrow = Axis(axis.dim, axis.position, "window", const(width))
    return replace(buffer, axes=(*buffer.axes[:at], narrow, *buffer.axes[at + 1 :]))


def _needed_whole(program: LoopProgram, dim: Symbol) -> frozenset[int]:
    """The buffers that are read, or of which several points along `dim` are written at once."""
    found: set[int] = set()
    for each in program.statements():
        if isinstance(each, Read):
            found.add(each.buffer)
        if isinstance(each, Write) and not each.is_point:
            axes = zip(program.buffers[each.buffer].axes, each.extents, strict=True)
            found.update(each.buffer for axis, extent in axes if extent is not None and axis.dim == dim)
    return frozenset(found)
