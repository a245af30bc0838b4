"""Elementwise operators: operands of one dtype, broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo import dtypes
from tempo.backends.operators import Builder, Call
from tempo_jax.operators.arithmetic import floordiv, mod, power
from tempo_jax.operators.values import Function, Value, const, converted, in_float32


def _aligned(function: Function, call: Call) -> Function:
    """The function on operands of the shape of the result: `lax` itself broadcasts nothing."""
    shape = call.result.shape
    if all(operand.shape == shape for operand in call.operands):
        return function
    return lambda *operands: function(*(jnp.broadcast_to(x, shape) for x in operands))


def _exact(function: Function) -> Builder:
    """Functions that round nothing, or that XLA rounds once in every dtype."""
    return lambda call: _aligned(function, call)


def _rounded_once(function: Function) -> Builder:
    return lambda call: _aligned(in_float32(function, call.result.dtype), call)


def _by_dtype(choose: Function) -> Builder:
    """`choose` gives the function for the dtype of the operands."""
    return lambda call: _aligned(choose(call.operands[0].dtype), call)


def _logical(function: Function) -> Builder:
    """On truth values: a number is true where it is not 0, NaN included."""

    def builder(call: Call) -> Function:
        zero = const(0, call.operands[0].dtype)
        return _aligned(lambda *operands: function(*(truth(x, zero) for x in operands)), call)

    return builder


def truth(x: Value, zero: Value) -> Value:
    return x if x.dtype == np.bool_ else x != zero


def _absolute(dtype: str) -> Function:
    return (lambda x: x) if dtypes.kind(dtype) == "uint" else lax.abs


def _sign(dtype: str) -> Function:
    if dtypes.kind(dtype) == "int":
        return lax.sign
    zero = const(0, dtype)
    if dtypes.kind(dtype) == "uint":
        return lambda x: converted(x != zero, dtype)
    return lambda x: jnp.where(x == zero, zero, lax.sign(x))  # 0 for -0, as in NumPy


def _cast(call: Call) -> Function:
    return caster(call.operands[0].dtype, call.result.dtype)


def caster(source: str, target: str) -> Function:
    """XLA's conversions are the meaning: floats to integers saturate, NaN becomes 0, integers wrap."""
    if target == "bool" and source != "bool":
        zero = const(0, source)
        return lambda x: x != zero
    if source in ("float16", "bfloat16") and dtypes.is_integer(target):
        return lambda x: converted(converted(x, "float32"), target)
    return lambda x: converted(x, target)


def _where(call: Call) -> Function:
    return _aligned(lax.select, call)


def _after(call: Call) -> Function:
    """The barrier has XLA keep the order, and see no equal of what is computed again behind it."""
    shape = call.result.shape
    return lambda x, y: jnp.broadcast_to(lax.optimization_barrier((x, y))[0], shape)


_ROUNDED_ONCE: Mapping[str, Function] = {
    "exp": lax.exp,
    "expm1": lax.expm1,
    "log": lax.log,
    "log1p": lax.log1p,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "sin": lax.sin,
    "cos": lax.cos,
    "tan": lax.tan,
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "sinh": lax.sinh,
    "cosh": lax.cosh,
    "tanh": lax.tanh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": lax.atanh,
    "erf": lax.erf,
    "logistic": lax.logistic,
    "div": lax.div,
    "atan2": lax.atan2,
}

_EXACT: Mapping[str, Function] = {
    "neg": lax.neg,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "bitwise_not": lax.bitwise_not,
    "isnan": lambda x: x != x,
    "isinf": lambda x: lax.abs(x) == const(np.inf, dtypes.from_numpy(x.dtype)),
    "isfinite": lax.is_finite,
    "sub": lax.sub,
    "maximum": lax.max,
    "minimum": lax.min,
    "bitwise_and": lax.bitwise_and,
    "bitwise_or": lax.bitwise_or,
    "bitwise_xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
}

_LOGICAL: Mapping[str, Function] = {
    "logical_not": lax.bitwise_not,
    "logical_and": lax.bitwise_and,
    "logical_or": lax.bitwise_or,
    "logical_xor": lax.bitwise_xor,
}

_BY_DTYPE: Mapping[str, Function] = {
    "abs": _absolute,
    "sign": _sign,
    "add": lambda dtype: lax.bitwise_or if dtype == "bool" else lax.add,
    "mul": lambda dtype: lax.bitwise_and if dtype == "bool" else lax.mul,
    "floordiv": floordiv,
    "mod": mod,
    "pow": power,
    "shift_right": lambda dtype: lax.shift_right_arithmetic if dtypes.kind(dtype) == "int" else lax.shift_right_logical,
}

ELEMENTWISE: Mapping[str, Builder] = {
    **{name: _rounded_once(function) for name, function in _ROUNDED_ONCE.items()},
    **{name: _exact(function) for name, function in _EXACT.items()},
    **{name: _logical(function) for name, function in _LOGICAL.items()},
    **{name: _by_dtype(choose) for name, choose in _BY_DTYPE.items()},
    "cast": _cast,
    "where": _where,
    "after": _after,
}
