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

    One axis, that with the widest boxes, is looked up in a table of maxima over powers of two; the others are walked.
    """
    widths = [np.maximum(hi - lo, 0) for lo, hi in zip(lows, highs)]
    widest = [int(width.max(initial=0)) for width in widths]
    if min(widest) == 0:
        return np.full(len(lows[0]), empty, np.int64)
    axis = max(range(len(widest)), key=widest.__getitem__)
    nonempty = np.all([width > 0 for width in widths], axis=0)
    found = np.full(len(lows[0]), empty, np.int64)
    tables = list(_tables(np.moveaxis(values, axis, 0), widest[axis]))
    exponent = np.frexp(np.maximum(widths[axis], 1))[1] - 1  # the greatest e with 2**e <= width
    others = [k for k in range(values.ndim) if k != axis]
    for steps in product(*(range(widest[k]) for k in others)):
        here = nonempty.copy()
        for k, step in zip(others, steps):
            here &= step < widths[k]
        rest = [lows[k][here] + step for k, step in zip(others, steps)]
        start, level = lows[axis][here], exponent[here]
        best = np.empty(len(start), np.int64)
        for size, table in enumerate(tables):
            own = level == size
            where = [index[own] for index in rest]
            last = highs[axis][here][own] - (1 << size)
            best[own] = np.maximum(table[(start[own], *where)], table[(last, *where)])
        found[here] = np.maximum(found[here], best)
    return found


def _tables(values: Array, width: int) -> Iterator[Array]:
    """`tables[e][i]` is the maximum of `values[i:i + 2**e]`, for all e with `2**e <= width`."""
    span = 1
    while span <= width:
        yield values
        values = np.maximum(values[:-span], values[span:]) if span < len(values) else values
        span *= 2
