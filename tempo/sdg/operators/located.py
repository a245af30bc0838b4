"""Where an index was out of range in the user's source: operators see arrays only, their callers know the line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tempo.errors import IndexOutOfRangeError, InternalError, Location
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, Symbol

HINT = "correct the index, or let it be clamped into range: tp.compile(..., options=tp.Options(checks=False))"


def out_of_range(
    index: int,
    size: int,
    tensor: str,
    point: Mapping[Symbol, int],
    place: Sequence[int],
    location: Location | None,
    within: tuple[int, int] | None = None,
    in_row: bool = False,
) -> IndexOutOfRangeError:
    """The error; `place` is that among the indices, `within` what they count from and end at where it is no axis.
    `in_row`: one behind the end of a row is given as one of so many more."""
    if in_row and index >= size:
        index -= size
    message = f"index {index} is out of range for an axis of size {size}"
    if within is not None:
        message = f"index {index + within[0]} is out of range for within=slice({within[0]}, {within[1]})"
    if in_row and index >= 0:
        message = message.replace(" for ", " of its row, for ", 1)
    message += f" of {tensor}" if tensor else ""
    if point:
        message += " at " + ", ".join(f"{symbol.name} = {value}" for symbol, value in sorted(point.items()))
    if place:
        message += f", element {place[0] if len(place) == 1 else tuple(place)} of the indices"
    return IndexOutOfRangeError(message, location=location, hint=HINT)


def name_of_data(graph: Graph, node: Node) -> str:
    """Of which tensor of the user's a read with checked indices takes elements: its name, or the line that makes it
    where that is another one than the read's."""
    known = node.attr("data")
    if known is not None:
        return str(known)
    data = graph.nodes[node.operands[0].node]
    while not _name(data) and OPERATORS[data.op].kind == "movement" and len(data.operands) == 1:
        data = graph.nodes[data.operands[0].node]
    if _name(data):
        return repr(_name(data))
    line = data.location
    if line is None or line == node.location or not line.text:
        return ""
    near = node.location is not None and node.location.path == line.path
    return f"`{line.text}` ({f'line {line.line}' if near else f'{line.path}:{line.line}'})"


def _name(node: Node) -> str:
    return node.name or str(node.attr("name") or "")


def with_names_of_data(graph: Graph) -> Graph:
    """The graph, in which reads with checked indices say of what tensor they are: passes know no names."""
    checked = (node for node in graph.nodes.values() if node.attr("checked"))
    named = {node.id: node.with_attrs(data=name_of_data(graph, node)) for node in checked}
    return replace(graph, nodes={**graph.nodes, **named}) if named else graph


def within_at(
    attrs: Mapping[str, Any], point: Mapping[Symbol, int], sizes: Mapping[Symbol, int]
) -> tuple[int, int] | None:
    """What the user said that indices are within, where that is known at the point."""
    known = {**sizes, **point}
    found = attrs.get("within")
    if found is None or not all(expr.symbols() <= known.keys() for expr in found):
        return None
    lo, hi = (int(expr.evaluate(known)) for expr in found)
    return lo, hi


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
            index, size, place = _first(attrs, *arrays)
            lifted, place = point_of(place, attrs.get("layout") or range(len(place)), sizes or {})
            parts = {**lifted, **point(sys._getframe(1).f_locals)}
            at = put_together(parts, attrs.get("origin", ()), sizes or {})
            within = within_at(attrs, at, sizes or {})
            in_row = bool(attrs.get("row"))
            raise out_of_range(index, size, tensor, at, place, location, within, in_row) from None

    return call


def _first(attrs: Mapping[str, Any], data: Any, *given: Any) -> tuple[int, int, Sequence[int]]:
    """The first index out of range, the size of what it indexes, and its place among the indices."""
    count = attrs.get("count", 1)
    sizes = data.shape[attrs["axis"] : attrs["axis"] + count]
    for size, index in zip(map(min, sizes, given[count:] or sizes), given):
        values = np.asarray(index.tolist(), object)  # whatever kind of array it is
        bad = np.flatnonzero((values < 0) | (values >= size))
        if bad.size:
            return values.flat[bad[0]], size, [int(each) for each in np.unravel_index(bad[0], values.shape)]
    raise InternalError("no index is out of range, and an operator says so")
