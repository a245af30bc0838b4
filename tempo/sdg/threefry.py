"""Threefry-2x32 with 20 rounds: the counter-based generator that every random draw is made of.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3.
A block cipher on two 32-bit words: `threefry(key, counter)`. Nothing is carried from draw to draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from tempo.sdg.cache_blocks import block_of, cache_blocks

Word = Any  # an int in [0, 2**32), or a uint32 array
Words = tuple[Word, Word]

_MASK = 0xFFFFFFFF
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SHIFTS = tuple(tuple((np.uint32(r), np.uint32(32 - r)) for r in rotations) for rotations in _ROTATIONS)
_GROUPS = 5  # of four rounds
_FEW = 16  # elements; where Python's integers cost as much as arrays, measured


def threefry(key: Words, counter: Words) -> Words:
    """Both words of the block. Words are ints in [0, 2**32) or uint32 arrays that broadcast; ints alone give ints."""
    words = (*key, *counter)
    if all(isinstance(word, int) for word in words):
        return _scalar(*words)
    arrays = [np.asarray(word, np.uint32) for word in words]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return (_one_by_one if prod(shape) <= _FEW else _vector)(shape, *arrays)


def _one_by_one(shape: tuple[int, ...], *words: Word) -> Words:
    """For few elements Python's integers cost less than a hundred array operations."""
    elements = zip(*(np.broadcast_to(word, shape).ravel().tolist() for word in words))
    found = np.array([_scalar(*each) for each in elements], np.uint32).reshape(-1, 2)
    return found[:, 0].reshape(shape), found[:, 1].reshape(shape)


def _scalar(k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
    schedule = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = (x0 + k0) & _MASK, (x1 + k1) & _MASK
    for group in range(_GROUPS):
        for rotation in _ROTATIONS[group % 2]:
            x0 = (x0 + x1) & _MASK
            x1 = (((x1 << rotation) | (x1 >> (32 - rotation))) & _MASK) ^ x0
        x0 = (x0 + schedule[(group + 1) % 3]) & _MASK
        x1 = (x1 + schedule[(group + 2) % 3] + group + 1) & _MASK
    return x0, x1


def _vector(shape: tuple[int, ...], *words: Word) -> Words:
    """For shapes with at least one axis: arithmetic on arrays wraps silently, on NumPy scalars it warns.

    Block by block of the cache, in place. Keys are not expanded to the shape.
    """
    words = tuple(np.atleast_1d(word) for word in words)
    x0, x1 = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    for block in cache_blocks(shape, x0.itemsize):
        k0, k1, c0, c1 = (word[block_of(block, shape, word.shape)] for word in words)
        np.add(c0, k0, out=x0[block])
        np.add(c1, k1, out=x1[block])
        _rounds((k0, k1, k0 ^ k1 ^ np.uint32(_PARITY)), x0[block], x1[block])
    return x0, x1


def _rounds(schedule: tuple[Word, Word, Word], x0: Word, x1: Word) -> None:
    turned = np.empty_like(x1)
    for group in range(_GROUPS):
        for left, right in _SHIFTS[group % 2]:
            x0 += x1
            np.left_shift(x1, left, turned)
            x1 >>= right
            x1 |= turned
            x1 ^= x0
        x0 += schedule[(group + 1) % 3]
        x1 += schedule[(group + 2) % 3]
        x1 += np.uint32(group + 1)


def fold(key: Words, coordinates: Iterable[Word]) -> Words:
    """The block of a point: `key = threefry(key, (coordinate, position of the coordinate))`, coordinate by coordinate.

    A draw never depends on a size, and leading coordinates that are shared are folded once. Without coordinates there
    is one fold, with the counter (0, 0), so that a result is never the key itself.
    """
    given = list(coordinates) or [0]
    for position, coordinate in enumerate(given):
        key = threefry(key, (coordinate, position))
    return key
