"""The greatest element of many boxes of one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def box_maxima(values: Array, lows: Sequence[Array], highs: Sequence[Array], empty: int) -> Array:
    """For each k the maximum of `values[lows[0][k]:highs[0][k], lows[1][k]:highs[1][k], ...]`, `empty` where that is
    empty. Bounds lie within the array.

    Axes along which all boxes are alike are folded at once. Of the others one, that with the widest boxes, is looked
    up in a table of maxima over powers of two, and the rest are walked.
    """
    count = len(lows[0])
    if not count:
        return np.full(count, empty, np.int64)
    lows, highs = list(lows), list(highs)
    for axis in reversed(range(values.ndim)):
        if values.ndim > 1 and np.ptp(lows[axis]) == np.ptp(highs[axis]) == 0:
            inside = np.arange(values.shape[axis])[lows.pop(axis)[0] : highs.pop(axis)[0]]
            values = values.take(inside, axis).max(axis, initial=empty)
    return _varying_maxima(values, lows, highs, empty)


def _varying_maxima(values: Array, lows: Sequence[Array], highs: Sequence[Array], empty: int) -> Array:
    widths = [np.maximum(hi - lo, 0) for lo, hi in zip(lows, highs)]
    widest = [int(width.max()) for width in widths]
    axis = max(range(len(widest)), key=widest.__getitem__)
    others = [k for k in range(values.ndim) if k != axis]
    tables = list(_tables(np.moveaxis(values, axis, 0), widest[axis]))
    levels = np.frexp(np.maximum(widths[axis], 1))[1] - 1  # the greatest e with 2**e <= width
    nonempty = np.all([width > 0 for width in widths], axis=0)
    found = np.full(len(lows[0]), empty, np.int64)
    for steps in product(*(range(widest[k]) for k in others)):
        inside = nonempty & np.all([step < widths[k] for k, step in zip(others, steps)], axis=0)
        for level, table in enumerate(tables):
            here = inside & (levels == level)
            where = tuple(lows[k][here] + step for k, step in zip(others, steps))
            start, last = lows[axis][here], highs[axis][here] - (1 << level)
            best = np.maximum(table[(start, *where)], table[(last, *where)])
            found[here] = np.maximum(found[here], best)
    return found


def _tables(values: Array, width: int) -> Iterator[Array]:
    """`tables[e][i]` is the maximum of `values[i:i + 2**e]`, for all e with `2**e <= width`."""
    span = 1
    while span <= width:
        yield values
        values = np.maximum(values[:-span], values[span:]) if span < len(values) else values
        span *= 2
