"""Powers: of floats as XLA has them, of integers by squaring, wrapping as multiplication does."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tempo import dtypes
from tempo_jax.operators.values import Function, Value, const, in_float32


def power(dtype: str) -> Function:
    if dtypes.is_float(dtype):
        return in_float32(lax.pow, dtype)
    squared = _by_squaring(dtype)
    return _signed(squared, dtype) if dtypes.kind(dtype) == "int" else squared


def _by_squaring(dtype: str) -> Function:
    """base ** exponent for an exponent that is not negative: one step for each of its bits."""
    bits, zero, one = 8 * dtypes.itemsize(dtype), const(0, dtype), const(1, dtype)

    def power(base: Value, exponent: Value) -> Value:
        result = jnp.broadcast_to(one, base.shape)
        for _ in range(bits):
            result = jnp.where(exponent & one != zero, result * base, result)
            base, exponent = base * base, lax.shift_right_logical(exponent, jnp.broadcast_to(one, exponent.shape))
        return result

    return power


def _signed(function: Function, dtype: str) -> Function:
    """A negative exponent truncates 1 / base**n towards 0, and 0**-n is 0."""
    zero, one = const(0, dtype), const(1, dtype)

    def power(base: Value, exponent: Value) -> Value:
        negative = exponent < zero
        unit = (base == one) | (base == -one)
        raised = function(base, jnp.where(negative, exponent & one, exponent))  # (+-1)**-n is (+-1)**(n mod 2)
        return jnp.where(negative & ~unit, zero, raised)

    return power
