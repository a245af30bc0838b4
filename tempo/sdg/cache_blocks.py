"""Cache blocking: a large array in parts that stay in a core's cache while several operators go over each.

One operator after the other over whole arrays waits for memory every time, and each makes an array of that size.
"""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np

BLOCK_BYTES = 1 << 17
"""Of one array of a block: several of them are in use at once, and a level-2 cache has at least 512 KiB. Measured."""

Index = tuple[int | slice, ...]
Array = np.ndarray[Any, Any]


def cache_blocks(shape: tuple[int, ...], itemsize: int) -> tuple[Index, ...]:
    """Indices that cut an array of `shape` into blocks of at most `BLOCK_BYTES`, each one stretch of memory in C order.

    Positions of leading axes, then a stretch of one axis; axes behind it are whole. `()` is all of a small array.
    """
    most = max(1, BLOCK_BYTES // itemsize)
    if prod(shape) <= most:
        return ((),)
    axis = next(axis for axis in range(len(shape)) if prod(shape[axis + 1 :]) <= most)
    length = most // prod(shape[axis + 1 :])
    stretches = [slice(start, min(start + length, shape[axis])) for start in range(0, shape[axis], length)]
    return tuple(itertools.product(*(range(size) for size in shape[:axis]), stretches))


def block_of(index: Index, shape: tuple[int, ...], operand: tuple[int, ...]) -> Index:
    """The part of an operand that is broadcast to `shape` which the block at `index` needs."""
    missing = len(shape) - len(operand)
    return tuple(_repeated(entry, size) for entry, size in zip(index[missing:], operand))


def empty(shape: tuple[int, ...], dtype: Any, like: Array | None = None) -> Array:
    """An array for a result whose axes lie in memory as those of an operand, as NumPy's functions lay theirs out."""
    if like is None or like.flags.c_contiguous or 0 in like.strides:
        return np.empty(shape, dtype)
    return np.empty_like(like, dtype, shape=shape)


def _repeated(entry: int | slice, size: int) -> int | slice:
    if size > 1:
        return entry
    return slice(None) if isinstance(entry, slice) else 0
