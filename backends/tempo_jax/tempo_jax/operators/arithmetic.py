"""Arithmetic that JAX has in another form than NumPy: division and remainder that round down, where signs of zeros and
divisors of 0 differ; powers, of integers by squaring, wrapping as multiplication does."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

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
