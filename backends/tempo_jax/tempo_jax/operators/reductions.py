"""Reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo import dtypes
from tempo.backends.operators import Builder, Call
from tempo_jax.operators.elementwise import truth
from tempo_jax.operators.values import HALF, Function, Value, const, converted, full, in_float32


def _accumulate(function: Callable[..., Any]) -> Builder:
    """Sums and products, in the dtype of the operand; halves in float32."""

    def builder(call: Call) -> Function:
        axes, dtype = tuple(call.attrs["axes"]), call.result.dtype
        return in_float32(lambda x: function(x, axis=axes, dtype=x.dtype), dtype)

    return builder


def _extreme(function: Callable[..., Any]) -> Builder:
    """Maxima and minima; NaN where an element is NaN."""

    def builder(call: Call) -> Function:
        axes = tuple(call.attrs["axes"])
        return _of_nothing(call, axes) or (lambda x: function(x, axis=axes))

    return builder


def _of_nothing(call: Call, axes: tuple[int, ...]) -> Function | None:
    """What an extreme is of nothing, or where there is none to find; None where there are elements.

    Where an extreme over an empty axis is needed, checks raise before anything runs; what is compiled for points that
    there are none of at these sizes must have some value.
    """
    result = call.result
    if result.elements and all(call.operands[0].shape[axis] for axis in axes):
        return None
    return lambda x: full(result.shape, 0, result.dtype)


def _quantified(function: Callable[..., Any]) -> Builder:
    def builder(call: Call) -> Function:
        axes, zero = tuple(call.attrs["axes"]), const(0, call.operands[0].dtype)
        return lambda x: function(truth(x, zero), axis=axes)

    return builder


def _position(of_integers: Callable[..., Any], before: Callable[..., Any], last: float) -> Builder:
    """The first position of the extreme, or of NaN. `before` says which of two is the extreme, `last` is it of none.

    JAX's own takes any of several NaN, by the order that a platform reduces in: on CPUs the first, on GPUs another.
    """

    def builder(call: Call) -> Function:
        axis, operand = call.attrs["axis"], call.operands[0]
        if (nothing := _of_nothing(call, (axis,))) is not None:
            return nothing
        if not dtypes.is_float(operand.dtype):
            return lambda x: of_integers(x, axis, np.int32)
        dtype, shape = "float32" if operand.dtype in HALF else operand.dtype, operand.shape
        none = const(last, dtype), const(np.iinfo(np.int32).max, "int32")

        def position(x: Value) -> Value:
            at = lax.broadcasted_iota(np.int32, shape, axis)
            return lax.reduce((converted(x, dtype), at), none, first_of(before), (axis,))[1]

        return position

    return builder


def first_of(before: Callable[..., Any]) -> Function:
    """Of two pairs (value, position): NaN is before every number, and of equal values the one at the lower position.

    That is a total order, so a reduction may take the pairs in any order.
    """

    def reducer(left: tuple[Value, Value], right: tuple[Value, Value]) -> tuple[Value, Value]:
        (x, at_x), (y, at_y) = left, right
        x_is_nan, y_is_nan = x != x, y != y
        wins = before(x, y) | (x_is_nan & ~y_is_nan)
        ties = (x == y) | (x_is_nan & y_is_nan)
        return lax.select(wins, x, y), lax.select(wins | (ties & (at_x < at_y)), at_x, at_y)

    return reducer


def _running(function: Callable[..., Any]) -> Builder:
    def builder(call: Call) -> Function:
        axis = call.attrs["axis"]
        return in_float32(lambda x: function(x, axis), call.result.dtype)

    return builder


def _sort(call: Call) -> Function:
    axis = call.attrs["axis"]
    return lambda x: lax.sort(x, dimension=axis, is_stable=True)


def _argsort(call: Call) -> Function:
    axis, shape = call.attrs["axis"], call.result.shape

    def argsort(x: Value) -> Value:
        at = lax.broadcasted_iota(np.int32, shape, axis)
        _, order = lax.sort((x, at), dimension=axis, is_stable=True, num_keys=1)
        return converted(order, "int32")

    return argsort


def _top_k_indices(call: Call) -> Function:
    """XLA orders -0.0 before 0.0 and NaN by its sign; to us zeros are equal, and every NaN is greater than all."""
    axis, k, operand = call.attrs["axis"], call.attrs["k"], call.operands[0].dtype

    def positions_of_greatest(x: Value) -> Value:
        if dtypes.is_float(operand):
            x = jnp.where(jnp.isnan(x), const(np.nan, operand), x + const(0, operand))
        elif operand == "bool":
            x = converted(x, "uint8")
        return jnp.moveaxis(lax.top_k(jnp.moveaxis(x, axis, -1), k)[1], -1, axis)

    return positions_of_greatest


REDUCTIONS: Mapping[str, Builder] = {
    "reduce_sum": _accumulate(jnp.sum),
    "reduce_prod": _accumulate(jnp.prod),
    "reduce_max": _extreme(jnp.max),
    "reduce_min": _extreme(jnp.min),
    "reduce_any": _quantified(jnp.any),
    "reduce_all": _quantified(jnp.all),
    "argmax": _position(lax.argmax, lax.gt, -np.inf),
    "argmin": _position(lax.argmin, lax.lt, np.inf),
    "cumsum": _running(lax.cumsum),
    "cumprod": _running(lax.cumprod),
    "sort": _sort,
    "argsort": _argsort,
    "top_k_indices": _top_k_indices,
}
