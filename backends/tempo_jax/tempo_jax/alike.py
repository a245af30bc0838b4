"""Iterations that are traced one by one, and differ in nothing but the pieces of arrays that they name: of those that
are alike one is traced and lowered, as a function that the others call. XLA inlines it, and compiles what it did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tempo.backends.loop_ir import Loop, PointIndex, Read, Statement, Write, expressions, walk
from tempo.backends.loops import used
from tempo.symbolic import Expr, Symbol, var


class AlikeIterations:
    """Of a loop, where the buffers `pieces` lie in pieces, along these axes. `own`: the axis along which an iteration
    names no place of a buffer but its own, of those in pieces and those that it only reads; `touched`: all buffers that
    it reads or writes; `names`: values that it looks at."""

    def __init__(self, loop: Loop, pieces: Mapping[int, int], sizes: Mapping[Symbol, int]) -> None:
        self._var, self._sizes = loop.var, sizes
        self.names = used(loop.body)
        every = tuple(walk(loop.body))
        places: dict[int, list[Read | Write]] = defaultdict(list)
        for each in every:
            if isinstance(each, Read | Write):
                places[each.buffer].append(each)
        self.touched = frozenset(places)
        axes = {id: _own_axis(found, pieces.get(id), var(loop.var)) for id, found in places.items()}
        self.own = {id: axis for id, axis in axes.items() if axis is not None}
        left = (expr for each in every for expr in expressions(self._without_place(each)))
        self._told_by = tuple(dict.fromkeys(expr for expr in left if loop.var in expr.symbols()))

    def _without_place(self, statement: Statement) -> Statement:
        if not isinstance(statement, Read | Write) or statement.buffer not in self.own:
            return statement
        axis, index = self.own[statement.buffer], statement.index
        return replace(statement, index=(*index[:axis], *index[axis + 1 :]))  # type: ignore[arg-type]

    def kind(self, point: int) -> Hashable:
        """Equal for iterations that are alike: all that they evaluate is."""
        here = {**self._sizes, self._var: point}
        return tuple(expr.substitute(here) for expr in self._told_by)


def _own_axis(places: Sequence[Read | Write], apart: int | None, here: Expr) -> int | None:
    """The axis of which all these name one place, `here`. `apart`: the one along which the buffer lies in pieces."""
    if apart is None and any(isinstance(each, Write) for each in places):
        return None
    axes = range(min(len(each.index) for each in places)) if apart is None else (apart,)
    return next((axis for axis in axes if all(_point(each, axis) == here for each in places)), None)


def _point(place: Read | Write, axis: int) -> Expr | None:
    """The point of the axis that is read or written."""
    if isinstance(place, Read):
        entry = place.index[axis]
        return entry.index if isinstance(entry, PointIndex) else None
    return place.index[axis] if place.index and place.extents[axis] is None else None
