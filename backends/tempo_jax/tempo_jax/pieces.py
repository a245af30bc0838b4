"""An array in pieces: one for each position of an axis. XLA copies a slice of a larger array before it contracts it; an
array of its own it reads where it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo.backends import ByPoint

Array = Any
Order = tuple[int, ...]
"""The logical axes of a buffer as they lie in memory, where they lie in another order than the logical one."""


@partial(jax.tree_util.register_dataclass, data_fields=("arrays",), meta_fields=("axis",))
@dataclass(frozen=True)
class Pieces:
    """`arrays` stand for the positions of the logical axis `axis`, which they do not have."""

    arrays: tuple[Array, ...]
    axis: int

    @property
    def size(self) -> int:
        return sum(array.size for array in self.arrays)

    def piece(self, at: int) -> Array:
        """The array at a position. One beyond the last, which the side of a branch that is not taken may name, is the
        last, as it is for XLA."""
        return self.arrays[self._inside(at)]

    def replaced(self, at: int, array: Array) -> Pieces:
        at = self._inside(at)
        return replace(self, arrays=(*self.arrays[:at], array, *self.arrays[at + 1 :]))

    def _inside(self, at: int) -> int:
        return min(max(at, 0), len(self.arrays) - 1) if len(self.arrays) > 1 else 0

    def only(self, at: int) -> Pieces:
        """The array at a position, for statements that name no other one."""
        return replace(self, arrays=(self.piece(at),))

    def mapped(self, function: Callable[[Array], Array]) -> Pieces:
        return replace(self, arrays=tuple(function(array) for array in self.arrays))


def apart(array: Array, axis: int, order: Order | None) -> Pieces:
    """The array in pieces; its axes lie in `order`. Itself where it is in pieces."""
    if isinstance(array, Pieces):
        return array
    physical = _lies(axis, order)
    count = array.shape[physical]
    return Pieces(tuple(lax.index_in_dim(array, at, physical, keepdims=False) for at in range(count)), axis)


def piece_of(array: Array, axis: int, at: int, order: Order | None) -> Pieces:
    """What is at one position of the axis, for statements that name no other one."""
    if isinstance(array, Pieces):
        return array.only(at)
    physical = _lies(axis, order)
    inside = min(max(at, 0), array.shape[physical] - 1)  # as `Pieces.piece`
    return Pieces((lax.index_in_dim(array, inside, physical, keepdims=False),), axis)


def as_pieces(array: Any) -> Any:
    """What is given by point, in pieces; anything else as it is."""
    return Pieces(tuple(array), 0) if isinstance(array, ByPoint) else array


def as_points(array: Any) -> Any:
    """What is in pieces along the first axis, by point."""
    return ByPoint(array.arrays) if isinstance(array, Pieces) and array.axis == 0 else array


def together(array: Array, order: Order | None) -> Array:
    return jnp.stack(array.arrays, _lies(array.axis, order)) if isinstance(array, Pieces) else array


def grown(array: Array, axis: int, extent: int, order: Order | None) -> Array:
    """The array, or its pieces, with at least `extent` positions along a logical axis; new ones hold zeros."""
    if isinstance(array, Pieces):
        inner, within = axis - (axis > array.axis), order_within(order, array.axis)
        return array.mapped(lambda each: grown(each, inner, extent, within))
    physical = _lies(axis, order)
    new = extent - array.shape[physical]
    if new <= 0:
        return array
    return lax.pad(array, array.dtype.type(0), [(0, new if at == physical else 0, 0) for at in range(array.ndim)])


def order_within(order: Order | None, axis: int) -> Order | None:
    """The order of a piece's axes."""
    return None if order is None else tuple(each - (each > axis) for each in order if each != axis)


def _lies(axis: int, order: Order | None) -> int:
    return axis if order is None else order.index(axis)
