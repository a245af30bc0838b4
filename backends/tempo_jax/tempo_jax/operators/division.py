"""Division and remainder that round down, as NumPy's do: JAX's own, but for the signs of zeros, and what integers make
of a divisor of 0."""

from __future__ import annotations

import jax.numpy as jnp

from tempo import dtypes
from tempo_jax.operators.values import Function, Value, const, in_float32


def floordiv(dtype: str) -> Function:
    """The quotient rounded down; an integer divided by 0 is 0."""
    if dtypes.is_float(dtype):
        return in_float32(_float_floordiv, dtype)
    zero = const(0, dtype)
    return lambda a, b: jnp.where(b == zero, zero, jnp.floor_divide(a, b))


def mod(dtype: str) -> Function:
    """a - b * floordiv(a, b), with the sign of b; an integer modulo 0 is 0."""
    return in_float32(_float_mod, dtype) if dtypes.is_float(dtype) else jnp.remainder


def _float_mod(a: Value, b: Value) -> Value:
    """A remainder of 0 has the sign of the divisor; NaN where the divisor is 0."""
    remainder = jnp.remainder(a, b)
    return jnp.where(remainder == 0, jnp.copysign(remainder, b), remainder)


def _float_floordiv(a: Value, b: Value) -> Value:
    """A quotient of 0 has the sign of the ratio."""
    ratio, quotient = a / b, jnp.floor_divide(a, b)
    return jnp.where(b == 0, ratio, jnp.where(quotient == 0, jnp.copysign(quotient, ratio), quotient))
