"""Edges of one value: `concat([0, 0], x, [0])` is `pad(x)`, which nothing has to read them for."""

from __future__ import annotations

import math

import numpy as np

from tempo.passes.rewrite.driver import Draft, Sweep, Term
from tempo.passes.rewrite.patterns import constant_value
from tempo.sdg.graph import Edge
from tempo.symbolic import Expr, const


def pad_of_edges(draft: Draft, sweep: Sweep) -> Term | None:
    """What is joined, but for one part, is constant and everywhere the same number, as many at every point."""
    if draft.op != "concat":
        return None
    values = [_number(edge, sweep) for edge in draft.operands]
    inside = [place for place, value in enumerate(values) if value is None]
    if len(inside) != 1 or len({value for value in values if value is not None}) != 1:
        return None
    (place,), axis = inside, draft.attr("axis")
    sizes = [sweep.type_of(edge).shape[axis] for edge in draft.operands]
    if any(size.dims() for place, size in enumerate(sizes) if place not in inside):
        return None
    rank = len(draft.type.shape)
    low, high = (_along(axis, rank, part) for part in (sizes[:place], sizes[place + 1 :]))
    value = next(value for value in values if value is not None)
    return Term("pad", (draft.operands[place],), {"low": low, "high": high, "value": value})


def _number(edge: Edge, sweep: Sweep) -> float | int | bool | None:
    """The value of all elements; None also for NaN and -0.0, which are not told from others by comparing."""
    array = constant_value(edge, sweep)
    if array is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    value = array.flat[0].item()
    if math.isnan(value) or not np.all(array == array.flat[0]) or np.any(np.signbit(array) & (array == 0)):
        return None
    return value  # type: ignore[no-any-return]


def _along(axis: int, rank: int, sizes: list[Expr]) -> tuple[Expr, ...]:
    total = sum(sizes, const(0))
    return tuple(total if at == axis else const(0) for at in range(rank))
