"""Checked indices: compiled code cannot raise, so which index was first out of range is a value that a segment returns.

The *error word* goes through loops and branches as a buffer does: what a loop writes it carries, and of a branch both
sides of which are computed, the word is that of the side that is taken. It is 0 as long as no index is out of range,
then (number of the read, the index, its place among the indices, the point).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from tempo import dtypes
from tempo.backends.loop_ir import Compute, Statement, walk
from tempo.backends.operators import StaticType, out_of_range, point_of, put_together, within_at
from tempo.symbolic import Symbol
from tempo_jax.access import Values
from tempo_jax.operators.values import const

Array = Any
WORD = -1
"""Stands for the error word among the buffers: those of programs have numbers from 0 on."""
_HEAD = 3


def is_checked(statement: Statement) -> bool:
    return isinstance(statement, Compute) and bool(statement.attrs.get("checked"))


def checks(statements: tuple[Statement, ...]) -> bool:
    """Whether some index is checked in them."""
    return any(is_checked(each) for each in walk(statements))


@dataclass(frozen=True)
class _Site:
    """Indices of one read along one axis."""

    compute: Compute
    size: int
    indices: StaticType


class ErrorWord:
    """The word of one segment. What is traced again has the number that it had."""

    def __init__(self, statements: tuple[Statement, ...], sizes: Mapping[Symbol, int], dtype: Any) -> None:
        found = [each for each in walk(statements) if is_checked(each)]
        self._length = _HEAD + max(len(each.point) for each in found if isinstance(each, Compute))
        self._sizes, self._dtype = sizes, np.dtype(dtype)
        self._sites: list[_Site] = []
        self._numbers: dict[tuple[int, int], int] = {}

    def clear(self) -> Array:
        return jnp.zeros(self._length, self._dtype)

    def after(self, word: Array, compute: Compute, operands: Iterable[Array], values: Values) -> Array:
        """The word after a read."""
        data, *indices = operands
        point = [index.evaluate(values) for _, index in compute.point]
        for axis, index in enumerate(indices, compute.attrs["axis"]):
            if index.size:
                number = self._number(compute, axis, data.shape[axis], index)
                word = self._noted(word, [number, *_first(index, data.shape[axis])], point)
        return word

    def _number(self, compute: Compute, axis: int, size: int, index: Array) -> int:
        key = id(compute), axis
        if key not in self._numbers:
            self._sites.append(_Site(compute, size, StaticType(index.shape, dtypes.from_numpy(index.dtype))))
            self._numbers[key] = len(self._sites)  # 0 is none
        return self._numbers[key]

    def _noted(self, word: Array, head: list[Any], point: list[Any]) -> Array:
        number, value, place = head
        fields = [number, value, place, *point]
        fields += [0] * (self._length - len(fields))
        new = jnp.stack([jnp.asarray(each).astype(self._dtype) for each in fields])
        return jnp.where((place >= 0) & (word[0] == 0), new, word)

    def check(self, word: np.ndarray[Any, Any]) -> None:
        """Raises `IndexOutOfRangeError` where the word is not 0."""
        number, value, place, *point = (int(each) for each in word)
        if number == 0:
            return
        site = self._sites[number - 1]
        given = int(np.asarray(value).astype(site.indices.numpy_dtype))
        place = [int(each) for each in np.unravel_index(place, site.indices.shape)]
        lifted, place = point_of(place, site.compute.attrs.get("layout") or range(len(place)), self._sizes)
        parts = {**lifted, **dict(zip((symbol for symbol, _ in site.compute.point), point))}
        at = put_together(parts, site.compute.attrs.get("origin", ()), self._sizes)
        compute, within = site.compute, within_at(site.compute.attrs, at, self._sizes)
        raise out_of_range(given, site.size, compute.name, at, place, compute.location, within)


def _first(index: Array, size: int) -> Iterator[Array]:
    """The first index out of range, and its place among all in order, -1 where there is none."""
    dtype = dtypes.from_numpy(index.dtype)
    flat = index.reshape(-1)
    beyond = jnp.full(flat.shape, size == 0)
    if 0 < size <= dtypes.highest(dtype):
        beyond = flat >= const(size, dtype)
    if dtypes.kind(dtype) != "uint":
        beyond = beyond | (flat < const(0, dtype))
    places = jnp.where(beyond, jnp.arange(flat.size, dtype=np.int32), np.int32(flat.size))
    place = places.min()
    held = jnp.minimum(place, np.int32(flat.size - 1))
    yield flat[held] if flat.size > 1 else flat[0]
    yield jnp.where(place < flat.size, place, np.int32(-1))
