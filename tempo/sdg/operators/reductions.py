"""Reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge
from tempo.sdg.operators.axes import (
    ANY,
    HALF,
    NUMBER,
    Attrs,
    Factor,
    Factors,
    Fold,
    Role,
    Shape,
    along,
    check_axes,
    per_element,
    shape_along,
    typed,
)
from tempo.sdg.operators.making import Gradient, Reverse, constant
from tempo.sdg.operators.operator import Builder, Function, Operator
from tempo.symbolic import const

# reduce_* {axes}: the axes are removed


def _of_nothing(call: Call, axes: tuple[int, ...], value: Any) -> Function | None:
    """What an extreme is where a reduced axis is empty; None where none is.

    Where it is needed, checks raise before anything runs. A program may still run it at points that nothing needs, or
    make it for a loop that runs nowhere, so it must have some value.
    """
    if all(call.operands[0].shape[axis] for axis in axes):
        return None
    return lambda x: np.full(call.result.shape, value, call.result.numpy_dtype)


def _total(apply: Callable[..., Any], key: str) -> Builder:
    """Sums and products, of all or up to each element, in the dtype of the operand; halves in float32."""

    def builder(call: Call) -> Function:
        axes, dtype = call.attrs[key], call.result.numpy_dtype
        if call.result.dtype in HALF:
            return lambda x: apply(x, axes, np.float32).astype(dtype)
        return lambda x: apply(x, axes, dtype)

    return builder


def _extreme(function: np.ufunc, neutral: Callable[[str], Any]) -> Builder:
    """Maxima and minima, also of truth values; NaN where an element is NaN."""

    def builder(call: Call) -> Function:
        axes, reduce = tuple(call.attrs["axes"]), function.reduce
        return _of_nothing(call, axes, neutral(call.result.dtype)) or (lambda x: reduce(x, axes))

    return builder


def _sum_gradient(r: Reverse) -> tuple[Edge]:
    return (r.spread(r.g, r.attrs["axes"], r.shape(r.x)),)


def _prod_gradient(r: Reverse) -> tuple[Edge]:
    """g * (the product of the others): of what is not 0, divided by x; at a single 0 not divided; else 0."""
    axes, shape = r.attrs["axes"], r.shape(r.x)
    is_zero = r.compare("eq", r.x, 0)
    others = r.apply("reduce_prod", r.where(is_zero, 1, r.x), axes=axes)
    zeros = r.spread(r.sum(r.where(is_zero, r.number(1), 0), axes), axes, shape)
    full = r.spread(others, axes, shape)
    at_zero = r.where(r.compare("eq", zeros, 1), full, 0)
    beside = r.where(r.compare("eq", zeros, 0), r.div(full, r.where(is_zero, 1, r.x)), 0)
    return (r.mul(r.spread(r.g, axes, shape), r.where(is_zero, at_zero, beside)),)


def _extreme_gradient(r: Reverse) -> tuple[Edge]:
    """To the elements that are the extreme, in equal parts, as JAX does."""
    axes, shape = r.attrs["axes"], r.shape(r.x)
    share = r.where(r.compare("eq", r.x, r.spread(r.result, axes, shape)), r.number(1), 0)
    return (r.mul(share, r.spread(r.div(r.g, r.sum(share, axes)), axes, shape)),)


def _reduction(
    name: str,
    kinds: tuple[str, ...],
    numpy: Builder,
    neutral: Callable[[str], bool | int | float],
    combine: str,
    result: str | None = None,
    least: int = 0,
    gradient: Gradient = constant,
) -> Operator:
    return Operator(
        name=name,
        kind="reduction",
        infer=typed(name, 1, shape_along(name, "axes", True, least), kinds, result),
        axes=along("axes", Role.REDUCING, removed=True),
        cost=per_element(),
        numpy=numpy,
        fold=Fold(neutral, combine),
        least=lambda attrs: max(least, int("nonempty" in attrs)),  # which says what has no value of nothing: "mean"
        axis_attrs=("axes",),
        gradient=gradient,
    )


REDUCTIONS = (
    _reduction("reduce_sum", NUMBER, _total(np.add.reduce, "axes"), lambda dtype: 0, "add", gradient=_sum_gradient),
    _reduction(
        "reduce_prod", NUMBER, _total(np.multiply.reduce, "axes"), lambda dtype: 1, "mul", gradient=_prod_gradient
    ),
    _reduction(
        "reduce_max",
        ANY,
        _extreme(np.maximum, dtypes.lowest),
        dtypes.lowest,
        "maximum",
        least=1,
        gradient=_extreme_gradient,
    ),
    _reduction(
        "reduce_min",
        ANY,
        _extreme(np.minimum, dtypes.highest),
        dtypes.highest,
        "minimum",
        least=1,
        gradient=_extreme_gradient,
    ),
    _reduction(
        "reduce_any",
        ANY,
        _extreme(np.logical_or, lambda dtype: False),
        lambda dtype: False,
        "logical_or",
        result="bool",
    ),
    _reduction(
        "reduce_all",
        ANY,
        _extreme(np.logical_and, lambda dtype: True),
        lambda dtype: True,
        "logical_and",
        result="bool",
    ),
)

# argmax, argmin {axis}: the first position of the extreme, or of NaN; int32


def _position(function: Callable[[Any, int], Any]) -> Builder:
    def builder(call: Call) -> Function:
        axis, dtype = call.attrs["axis"], call.result.numpy_dtype
        return _of_nothing(call, (axis,), 0) or (lambda x: function(x, axis).astype(dtype))

    return builder


def _arg(name: str, function: Callable[[Any, int], Any], neutral: Callable[[str], bool | int | float]) -> Operator:
    return Operator(
        name=name,
        kind="reduction",
        infer=typed(name, 1, shape_along(name, "axis", True, 1), result="int32"),
        axes=along("axis", Role.REDUCING, removed=True, ordered=True),
        cost=per_element(),
        numpy=_position(function),
        fold=Fold(neutral),
        least=lambda attrs: 1,
        axis_attrs=("axis",),
        gradient=constant,
    )


ARGS = (
    _arg("argmax", lambda x, axis: x.argmax(axis), dtypes.lowest),
    _arg("argmin", lambda x, axis: x.argmin(axis), dtypes.highest),
)

# cumsum, cumprod, sort, argsort {axis}


_PACKED = 512
"""Positions from which on words of key and position are sorted in less time than positions by key. Measured."""


def _sortable(call: Call) -> Function:
    """bfloat16 as float32: NumPy's sorts do not put NaN last in a dtype that it does not know."""
    return (lambda x: x.astype(np.float32)) if call.operands[0].dtype == "bfloat16" else (lambda x: x)


def _numpy_sort(call: Call) -> Function:
    axis, dtype, sortable = call.attrs["axis"], call.result.numpy_dtype, _sortable(call)
    return lambda x: np.sort(sortable(x), axis=axis, kind="stable").astype(dtype, copy=False)


def _numpy_argsort(call: Call) -> Function:
    axis, sortable, operand = call.attrs["axis"], _sortable(call), call.operands[0]
    if operand.dtype in ("uint32", "int32") and _PACKED <= operand.shape[axis] <= 1 << 32:
        return lambda x: _packed_argsort(x, axis)
    return lambda x: np.argsort(sortable(x), axis=axis, kind="stable").astype(np.int32)


def _packed_argsort(x: Any, axis: int) -> Any:
    """Words of key and position are all different, so any sort of them is stable; NumPy's of words is its fastest."""
    keys = np.moveaxis(x, axis, -1)
    words = np.left_shift(keys.view(np.uint32), np.uint64(32), dtype=np.uint64)
    if keys.dtype == np.int32:
        words ^= np.uint64(1 << 63)  # negative numbers first
    words |= np.arange(keys.shape[-1], dtype=np.uint32)
    words.sort(axis=-1)
    return np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis)


def _last(dtype: str) -> bool | int | float:
    """What sorts behind all others: NaN comes after infinity, and sorts are stable."""
    return np.nan if dtypes.is_float(dtype) else dtypes.highest(dtype)


def _sort_cost(call: Call) -> float:
    operand = call.operands[0]
    return operand.elements * float(np.log2(max(2, operand.shape[call.attrs["axis"]])))


def _to_the_end(r: Reverse, edge: Edge) -> Edge:
    """The sum from each position to the end."""
    axis = r.attrs["axis"]
    return r.apply("flip", r.apply("cumsum", r.apply("flip", edge, axes=(axis,)), axis=axis), axes=(axis,))


def _cumsum_gradient(r: Reverse) -> tuple[Edge]:
    return (_to_the_end(r, r.g),)


def _cumprod_gradient(r: Reverse) -> tuple[Edge]:
    """sum_{i >= j} g_i y_i / x_j before the first 0; at it the same of the products without it; 0 behind it."""
    axis, is_zero = r.attrs["axis"], r.compare("eq", r.x, 0)
    zeros = r.apply("cumsum", r.apply("cast", is_zero, dtype="int32"), axis=axis)
    is_first = r.apply("logical_and", is_zero, r.compare("eq", zeros, 1))
    without = r.apply("cumprod", r.where(is_first, 1, r.x), axis=axis)
    at_first = r.where(is_first, _to_the_end(r, r.mul(r.g, without)), 0)
    before = r.div(_to_the_end(r, r.mul(r.g, r.result)), r.where(is_zero, 1, r.x))
    return (r.where(is_zero, at_first, before),)


def _sort_gradient(r: Reverse) -> tuple[Edge]:
    """Back to where each element came from: argsort of the order is its inverse."""
    axis, rank = r.attrs["axis"], r.rank(r.x)
    last = (*(other for other in range(rank) if other != axis), axis)
    order = r.apply("argsort", r.transpose(r.x, last), axis=rank - 1)
    inverse = r.apply("argsort", order, axis=rank - 1)
    found = r.apply("gather", r.transpose(r.g, last), inverse, axis=rank - 1, batch=rank - 1, checked=False)
    return (r.transpose(found, [last.index(place) for place in range(rank)]),)


def _scan(
    name: str,
    kinds: tuple[str, ...],
    numpy: Builder,
    cost: Callable[[Call], float],
    gradient: Gradient,
    fold: Fold | None = None,
    result: str | None = None,
) -> Operator:
    return Operator(
        name=name,
        kind="scan",
        infer=typed(name, 1, shape_along(name, "axis"), kinds, result),
        axes=along("axis", Role.SCANNING),
        fold=fold,
        cost=cost,
        numpy=numpy,
        axis_attrs=("axis",),
        gradient=gradient,
    )


# top_k_indices {axis, k}: the positions of the k greatest elements, greatest first, equal ones as they lie; int32


def _greatest(attrs: Attrs, shape: Shape) -> Shape:
    axis, k = attrs["axis"], attrs["k"]
    check_axes("top_k", (axis,), len(shape))
    if shape[axis].is_const and shape[axis].as_int() < k:
        raise ShapeError(f"top_k of {k} elements along an axis of {shape[axis]}")
    return (*shape[:axis], const(k), *shape[axis + 1 :])


def _top_k_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    axis = attrs["axis"]
    others = [Factor(Role.PARALLEL, (each,), each) for each in range(len(result)) if each != axis]
    return (*others, Factor(Role.REDUCING, (axis,), ordered=True), Factor(Role.OPAQUE, (None,), axis))


def _numpy_top_k(call: Call) -> Function:
    """The last of a stable sort of what is seen from behind."""
    axis, k, sortable = call.attrs["axis"], call.attrs["k"], _sortable(call)
    last = np.int32(call.operands[0].shape[axis] - 1)

    def positions_of_greatest(x: Any) -> Any:
        order = np.argsort(np.flip(sortable(x), axis), axis=axis, kind="stable")
        return last - np.flip(order, axis).take(range(k), axis).astype(np.int32)

    return positions_of_greatest


SCANS = (
    _scan("cumsum", NUMBER, _total(np.add.accumulate, "axis"), per_element(), _cumsum_gradient),
    _scan("cumprod", NUMBER, _total(np.multiply.accumulate, "axis"), per_element(), _cumprod_gradient),
    _scan("sort", ANY, _numpy_sort, _sort_cost, _sort_gradient, Fold(_last)),
    _scan("argsort", ANY, _numpy_argsort, _sort_cost, constant, Fold(_last), "int32"),
    Operator(
        name="top_k_indices",
        kind="reduction",
        infer=typed("top_k", 1, _greatest, result="int32"),
        axes=_top_k_axes,
        fold=Fold(dtypes.lowest),
        least=lambda attrs: int(attrs["k"]),
        cost=_sort_cost,
        numpy=_numpy_top_k,
        axis_attrs=("axis",),
        gradient=constant,
    ),
)
