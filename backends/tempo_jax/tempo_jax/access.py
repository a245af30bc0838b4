"""Reads and writes of buffers, as XLA likes them: slices that it updates in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from tempo.backends.loop_ir import Axis, Buffer, PointIndex, Read, WindowIndex
from tempo.symbolic import Expr, Symbol
from tempo_jax.halves import as_held, numbers
from tempo_jax.operators.indexing import take
from tempo_jax.pieces import Order, Pieces, order_within

Array = Any
Values = Mapping[Symbol, Any]
"""Numbers, or traced scalars: int32, or int64 where indices need that (`SegmentRequest.index_bits`)."""
Entries = list[tuple[Axis, PointIndex | WindowIndex]]


@dataclass(frozen=True)
class SliceAddress:
    """Where in the leading axes of a buffer, and how far from there along each: None is a point."""

    index: tuple[Any, ...]
    extents: tuple[int | None, ...]

    @staticmethod
    def point(index: tuple[Any, ...]) -> SliceAddress:
        return SliceAddress(index, (None,) * len(index))

    @property
    def points(self) -> list[int]:
        return [axis for axis, extent in enumerate(self.extents) if extent is None]

    def without(self, axis: int) -> SliceAddress:
        return SliceAddress(_without(self.index, axis), _without(self.extents, axis))

    @property
    def size(self) -> int:
        return math.prod(extent for extent in self.extents if extent is not None)


def read(
    buffer: Buffer,
    array: Array,
    statement: Read,
    values: Values,
    static: Values,
    order: Order | None = None,
    stays: bool = False,
) -> Array:
    """What the buffer holds at an index: one dynamic slice, then gathers of the windows that may leave it.

    A window is sliced where it fits and clamped within itself: a gather from the whole buffer is slower. `stays`: the
    slice is taken where it stands. Fused into what follows the buffer's next write, it would have the buffer copied.
    """
    entries = list(zip(buffer.axes, statement.index, strict=True))
    if isinstance(array, Pieces):
        _, at_piece = entries.pop(array.axis)
        assert isinstance(at_piece, PointIndex)
        array, order = array.piece(at_piece.index.evaluate(values)), order_within(order, array.axis)
    lengths = list(_logical_shape(array, order))
    if _is_everything(entries, lengths, static):
        return numbers(_logical(array, order), buffer.dtype)
    starts: list[Any] = [0] * array.ndim
    dropped: list[int] = []
    gathered: list[tuple[int, Array]] = []
    for at, (axis, entry) in enumerate(entries):
        if isinstance(entry, PointIndex):
            starts[at], lengths[at] = entry.index.evaluate(values), 1
            dropped.append(at)
            continue
        start, extent = entry.start.evaluate(values), entry.extent.evaluate(static)
        if entry.exact:
            starts[at], lengths[at] = start, extent
        elif axis.kind == "full" and extent <= lengths[at]:
            starts[at], lengths[at] = jnp.clip(start, 0, lengths[at] - extent), extent
            gathered.append((at, jnp.clip(start - starts[at] + _counted(extent), 0, extent - 1)))
        else:
            gathered.append((at, _positions(axis, start, extent, lengths[at])))
    cut = _slice(array, starts, lengths, order, stays)
    for at, positions in gathered:
        cut = take(cut, positions, at)
    return numbers(lax.squeeze(cut, dropped), buffer.dtype)


def _is_everything(entries: Entries, lengths: list[int], static: Values) -> bool:
    """Whether it is all that the array has; that may be less than the buffer (`tempo_jax.storage`)."""
    return all(
        isinstance(entry, WindowIndex)
        and (axis.kind == "full" or entry.exact)
        and entry.start == Expr((), 0)
        and (entry.extent == axis.extent or entry.extent.evaluate(static) == length)
        for (axis, entry), length in zip(entries, lengths)
    )


def _positions(axis: Axis, start: Any, extent: int, size: int) -> Array:
    positions = start + _counted(extent)
    return positions % size if axis.kind == "window" else jnp.clip(positions, 0, size - 1)


def _counted(extent: int) -> Array:
    return jnp.arange(extent, dtype=jnp.int32)


def _without(entries: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*entries[:axis], *entries[axis + 1 :])


def place(index: tuple[Expr, ...], values: Values, extents: tuple[Expr | None, ...], static: Values) -> SliceAddress:
    far = tuple(None if extent is None else int(extent.evaluate(static)) for extent in extents)
    return SliceAddress(tuple(each.evaluate(values) for each in index), far)


def point(index: tuple[Expr, ...], values: Values) -> SliceAddress:
    return SliceAddress.point(tuple(each.evaluate(values) for each in index))


def at(array: Array, where: SliceAddress, dtype: str, order: Order | None = None) -> Array:
    """What is at a place of a buffer, without the axes of which it is a point."""
    if isinstance(array, Pieces):
        piece, inner = array.piece(where.index[array.axis]), where.without(array.axis)
        return at(piece, inner, dtype, order_within(order, array.axis))
    count = len(where.index)
    starts = [*where.index, *([0] * (array.ndim - count))]
    lengths = [*(1 if extent is None else extent for extent in where.extents), *_logical_shape(array, order)[count:]]
    return numbers(lax.squeeze(_slice(array, starts, lengths, order), where.points), dtype)


def write(array: Array, where: SliceAddress, value: Array, order: Order | None = None) -> Array:
    """`array` with `value` at a place; without index, `value` as the array lies."""
    if isinstance(array, Pieces):
        position, axis = where.index[array.axis], array.axis
        written = write(array.piece(position), where.without(axis), value, order_within(order, axis))
        return array.replaced(position, written)
    value = as_held(value, array)
    if not where.index:
        return value if order is None else lax.transpose(value, order)
    starts = [*where.index, *([0] * (array.ndim - len(where.index)))]
    written = lax.expand_dims(value, where.points)
    if order is not None:
        written, starts = lax.transpose(written, order), [starts[axis] for axis in order]
    return lax.dynamic_update_slice(array, written, _indices(starts), allow_negative_indices=False)


def _slice(array: Array, starts: list[Any], lengths: list[int], order: Order | None, stays: bool = False) -> Array:
    """Of an array whose axes lie in `order`, with logical starts and lengths; the result is logical."""
    if order is not None:
        starts, lengths = [starts[axis] for axis in order], [lengths[axis] for axis in order]
    cut = lax.dynamic_slice(array, _indices(starts), lengths, allow_negative_indices=False)
    return _logical(lax.optimization_barrier(cut) if stays else cut, order)


def _logical(array: Array, order: Order | None) -> Array:
    return array if order is None else lax.transpose(array, tuple(order.index(axis) for axis in range(len(order))))


def _logical_shape(array: Array, order: Order | None) -> tuple[int, ...]:
    shape: tuple[int, ...] = array.shape
    return shape if order is None else tuple(shape[order.index(axis)] for axis in range(len(order)))


def _indices(starts: list[Any]) -> list[Array]:
    """As XLA wants them. None is negative, which NumPy would count from the end: that costs a selection each."""
    narrow = all(_is_narrow(start) for start in starts)
    return [jnp.asarray(start, jnp.int32 if narrow else jnp.int64) for start in starts]


def _is_narrow(start: Any) -> bool:
    return abs(start) < 1 << 31 if isinstance(start, int) else bool(start.dtype.itemsize <= 4)
