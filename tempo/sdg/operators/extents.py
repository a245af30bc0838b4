"""Operators that add, drop, move or overwrite positions along axes: pad, slice, shift, mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge
from tempo.sdg.operators.axes import (
    SIZE,
    Attrs,
    Factor,
    Factors,
    Role,
    Shape,
    along,
    is_number,
    no_cost,
    per_element,
    shape_along,
    shape_of,
    show,
    typed,
)
from tempo.sdg.operators.making import Reverse
from tempo.sdg.operators.operator import Function, Operator
from tempo.symbolic import Expr, as_expr, const

# pad {low, high, value}: `value` (0 unless given) before and after, sizes per axis


def _padded(attrs: Attrs, shape: Shape) -> Shape:
    low, high = shape_of(attrs["low"]), shape_of(attrs["high"])
    if not len(shape) == len(low) == len(high):
        raise ShapeError(f"pad: {show(low)} and {show(high)} do not name every axis of {show(shape)} once")
    negative = [size for size in (*low, *high) if size.is_const and size.as_int() < 0]
    if negative:
        raise ShapeError(f"pad: {negative[0]} elements cannot be added")
    return tuple(a + size + b for a, size, b in zip(low, shape, high))


def _pad_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    sides = zip(shape_of(attrs["low"]), shape_of(attrs["high"]))
    roles = (Role.PARALLEL if low == high == const(0) else Role.WINDOW for low, high in sides)
    return tuple(Factor(role, (axis,), axis) for axis, role in enumerate(roles))


def _numpy_pad(call: Call) -> Function:
    shape, dtype, value = call.result.shape, call.result.numpy_dtype, call.attrs.get("value", 0)
    inside = tuple(slice(low, low + size) for low, size in zip(call.attrs["low"], call.operands[0].shape))

    def pad(x: Any) -> Any:
        result = np.full(shape, value, dtype)
        result[inside] = x
        return result

    return pad


def _pad_gradient(r: Reverse) -> tuple[Edge]:
    shape = r.shape(r.x)
    return (r.apply("slice", r.g, starts=shape_of(r.attrs["low"]), lengths=shape, steps=(1,) * len(shape)),)


# slice {starts, lengths, steps}: positions start, start + step, ... along every axis


def _cut(attrs: Attrs, shape: Shape) -> Shape:
    lengths, steps = shape_of(attrs["lengths"]), attrs["steps"]
    if not len(shape) == len(lengths) == len(attrs["starts"]) == len(steps):
        raise ShapeError(f"slice: not every axis of {show(shape)} has one start, length and step")
    if 0 in steps:
        raise ShapeError("slice: a step of 0")
    if const(0) not in lengths:  # else nothing is read
        for start, size, length, step in zip(attrs["starts"], shape, lengths, steps):
            _check_slice(as_expr(start), size, length, step)
    return lengths


def _check_slice(start: Expr, size: Expr, length: Expr, step: int) -> None:
    if not (start.is_const and size.is_const and length.is_const):
        return
    ends = (start.as_int(), start.as_int() + (length.as_int() - 1) * step)
    if length.as_int() < 0 or min(ends) < 0 or max(ends) >= size.as_int():
        raise ShapeError(f"slice: positions {ends[0]} to {ends[1]} are not within an axis of size {size}")


def _slice_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """What is taken whole is kept."""
    parts = zip(shape_of(attrs["starts"]), operands[0], result, attrs["steps"])
    roles = (Role.PARALLEL if _whole(*part) else Role.MOVING for part in parts)
    return tuple(Factor(role, (axis,), axis) for axis, role in enumerate(roles))


def _numpy_slice(call: Call) -> Function:
    starts, lengths, steps = shape_of(call.attrs["starts"]), call.result.shape, call.attrs["steps"]
    axes = list(zip(call.operands[0].shape, lengths, steps))
    if 0 in lengths:
        return lambda x, *starts: np.empty(lengths, x.dtype)
    if all(start.is_const for start in starts):
        return _fixed_slice([(start.as_int(), *axis) for start, axis in zip(starts, axes)])
    moving = [axis for axis, start in enumerate(starts) if not start.is_const]
    if moving == [0] and steps[0] == 1 and all(_whole(start, *axis) for start, axis in zip(starts[1:], axes[1:])):
        return _leading_slice(*axes[0][:2])

    def general(x: Any, *starts: int) -> Any:
        return _sliced(x, [(start, *axis) for start, axis in zip(starts, axes)])

    return general


def _whole(start: Expr, size: Expr | int, length: Expr | int, step: int) -> bool:
    return is_number(start, 0) and length == size and step == 1


def _fixed_slice(axes: Sequence[tuple[int, int, int, int]]) -> Function:
    if all(_within(*axis) for axis in axes):
        index = tuple(_basic(start, length, step) for start, _, length, step in axes)
        return lambda x, *starts: x[index]
    return lambda x, *starts: _sliced(x, axes)


def _leading_slice(size: int, length: int) -> Function:
    last = size - length

    def leading(x: Any, start: int, *others: int) -> Any:
        if 0 <= start <= last:
            return x[start : start + length]
        return x[_clamped(start, size, length, 1)]

    return leading


def _sliced(x: Any, axes: Sequence[tuple[int, int, int, int]]) -> Any:
    """Axes are `(start, size, length, step)`. Positions outside an axis are clamped into it.

    The language checks slices before a run, so only what static tiling reads beyond a slice's length is outside.
    """
    x = x[tuple(_basic(axis[0], *axis[2:]) if _within(*axis) else slice(None) for axis in axes)]
    for number, axis in enumerate(axes):
        if not _within(*axis):
            x = x.take(_clamped(*axis), number)
    return x


def _within(start: int, size: int, length: int, step: int) -> bool:
    return 0 <= start < size and 0 <= start + (length - 1) * step < size


def _basic(start: int, length: int, step: int) -> slice:
    stop = start + length * step
    return slice(start, None if stop < 0 else stop, step)


def _clamped(start: int, size: int, length: int, step: int) -> Any:
    return np.clip(start + step * np.arange(length), 0, size - 1)


def _slice_gradient(r: Reverse) -> tuple[Edge]:
    """The positions that were not taken get 0: padding where the rest is one block at a place that does not move."""
    shape, found = r.shape(r.x), r.g
    low, high = [as_expr(0)] * len(shape), [as_expr(0)] * len(shape)
    for axis, size in enumerate(shape):
        start, length, step = as_expr(r.attrs["starts"][axis]), r.shape(r.g)[axis], r.attrs["steps"][axis]
        if step == 1 and not start.dims():
            low[axis], high[axis] = start, size - start - length
        elif is_number(length, 1):
            found = _at_one(r, found, axis, start, size)
        else:
            found = _scattered(r, found, axis, start, step, size)
    if any(not is_number(extra, 0) for extra in (*low, *high)):
        found = r.apply("pad", found, low=tuple(low), high=tuple(high), value=0)
    return (found,)


def _at_one(r: Reverse, edge: Edge, axis: int, start: Expr, size: Expr) -> Edge:
    """An axis of one position, put at `start` of one of `size`."""
    shape = r.shape(edge)
    positions = r.apply("iota", shape=(size, *(as_expr(1),) * (len(shape) - axis - 1)), axis=0, dtype="int32")
    chosen = r.apply("eq", positions, r.apply("index_value", expr=start))
    return r.where(chosen, r.broadcast(edge, (*shape[:axis], size, *shape[axis + 1 :])), 0)


def _scattered(r: Reverse, edge: Edge, axis: int, start: Expr, step: int, size: Expr) -> Edge:
    """The positions of an axis, put at `start`, `start + step`, ... of one of `size`."""
    shape = r.shape(edge)
    base = r.broadcast(r.number(0), (*shape[:axis], size, *shape[axis + 1 :]))
    positions = r.apply("iota", shape=(shape[axis],), axis=0, dtype="int32")
    stepped = r.apply("mul", positions, r.apply("index_value", expr=as_expr(step)))
    indices = r.apply("add", stepped, r.apply("index_value", expr=start))
    return r.apply("scatter_add", base, indices, edge, axis=axis, batch=0, checked=False)


# shift {axis, distance}: position i is position i - distance of the operand, 0 where there is none; made by pipelining,
# which says of what `dim` the axis is


def _shift_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """A window of one position, some way off."""
    axes = along("axis", Role.WINDOW)(attrs, operands, result)
    return tuple(replace(axis, distance=attrs["distance"]) if axis.role is Role.WINDOW else axis for axis in axes)


def _numpy_shift(call: Call) -> Function:
    axis, distance = call.attrs["axis"], call.attrs["distance"]
    size, before = call.result.shape[axis], (slice(None),) * axis
    kept = max(size - abs(distance), 0)
    start = max(distance, 0)
    to, of = (slice(first, first + kept) for first in (start, start - distance))

    def shift(x: Any) -> Any:
        result = np.zeros_like(x)
        if kept:
            result[(*before, to)] = x[(*before, of)]
        return result

    return shift


def _shift_gradient(r: Reverse) -> tuple[Edge]:
    return (r.apply("shift", r.g, **{**r.attrs, "distance": -r.attrs["distance"]}),)


# mask {axis, fill, length}: positions at or after `length` along `axis` become `fill`; made by static tiling


def _numpy_mask(call: Call) -> Function:
    before, fill = (slice(None),) * call.attrs["axis"], call.attrs["fill"]
    size = call.result.shape[call.attrs["axis"]]

    def mask(x: Any, length: int) -> Any:
        if length >= size:
            return x
        result = x.copy()
        result[(*before, slice(max(length, 0), None))] = fill
        return result

    return mask


def _mask_gradient(r: Reverse) -> tuple[Edge]:
    return (r.apply("mask", r.g, **{**r.attrs, "fill": 0}),)


EXTENTS = (
    Operator(
        name="pad",
        kind="movement",
        infer=typed("pad", 1, _padded),
        axes=_pad_axes,
        cost=no_cost,
        numpy=_numpy_pad,
        entries={"low": 0, "high": 0},
        static_attrs=("low", "high"),
        gradient=_pad_gradient,
    ),
    Operator(
        name="slice",
        kind="movement",
        infer=typed("slice", 1, _cut),
        axes=_slice_axes,
        cost=no_cost,
        numpy=_numpy_slice,
        entries={"starts": const(0), "lengths": SIZE, "steps": 1},
        scalar_attrs=("starts",),
        static_attrs=("lengths",),
        views=True,
        gradient=_slice_gradient,
    ),
    Operator(
        name="shift",
        kind="movement",
        infer=typed("shift", 1, shape_along("shift", "axis")),
        axes=_shift_axes,
        cost=no_cost,
        numpy=_numpy_shift,
        axis_attrs=("axis",),
        gradient=_shift_gradient,
    ),
    Operator(
        name="mask",
        kind="movement",
        infer=typed("mask", 1, shape_along("mask", "axis")),
        axes=along("axis", Role.PARALLEL, ordered=True),
        cost=per_element(),
        numpy=_numpy_mask,
        axis_attrs=("axis",),
        scalar_attrs=("length",),
        views=True,
        gradient=_mask_gradient,
    ),
)
