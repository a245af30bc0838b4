"""Where an index was out of range in the user's source: operators see arrays only, their callers know the line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tempo.errors import IndexOutOfRangeError, InternalError, Location
from tempo.sdg.graph import Node
from tempo.symbolic import Expr, Symbol

HINT = "correct the index, or let it be clamped into range: tp.compile(..., options=tp.Options(checks=False))"


def out_of_range(
    index: int, size: int, tensor: str, point: Mapping[Symbol, int], place: Sequence[int], location: Location | None
) -> IndexOutOfRangeError:
    """The error; `place` is that among the indices."""
    message = f"index {index} is out of range for an axis of size {size}"
    message += f" of {tensor!r}" if tensor else ""
    if point:
        message += " at " + ", ".join(f"{symbol.name} = {value}" for symbol, value in sorted(point.items()))
    if place:
        message += f", element {place[0] if len(place) == 1 else tuple(place)} of the indices"
    return IndexOutOfRangeError(message, location=location, hint=HINT)


def name_of_data(node: Node, data: Node) -> str:
    """Of which tensor of the user's a read with checked indices takes elements, as far as it is known."""
    return node.name or data.name or str(data.attr("name") or "")


def point_of(
    place: Sequence[int], layout: Sequence[Expr | int], sizes: Mapping[Symbol, int]
) -> tuple[dict[Symbol, int], list[int]]:
    """A place among indices as the coordinates of dims that are axes of them, and the place in what is left.

    Where a dim begins is not known if it takes a size that is none of `sizes`; it is left out then.
    """
    point: dict[Symbol, int] = {}
    left: list[int] = []
    for position, axis in zip(place, layout):
        if isinstance(axis, int):
            left.append(position)
            continue
        (dim,) = axis.dims()
        if axis.sizes() <= sizes.keys():
            point[dim] = position - int(axis.evaluate({**sizes, dim: 0}))
    return point, left


def must_not_fail(node: Node) -> bool:
    """Whether a node that checks its indices may be made only where it is demanded.

    One that is `speculated` may be made elsewhere: whoever runs it takes its error for a question (`tempo.runtime`).
    """
    return bool(node.attr("checked")) and not node.attr("speculated")


def put_together(
    point: Mapping[Symbol, int], origin: Sequence[tuple[Symbol, Expr]], sizes: Mapping[Symbol, int]
) -> dict[Symbol, int]:
    """The point along the program's dims. `origin`: dims, in the order in which they were taken apart, by parts."""
    at = dict(point)
    for dim, expr in reversed(origin):
        known = {**sizes, **at}
        if expr.symbols() <= known.keys():
            value = int(expr.evaluate(known))
            at = {symbol: at[symbol] for symbol in at.keys() - expr.dims()} | {dim: value}
    return at


Frame = Mapping[str, Any]
"""The variables of whoever called an operator."""


def located(
    function: Callable[..., Any],
    attrs: Mapping[str, Any],
    location: Location | None,
    tensor: str = "",
    point: Callable[[Frame], Mapping[Symbol, int]] = lambda frame: {},
    sizes: Mapping[Symbol, int] | None = None,
) -> Callable[..., Any]:
    """`function`, whose `IndexOutOfRangeError` says tensor, line and point; itself where it checks no index.

    `point` finds the point from the variables of the caller, who so has nothing to do as long as all is well.
    """
    if not attrs.get("checked", False):
        return function

    def call(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except IndexOutOfRangeError:
            index, size, place = _first(attrs["axis"], *arrays)
            lifted, place = point_of(place, attrs.get("layout") or range(len(place)), sizes or {})
            parts = {**lifted, **point(sys._getframe(1).f_locals)}
            at = put_together(parts, attrs.get("origin", ()), sizes or {})
            raise out_of_range(index, size, tensor, at, place, location) from None

    return call


def _first(axis: int, data: Any, *indices: Any) -> tuple[int, int, Sequence[int]]:
    """The first index out of range, the size of what it indexes, and its place among the indices."""
    for size, index in zip(data.shape[axis:], indices):
        values = np.asarray(index.tolist(), object)  # whatever kind of array it is
        bad = np.flatnonzero((values < 0) | (values >= size))
        if bad.size:
            return values.flat[bad[0]], size, [int(each) for each in np.unravel_index(bad[0], values.shape)]
    raise InternalError("no index is out of range, and an operator says so")
