"""Outputs of which a caller takes a few points at a time: they need no place for more.

Such an output becomes a circular buffer along the dim that the caller steps through, unless the program reads it: then
all its points are there anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.loop_ir.ir import Axis, Block, Buffer, CallHost, LoopProgram, Read, Statement, Write
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten_program
from tempo.sdg.graph import Port
from tempo.symbolic import Symbol, const


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
