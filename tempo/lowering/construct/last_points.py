"""Reads of what a loop that was left has at its last point (see `tempo.passes.rows`): of the buffer in which an output
of role "last" lies, which the rest of the program is given again as an input.

Lifting treats the two apart, so a dim may be an axis of one's shape and none of the other's. The axes of a user's array
(`layout`) say which are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tempo.errors import UnsupportedError
from tempo.loop_ir.ir import Axis, Buffer, PointIndex, WindowIndex
from tempo.sdg.graph import Edge, Node, Point, Slice
from tempo.symbolic import Expr, Symbol, const

Entry = Callable[[Point | Slice, Axis], PointIndex | WindowIndex]


@dataclass(frozen=True)
class LastRead:
    """`index` reads the buffer. Of what that gives, `shape`, `cuts` are taken along axes; those `gone` have one
    position then, and `order` is that of the others."""

    index: tuple[PointIndex | WindowIndex, ...]
    shape: tuple[Expr, ...]
    cuts: tuple[tuple[int, Point | Slice], ...]
    gone: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_direct(self) -> bool:
        return not self.cuts and self.order == tuple(range(len(self.order)))


def last_read(given: Node, edge: Edge, buffer: Buffer, entry: Entry) -> LastRead:
    """How what `edge` shows of an input of role "last" is read of the buffer."""
    layout: tuple[Symbol | int, ...] = given.attr("layout")
    places = dict(zip(given.domain, edge.map, strict=True))
    named = {axis.dim: number for number, axis in enumerate(buffer.axes)}
    of = [named[each] if isinstance(each, Symbol) else len(buffer.axes) + each for each in buffer.layout]
    user_axis = {at: number for number, at in enumerate(of)}

    def asked(at: int) -> Point | Slice | None:
        """At an axis of the buffer's logical shape; None: all of it."""
        label = layout[user_axis[at]]
        return places[label] if isinstance(label, Symbol) else None

    index = tuple(
        WindowIndex(const(0), axis.extent, exact=True) if (found := asked(at)) is None else entry(found, axis)
        for at, axis in enumerate(buffer.axes)
    )
    shown = [at for at in range(len(of)) if at >= len(index) or isinstance(index[at], WindowIndex)]
    shape = tuple(
        entry_at.extent
        if at < len(index) and isinstance(entry_at := index[at], WindowIndex)
        else buffer.logical_shape[at]
        for at in shown
    )
    cuts = [
        (number, found)
        for number, at in enumerate(shown)
        if at >= len(index) and (found := asked(at)) is not None and found != Slice(const(0), shape[number])
    ]
    gone = tuple(number for number, found in cuts if isinstance(found, Point))
    left = [user_axis[at] for number, at in enumerate(shown) if number not in gone]
    slices = [symbol for symbol, found in places.items() if isinstance(found, Slice)]
    wanted = [layout.index(label) for label in (*slices, *range(len(given.shape)))]
    return LastRead(index, shape, tuple(cuts), gone, tuple(left.index(each) for each in wanted))


def refuse(given: Node) -> UnsupportedError:
    return UnsupportedError(f"{given.name} lies in another order than it is read in", location=given.location)
