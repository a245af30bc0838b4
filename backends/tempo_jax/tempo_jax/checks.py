"""Checked indices: compiled code cannot raise, so which index was first out of range is a value that a segment returns.

The *error word* goes through loops and branches as a buffer does: what a loop writes it carries, and of a branch both
sides of which are computed, the word is that of the side that is taken. It is 0 as long as no index is out of range,
then (number of the read, the index, its place among the indices, the point).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from tempo import dtypes
from tempo.backends.loop_ir import Compute, Statement, walk
from tempo.backends.operators import out_of_range, point_of, put_together, static_type, within_at
from tempo.symbolic import Expr, Symbol
from tempo_jax.access import Values
from tempo_jax.operators.indexing import clamped
from tempo_jax.operators.values import const, position

Array = Any
WORD = -1
"""Stands for the error word among the buffers: those of programs have numbers from 0 on."""
_HEAD = 3


def is_checked(statement: Statement) -> bool:
    return isinstance(statement, Compute) and bool(statement.attrs.get("checked"))


def checks(statements: tuple[Statement, ...]) -> bool:
    """Whether some index is checked in them."""
    return any(is_checked(each) for each in walk(statements))


class ErrorWord:
    """The word of one segment. A read along an axis is told by its number; what is traced again has the one it had."""

    def __init__(self, statements: tuple[Statement, ...], sizes: Mapping[Symbol, int], dtype: Any) -> None:
        found = [each for each in walk(statements) if isinstance(each, Compute) and is_checked(each)]
        self._length = _HEAD + max(len(each.point) for each in found)
        self._sizes, self._dtype = sizes, np.dtype(dtype)
        self._sites = [(each, at) for each in found for at in range(1, len(each.operands))]
        self._numbers = {(id(each), at): number for number, (each, at) in enumerate(self._sites, 1)}  # 0 is none

    def clear(self) -> Array:
        return jnp.zeros(self._length, self._dtype)

    def after(self, word: Array, compute: Compute, operands: Iterable[Array], values: Values) -> Array:
        """The word after a read."""
        data, *indices = operands
        point = [index.evaluate(values) for _, index in compute.point]
        lengths = [length.evaluate(values) for length in compute.scalars] or [None] * len(indices)
        for at, (index, length) in enumerate(zip(indices, lengths), 1):
            if index.size:
                first = _first(index, data.shape[compute.attrs["axis"] + at - 1], length)
                word = self._noted(word, [self._numbers[id(compute), at], *first], point)
        return word

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
        compute, at = self._sites[number - 1]
        data, indices = (static_type(compute.operand_types[each], self._resolve) for each in (0, at))
        given = int(np.asarray(value).astype(indices.numpy_dtype))
        place = [int(each) for each in np.unravel_index(place, indices.shape)]
        lifted, place = point_of(place, compute.attrs.get("layout") or range(len(place)), self._sizes)
        parts = {**lifted, **dict(zip((symbol for symbol, _ in compute.point), point))}
        where = put_together(parts, compute.attrs.get("origin", ()), self._sizes)
        known, lengths = {**self._sizes, **where}, compute.attrs.get("lengths", ())
        valid = [each for each in lengths[at - 1 : at] if each.symbols() <= known.keys()]
        size = int(valid[0].evaluate(known)) if valid else data.shape[compute.attrs["axis"] + at - 1]
        within = within_at(compute.attrs, where, self._sizes)
        in_row = bool(compute.attrs.get("row"))
        raise out_of_range(given, size, compute.name, where, place, compute.location, within, in_row)

    def _resolve(self, extent: Expr) -> int:
        return int(extent.evaluate(self._sizes))


def _first(index: Array, size: int, length: Array | None) -> Iterator[Array]:
    """The first index out of range, and its place among all in order, -1 where there is none. `length`: how many
    positions count."""
    dtype = dtypes.from_numpy(index.dtype)
    flat = index.reshape(-1)
    beyond = jnp.full(flat.shape, size == 0)
    if 0 < size <= dtypes.highest(dtype):
        beyond = flat >= const(size, dtype)
    if dtypes.kind(dtype) != "uint":
        beyond = beyond | (flat < const(0, dtype))
    if length is not None and size:
        beyond = beyond | (clamped(flat, size) >= position(length))
    places = jnp.where(beyond, jnp.arange(flat.size, dtype=np.int32), np.int32(flat.size))
    place = places.min()
    held = jnp.minimum(place, np.int32(flat.size - 1))
    yield flat[held] if flat.size > 1 else flat[0]
    yield jnp.where(place < flat.size, place, np.int32(-1))
