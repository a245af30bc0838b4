"""Reads and writes of buffers, as XLA likes them: slices that it updates in place."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tempo.lowering.loop_ir import Axis, Buffer, PointIndex, Read, WindowIndex
from tempo.symbolic import Expr
from tempo_jax.evaluate import Values, expression

Array = Any


def read(buffer: Buffer, array: Array, statement: Read, values: Values, static: Values) -> Array:
    """What the buffer holds at an index: one dynamic slice, then gathers of the windows that may leave it."""
    if buffer.is_slot or _is_everything(buffer, statement):
        return array
    starts: list[Any] = [0] * array.ndim
    lengths = list(array.shape)
    dropped: list[int] = []
    gathered: list[tuple[int, Axis, WindowIndex]] = []
    for at, (axis, entry) in enumerate(zip(buffer.axes, statement.index, strict=True)):
        if isinstance(entry, PointIndex):
            starts[at], lengths[at] = expression(entry.index, values), 1
            dropped.append(at)
        elif entry.exact:
            starts[at], lengths[at] = expression(entry.start, values), expression(entry.extent, static)
        else:
            gathered.append((at, axis, entry))
    cut = _slice(array, starts, lengths)
    for at, axis, entry in gathered:
        cut = jnp.take(cut, _positions(axis, entry, array.shape[at], values, static), axis=at, mode="clip")
    return lax.squeeze(cut, dropped)


def _is_everything(buffer: Buffer, statement: Read) -> bool:
    return all(
        isinstance(entry, WindowIndex)
        and axis.kind == "full"
        and entry.start == Expr((), 0)
        and entry.extent == axis.extent
        for axis, entry in zip(buffer.axes, statement.index, strict=True)
    )


def _positions(axis: Axis, entry: WindowIndex, size: int, values: Values, static: Values) -> Array:
    positions = expression(entry.start, values) + jnp.arange(expression(entry.extent, static), dtype=jnp.int32)
    return positions % size if axis.kind == "window" else jnp.clip(positions, 0, size - 1)


def place(index: tuple[Expr, ...], values: Values) -> tuple[Any, ...]:
    return tuple(expression(each, values) for each in index)


def at(array: Array, index: tuple[Any, ...]) -> Array:
    """The element of the leading axes."""
    starts = [*index, *([0] * (array.ndim - len(index)))]
    lengths = [*([1] * len(index)), *array.shape[len(index) :]]
    return lax.squeeze(_slice(array, starts, lengths), range(len(index)))


def write(array: Array, index: tuple[Any, ...], value: Array) -> Array:
    """`array` with `value` at the element `index` of the leading axes; without index, `value` itself."""
    if not index:
        return value
    starts = [*index, *([0] * (array.ndim - len(index)))]
    return lax.dynamic_update_slice(
        array, lax.expand_dims(value, range(len(index))), _indices(starts), allow_negative_indices=False
    )


def _slice(array: Array, starts: list[Any], lengths: list[int]) -> Array:
    return lax.dynamic_slice(array, _indices(starts), lengths, allow_negative_indices=False)


def _indices(starts: list[Any]) -> list[Array]:
    """As XLA wants them. None is negative, which NumPy would count from the end: that costs a selection each."""
    return [jnp.asarray(start, jnp.int32) for start in starts]
