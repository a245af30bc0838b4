"""Explicitly typed values: what keeps JAX's weak types and 32-bit defaults out of the operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo import dtypes
from tempo.symbolic import LARGEST_SIZE

Value = Any  # a JAX array or tracer
Scalar = Any  # a Python int, a NumPy integer, or a traced integer scalar
Function = Callable[..., Value]

HALF = frozenset({"float16", "bfloat16"})


def const(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    """A scalar of the dtype; NumPy's, so it is made once and belongs to no device."""
    return np.asarray(value, dtypes.to_numpy(dtype))


def full(shape: tuple[int, ...], value: Any, dtype: str) -> Value:
    return lax.full(shape, const(value, dtype), dtypes.to_numpy(dtype))


def index(scalar: Scalar) -> Value:
    """A run-time scalar as int32, modulo 2**32 where it does not fit."""
    if isinstance(scalar, int):
        return jnp.asarray(np.uint32(scalar & 0xFFFFFFFF).view(np.int32))
    return jnp.asarray(scalar, np.int32)


def position(scalar: Scalar) -> Value:
    """A run-time scalar that says where along an axis, as int32: one that is far beyond any axis stays beyond it."""
    if isinstance(scalar, int):
        return index(min(max(scalar, -LARGEST_SIZE), LARGEST_SIZE))
    if np.dtype(scalar.dtype).itemsize > 4:
        scalar = jnp.clip(scalar, -LARGEST_SIZE, LARGEST_SIZE)
    return index(scalar)


def positions(length: int, start: Scalar = 0, step: int = 1) -> Value:
    """start, start + step, ... as int32."""
    counted = lax.iota(np.int32, length)
    return position(start) + counted * np.int32(step)


def converted(x: Value, dtype: str) -> Value:
    return lax.convert_element_type(x, dtypes.to_numpy(dtype))


def in_float32(function: Function, dtype: str) -> Function:
    """The function, with halves computed in float32 and rounded once."""
    if dtype not in HALF:
        return function
    return lambda *operands: converted(function(*(converted(x, "float32") for x in operands)), dtype)
