"""Where an index was out of range in the user's source: operators see arrays only, their callers know the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tempo.errors import IndexOutOfRangeError, Location
from tempo.symbolic import Expr, Symbol

HINT = "correct the index, or let it be clamped into range: tp.compile(..., options=tp.Options(checks=False))"


def out_of_range(
    index: int, size: int, tensor: str, point: Mapping[Symbol, int], place: Sequence[int], location: Location | None
) -> IndexOutOfRangeError:
    """The error of a backend whose compiled code says afterwards what was wrong; `place` is that among the indices."""
    message = f"index {index} is out of range for an axis of size {size}"
    message += f" of {tensor!r}" if tensor else ""
    if point:
        message += " at " + ", ".join(f"{symbol.name} = {value}" for symbol, value in sorted(point.items()))
    if place:
        message += f", element {place[0] if len(place) == 1 else tuple(place)} of the indices"
    return IndexOutOfRangeError(message, location=location, hint=HINT)


def point_of(
    place: Sequence[int], layout: Sequence[Expr | int], sizes: Mapping[Symbol, int]
) -> tuple[dict[Symbol, int], list[int]]:
    """A place among indices as the coordinates of dims that are axes of them, and the place in what is left."""
    point: dict[Symbol, int] = {}
    left: list[int] = []
    for position, axis in zip(place, layout):
        if isinstance(axis, int):
            left.append(position)
            continue
        (dim,) = axis.dims()
        point[dim] = position - int(axis.evaluate({**sizes, dim: 0}))
    return point, left


def located(
    function: Callable[..., Any], attrs: Mapping[str, Any], location: Location | None, where: str = ""
) -> Callable[..., Any]:
    """`function`, whose `IndexOutOfRangeError` says the line and `where`; itself where it checks no index."""
    if not attrs.get("checked", False):
        return function

    def call(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except IndexOutOfRangeError as error:
            raise IndexOutOfRangeError(error.message + where, location=location, hint=HINT) from None

    return call
