"""How much of each axis of its buffers a statement touches."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.loop_ir.ir import Buffer, Loop, PointIndex, Read, Statement, WindowIndex, Write, nested
from tempo.symbolic import Context, Expr, Symbol, const, var

Reaches = Mapping[tuple[int, int], int]
"""By buffer and axis: no more than its first so many positions are read or written."""


def reaches(statement: Statement, buffers: Mapping[int, Buffer], sizes: Mapping[Symbol, int]) -> Reaches:
    """For the axes of kind "full" of the buffers that the statement, or one inside, touches."""
    finder = _FootprintFinder(buffers, {symbol: const(value) for symbol, value in sizes.items()})
    finder.look(statement, Context.of(()))
    return finder.found


class _FootprintFinder:
    def __init__(self, buffers: Mapping[int, Buffer], sizes: Mapping[Symbol, Expr]) -> None:
        self.buffers, self.sizes = buffers, sizes
        self.found: dict[tuple[int, int], int] = {}

    def look(self, statement: Statement, here: Context) -> None:
        if isinstance(statement, Read | Write):
            self.touch(statement, here)
        if isinstance(statement, Loop):
            at = var(statement.var)
            here = here.assume(at.ge(self.fixed(statement.lo)), at.lt(self.fixed(statement.hi)))
        for block in nested(statement):
            for each in block:
                self.look(each, here)

    def touch(self, statement: Read | Write, here: Context) -> None:
        for at, axis in enumerate(self.buffers[statement.buffer].axes):
            size = self.fixed(axis.extent)
            if axis.kind != "full" or not size.is_const:
                continue
            end = _end(statement, at)
            last = None if end is None else here.constant_bounds(self.fixed(end))[1]
            key, whole = (statement.buffer, at), size.as_int()
            self.found[key] = max(self.found.get(key, 0), whole if last is None else min(last, whole))

    def fixed(self, expr: Expr) -> Expr:
        return expr.substitute(self.sizes)


def _end(statement: Read | Write, at: int) -> Expr | None:
    """Behind the last position along the axis; None where it may be any."""
    if at >= len(statement.index):
        return None
    if isinstance(statement, Write):
        extent = statement.extents[at]
        return statement.index[at] + (const(1) if extent is None else extent)
    entry = statement.index[at]
    if isinstance(entry, PointIndex):
        return entry.index + 1
    assert isinstance(entry, WindowIndex)
    return entry.start + entry.extent if entry.exact else None
