"""Division and remainder that round down, as NumPy's do, for each kind of number."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tempo import dtypes
from tempo_jax.operators.values import Function, Value, const, in_float32


def floordiv(dtype: str) -> Function:
    """The quotient rounded down; an integer divided by 0 is 0."""
    if dtypes.is_float(dtype):
        return in_float32(_float_floordiv, dtype)
    return _guarded(_int_floordiv if dtypes.kind(dtype) == "int" else lax.div, dtype)


def mod(dtype: str) -> Function:
    """a - b * floordiv(a, b), with the sign of b; an integer modulo 0 is 0."""
    if dtypes.is_float(dtype):
        return in_float32(_float_mod, dtype)
    return _guarded(_int_mod if dtypes.kind(dtype) == "int" else lax.rem, dtype)


def _guarded(function: Function, dtype: str) -> Function:
    zero, one = const(0, dtype), const(1, dtype)

    def guarded(a: Value, b: Value) -> Value:
        none = b == zero
        return jnp.where(none, zero, function(a, jnp.where(none, one, b)))

    return guarded


def _int_floordiv(a: Value, b: Value) -> Value:
    return lax.div(a, b) - _opposed(lax.rem(a, b), b).astype(a.dtype)


def _int_mod(a: Value, b: Value) -> Value:
    remainder = lax.rem(a, b)
    return jnp.where(_opposed(remainder, b), remainder + b, remainder)


def _opposed(remainder: Value, b: Value) -> Value:
    """Whether the truncated remainder must be moved to the sign of the divisor."""
    zero = remainder.dtype.type(0)
    return (remainder != zero) & ((remainder < zero) != (b < zero))


def _float_mod(a: Value, b: Value) -> Value:
    """NumPy's `npy_divmod`: a remainder of 0 has the sign of the divisor; NaN where the divisor is 0."""
    zero = b.dtype.type(0)
    remainder = lax.rem(a, b)
    moved = jnp.where(_opposed(remainder, b), remainder + b, remainder)
    return jnp.where(remainder == zero, jnp.where(b < zero, -zero, zero), moved)


def _float_floordiv(a: Value, b: Value) -> Value:
    zero, half, one = (a.dtype.type(number) for number in (0, 0.5, 1))
    remainder = lax.rem(a, b)
    exact = (a - remainder) / b
    quotient = jnp.where(_opposed(remainder, b), exact - one, exact)
    floor = lax.floor(quotient)
    rounded = jnp.where(quotient - floor > half, floor + one, floor)
    ratio = a / b
    nothing = ratio * zero  # 0 with the sign of the ratio, which is finite where the quotient is 0
    return jnp.where(b == zero, ratio, jnp.where(quotient == zero, nothing, rounded))
