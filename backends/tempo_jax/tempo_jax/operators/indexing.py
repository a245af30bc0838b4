"""Data-dependent reads and writes: gather, gather_pairs, scatter_add.

Compiled code cannot raise, so an index out of range is clamped, whether `checked` or not; `tempo_jax.checks` looks at
those that are checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from tempo import dtypes
from tempo.backends.operators import Builder, Call, StaticType
from tempo.errors import IndexOutOfRangeError
from tempo_jax.operators.values import HALF, Function, Scalar, Value, const, converted, full, position

_IN_BOUNDS = lax.GatherScatterMode.PROMISE_IN_BOUNDS  # indices are clamped before, so XLA need not do it again


def take(x: Value, at: Value, axis: int) -> Value:
    """`x` at the positions `at` (a vector, all within range) along `axis`."""
    others = tuple(number for number in range(x.ndim) if number != axis)
    numbers = lax.GatherDimensionNumbers(offset_dims=others, collapsed_slice_dims=(axis,), start_index_map=(axis,))
    sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return lax.gather(x, at[:, None], numbers, sizes, mode=_IN_BOUNDS)


@dataclass(frozen=True)
class _Indexed:
    """Which axes of `data` are indexed, and which axes of what is read come from `data`.

    The axes of what is read are: batch, data up to the indexed axes, index beyond batch, data after the indexed axes.
    """

    batch: int
    axes: tuple[int, ...]
    offsets: tuple[int, ...]

    @staticmethod
    def of(call: Call, read: StaticType) -> _Indexed:
        batch, axis = int(call.attrs.get("batch", 0)), call.attrs["axis"]
        axes = tuple(range(axis, axis + call.attrs.get("count", 1)))
        after = axis + call.operands[1].rank - batch
        return _Indexed(batch, axes, (*range(batch, axis), *range(after, read.rank)))

    def starts(self, data: StaticType, given: tuple[Value | Scalar, ...]) -> Value:
        """Index vectors on the last axis, within range, as int32."""
        count = len(self.axes)
        lengths = given[count:] or (None,) * count
        within = [clamped(*each) for each in zip(given, (data.shape[axis] for axis in self.axes), lengths)]
        return jnp.stack(within, axis=-1)


def clamped(index: Value, size: int, length: Scalar | None = None) -> Value:
    """Into [0, size), compared in the dtype of the index: a large unsigned one must not become negative. `length`: how
    many of the positions count.
    """
    dtype = dtypes.from_numpy(index.dtype)
    last = min(size - 1, dtypes.highest(dtype))
    inside = converted(lax.clamp(const(0, dtype), index, const(last, dtype)), "int32")
    return inside if length is None else jnp.minimum(inside, jnp.maximum(position(length) - 1, 0))


def _check_not_empty(call: Call, indexed: _Indexed) -> None:
    if call.operands[1].elements and _is_empty(call, indexed):
        raise IndexOutOfRangeError("every index is out of range for an axis of size 0")


def _is_empty(call: Call, indexed: _Indexed) -> bool:
    return any(call.operands[0].shape[axis] == 0 for axis in indexed.axes)


def _gather(call: Call) -> Function:
    indexed, data, shape, dtype = _Indexed.of(call, call.result), call.operands[0], call.result.shape, call.result.dtype
    if not call.attrs.get("checked"):
        _check_not_empty(call, indexed)
    if call.result.elements == 0 or _is_empty(call, indexed):
        return lambda data, *given: full(shape, 0, dtype)
    if call.operands[1].rank == 0 and len(indexed.axes) == 1:
        return (_take_one_and_keep if call.attrs.get("stays") else _take_one)(indexed.axes[0], data)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=indexed.offsets,
        collapsed_slice_dims=indexed.axes,
        start_index_map=indexed.axes,
        operand_batching_dims=tuple(range(indexed.batch)),
        start_indices_batching_dims=tuple(range(indexed.batch)),
    )
    single = {*range(indexed.batch), *indexed.axes}
    sizes = tuple(1 if axis in single else size for axis, size in enumerate(data.shape))

    def gather(x: Value, *given: Value | Scalar) -> Value:
        return lax.gather(x, indexed.starts(data, given), numbers, sizes, mode=_IN_BOUNDS)

    return gather


def _take_one(axis: int, data: StaticType) -> Function:
    """One position: a dynamic slice, which XLA fuses where it does not fuse a gather."""
    size = data.shape[axis]

    def take(x: Value, index: Value, length: Scalar | None = None) -> Value:
        return lax.dynamic_index_in_dim(x, clamped(index, size, length), axis, keepdims=False)

    return take


def _take_one_and_keep(axis: int, data: StaticType) -> Function:
    """Once for all that is made of it. XLA makes a slice of a gather of one position, which it fuses into each, so of
    two that are the same the first."""
    size = data.shape[axis]

    def take_and_keep(x: Value, index: Value, length: Scalar | None = None) -> Value:
        twice = take(x, lax.broadcast(clamped(index, size, length), (2,)), axis)
        return lax.index_in_dim(twice, 0, axis, keepdims=False)

    return take_and_keep


def _scatter_add(call: Call) -> Function:
    indexed, base, dtype = _Indexed.of(call, call.operands[-1]), call.operands[0], call.result.dtype
    _check_not_empty(call, indexed)
    if call.operands[-1].elements == 0:
        return lambda base, *given: base
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=indexed.offsets,
        inserted_window_dims=indexed.axes,
        scatter_dims_to_operand_dims=indexed.axes,
        operand_batching_dims=tuple(range(indexed.batch)),
        scatter_indices_batching_dims=tuple(range(indexed.batch)),
    )
    wide = "float32" if dtype in HALF else dtype

    def scatter(x: Value, *given: Value) -> Value:
        *indices, updates = given
        starts = indexed.starts(base, tuple(indices))
        added = lax.scatter_add(converted(x, wide), starts, converted(updates, wide), numbers, mode=_IN_BOUNDS)
        return converted(added, dtype)

    return scatter


INDEXING: Mapping[str, Builder] = {"gather": _gather, "gather_pairs": _gather, "scatter_add": _scatter_add}
