"""Random bits, the same as NumPy's: Threefry-2x32 with 20 rounds, folded over the coordinates of the point.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3; see
`tempo.sdg.threefry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.backends.operators import Builder, Call
from tempo_jax.operators.values import Function, Scalar, Value, converted

Words = tuple[Value, Value]  # uint32 values that broadcast

_MASK = 0xFFFFFFFF
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_GROUPS = 5  # of four rounds


def threefry(key: Words, counter: Words) -> Words:
    """Both words of the block."""
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + key[0], counter[1] + key[1]
    for group in range(_GROUPS):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation) | x1 >> np.uint32(32 - rotation)) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def fold(key: Words, coordinates: Iterable[Value]) -> Words:
    """The block of a point: `key = threefry(key, (coordinate, position of the coordinate))`; see the NumPy meaning."""
    for position, coordinate in enumerate(coordinates):
        key = threefry(key, (coordinate, jnp.asarray(position, np.uint32)))
    return key


def _random_bits(call: Call) -> Function:
    shape, bits, dtype = call.result.shape, call.attrs["bits"], call.result.dtype
    declaration = np.asarray(int(call.attrs["declaration"]) & _MASK, np.uint32)
    coordinates = call.attrs["coordinates"] or (np.uint32(0),)  # without coordinates there is one fold, of (0, 0)

    def random_bits(seed: Value, *scalars: Scalar) -> Value:
        given = iter(scalars)
        words = [_word(coordinate, shape, given) for coordinate in coordinates]
        first, second = fold((jnp.asarray(seed), jnp.asarray(declaration)), words)
        return jnp.broadcast_to(_join(first, second, bits, dtype), shape)

    return random_bits


def _word(coordinate: Any, shape: tuple[int, ...], scalars: Iterator[Scalar]) -> Value:
    """A coordinate is an axis of the result, aligned with it; a fixed word; or else the next run-time scalar."""
    if isinstance(coordinate, np.uint32):
        return jnp.asarray(coordinate)
    if isinstance(coordinate, int):
        aligned = tuple(size if axis == coordinate else 1 for axis, size in enumerate(shape))
        return lax.broadcasted_iota(np.uint32, aligned, coordinate)
    scalar = next(scalars)
    if isinstance(scalar, (int, np.integer)):
        return jnp.asarray(int(scalar) & _MASK, np.uint32)
    return converted(scalar, "uint32")


def _join(first: Value, second: Value, bits: int, dtype: str) -> Value:
    """64 bits are both words, the first one high; fewer are the low bits of the first word."""
    if bits < 64:
        return converted(first, dtype)
    return converted(first, dtype) << np.uint64(32) | converted(second, dtype)


RANDOM: Mapping[str, Builder] = {"random_bits": _random_bits}
