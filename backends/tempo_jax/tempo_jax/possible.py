"""What can run at all: code that only other sizes reach has shapes that make no sense at these, and is never traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tempo.lowering.loop_ir import Buffer, Compute, Read, Statement, WindowIndex
from tempo.symbolic import Expr

Resolve = Callable[[Expr], int]


def possible(block: tuple[Statement, ...], buffers: Mapping[int, Buffer], resolve: Resolve) -> bool:
    """Whether the shapes in what the block runs unconditionally exist: no extent below zero, no read beyond a buffer.

    The checks of a program at its sizes say so of everything that runs; so a block of which it is wrong never does.
    """
    return all(_possible(statement, buffers, resolve) for statement in block)


def _possible(statement: Statement, buffers: Mapping[int, Buffer], resolve: Resolve) -> bool:
    if isinstance(statement, Compute):
        return all(resolve(extent) >= 0 for type in (statement.type, *statement.operand_types) for extent in type.shape)
    if isinstance(statement, Read):
        axes = buffers[statement.buffer].axes
        windows = [(axis, entry) for axis, entry in zip(axes, statement.index) if isinstance(entry, WindowIndex)]
        return all(not entry.exact or resolve(entry.extent) <= resolve(axis.extent) for axis, entry in windows)
    return True
