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
from functools import partial
from typing import ClassVar

from tempo.loop_ir.ir import (
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
from tempo.loop_ir.transforms.dynamic_extent.regions import Axes, Entry, RegionFinder, Tracked, factor_along
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
        reads = (each for each in block if isinstance(each, Read))
        for window in dict.fromkeys(each.window for read in reads for each in self.turned(read)):
            length, size = window.length or window.extent, self.resolve(window.extent)
            finder = RegionFinder(length, size, partial(self.entries, window), partial(self.along, length))
            whole = replace(window, start=const(0), exact=True)
            turned = (each for region in finder.regions(block, scope.leaving) for each in region.entries)
            made = {id(each.read): each.with_window(whole) for each in turned}
            block = tuple(made.get(id(each), each) for each in block)
        return block

    def entries(self, window: WindowIndex, read: Read) -> list[Entry]:
        return [each for each in self.turned(read) if each.window == window]

    def turned(self, read: Read) -> Iterator[Entry]:
        """What a read sees of all that a circular axis holds."""
        for place, entry in enumerate(read.index):
            axis = self.buffers[read.buffer].axes[place]
            if not isinstance(entry, WindowIndex) or axis.kind != "window" or not axis.extent.is_const:
                continue
            size = axis.extent.as_int()
            if self.resolve(entry.extent) == size and _is_all(entry, size):
                yield Entry(read, place, None)

    def along(self, length: Expr, compute: Compute, axes: Axes) -> Tracked | None:
        """None where the order matters, or that is not known."""
        factor = factor_along(compute, axes, self.resolve)
        if factor is None or factor.operands != tuple(axes) or factor.role not in (Role.PARALLEL, Role.REDUCING):
            return None
        is_told = "length" in compute.attrs
        if (is_told and compute.scalars[0] != length) or (factor.ordered and not is_told):
            return None
        return Tracked(compute, factor)


def _is_all(window: WindowIndex, size: int) -> bool:
    """Whether the window is all of the buffer wherever it does not begin at 0; it may be so already."""
    if window.length is None:
        return True
    nowhere = Context.of(())
    later = nowhere.assume(window.start.ge(1))
    return window.start != const(0) and nowhere.implies(window.start.ge(0)) and later.implies(window.length.ge(size))


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


def _needed_whole(program: LoopProgram, dim: Symbol) -> set[int]:
    """The buffers that are read, or of which several points along `dim` are written at once."""
    read = {each.buffer for each in program.statements() if isinstance(each, Read)}
    writes = [each for each in program.statements() if isinstance(each, Write)]
    axes = ((each, zip(program.buffers[each.buffer].axes, each.extents)) for each in writes)
    return read.union(each.buffer for each, of in axes for axis, many in of if many is not None and axis.dim == dim)
