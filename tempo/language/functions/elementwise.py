"""Elementwise functions: shapes broadcast and dtypes promote as `tempo.dtypes` says.

Arithmetic, comparisons, logic, selection, and mathematics, in which integers become float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import ml_dtypes
import numpy as np

from tempo import dtypes
from tempo.language.conversion import TensorLike, as_tensor, cast, is_python_scalar, operand, promoted
from tempo.language.conversion import as_dtype as to_dtype
from tempo.language.tensor import RecurrentTensor, apply


class Unary(Protocol):
    def __call__(self, x: TensorLike) -> RecurrentTensor: ...


class Binary(Protocol):
    def __call__(self, a: TensorLike, b: TensorLike) -> RecurrentTensor: ...


Function = TypeVar("Function", Unary, Binary)
Convert = Callable[..., list[RecurrentTensor]]


def numeric(*values: TensorLike) -> list[RecurrentTensor]:
    """Promoted; bool becomes int32, as arithmetic that bool has not."""
    operands = promoted(*values)
    return [cast(x, "int32") for x in operands] if operands[0].dtype == "bool" else operands


def floating(*values: TensorLike) -> list[RecurrentTensor]:
    """Promoted; integers and bools become float32."""
    return promoted(*values, to_float=True)


def _unary(name: str, doc: str, convert: Convert = floating, op: str = "", is_bool: bool = False) -> Unary:
    """The function `name` of users: the operator `op`, called so unless given, on what `convert` makes of `x`."""

    def function(x: TensorLike) -> RecurrentTensor:
        (operand,) = convert(x)
        return apply(op or name, operand, weak=operand.weak and not is_bool)

    return _named(function, name, doc)


def _binary(name: str, doc: str, convert: Convert = promoted, op: str = "", is_bool: bool = False) -> Binary:
    """The same of two operands."""

    def function(a: TensorLike, b: TensorLike) -> RecurrentTensor:
        left, right = convert(a, b)
        return apply(op or name, left, right, weak=left.weak and not is_bool)

    return _named(function, name, doc)


def _named(function: Function, name: str, doc: str) -> Function:
    named: Any = function
    named.__name__ = named.__qualname__ = name
    named.__doc__ = doc
    return function


add = _binary("add", "`a + b`; of bools, the logical or.")
subtract = _binary("subtract", "`a - b`.", numeric, op="sub")
multiply = _binary("multiply", "`a * b`; of bools, the logical and.", op="mul")
divide = _binary("divide", "`a / b`; of integers, float32.", floating, op="div")
floor_divide = _binary("floor_divide", "`a // b`, rounded towards minus infinity.", numeric, op="floordiv")
mod = _binary("mod", "`a % b`, with the sign of `b`.", numeric)
maximum = _binary("maximum", "The larger of each pair; NaN where either is NaN.")
minimum = _binary("minimum", "The smaller of each pair; NaN where either is NaN.")
bitwise_and = _binary("bitwise_and", "`a & b`, of integers or bools.")
bitwise_or = _binary("bitwise_or", "`a | b`, of integers or bools.")
bitwise_xor = _binary("bitwise_xor", "`a ^ b`, of integers or bools.")
left_shift = _binary("left_shift", "`a << b`, of integers.", op="shift_left")
right_shift = _binary("right_shift", "`a >> b`, of integers; the sign is kept.", op="shift_right")

logical_and = _binary("logical_and", "Whether both are nonzero.", is_bool=True)
logical_or = _binary("logical_or", "Whether one is nonzero.", is_bool=True)
logical_xor = _binary("logical_xor", "Whether exactly one is nonzero.", is_bool=True)
equal = _binary("equal", "`a == b`, elementwise.", op="eq", is_bool=True)
not_equal = _binary("not_equal", "`a != b`, elementwise.", op="ne", is_bool=True)
less = _binary("less", "`a < b`, elementwise.", op="lt", is_bool=True)
less_equal = _binary("less_equal", "`a <= b`, elementwise.", op="le", is_bool=True)
greater = _binary("greater", "`a > b`, elementwise.", op="gt", is_bool=True)
greater_equal = _binary("greater_equal", "`a >= b`, elementwise.", op="ge", is_bool=True)
logical_not = _unary("logical_not", "Whether zero.", promoted, is_bool=True)

bitwise_not = _unary("bitwise_not", "`~x`, of integers or bools.", promoted)
negative = _unary("negative", "`-x`.", numeric, op="neg")
sign = _unary("sign", "-1, 0 or 1.", numeric)

exp = _unary("exp", "e to the power of `x`.")
expm1 = _unary("expm1", "`exp(x) - 1`, precise near 0.")
log = _unary("log", "The natural logarithm.")
log1p = _unary("log1p", "`log(1 + x)`, precise near 0.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "`1 / sqrt(x)`.")
sin = _unary("sin", "The sine of an angle in radians.")
cos = _unary("cos", "The cosine of an angle in radians.")
tan = _unary("tan", "The tangent of an angle in radians.")
arcsin = _unary("arcsin", "The inverse of `sin`.", op="asin")
arccos = _unary("arccos", "The inverse of `cos`.", op="acos")
arctan = _unary("arctan", "The inverse of `tan`.", op="atan")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
arcsinh = _unary("arcsinh", "The inverse of `sinh`.", op="asinh")
arccosh = _unary("arccosh", "The inverse of `cosh`.", op="acosh")
arctanh = _unary("arctanh", "The inverse of `tanh`.", op="atanh")
sigmoid = _unary("sigmoid", "`1 / (1 + exp(-x))`.", op="logistic")
erf = _unary("erf", "The error function.")
isnan = _unary("isnan", "Whether not a number.")
isinf = _unary("isinf", "Whether infinite.")
isfinite = _unary("isfinite", "Whether neither infinite nor NaN.")
arctan2 = _binary("arctan2", "The angle of the point `(b, a)`.", floating, op="atan2")


def astype(x: TensorLike, dtype: Any) -> RecurrentTensor:
    """`x` cast to `dtype`; floats are truncated towards zero to integers."""
    return as_tensor(x, to_dtype(dtype))


def power(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a ** b`; a small whole Python number becomes products."""
    if is_python_scalar(b) and not isinstance(b, bool) and b in (1, 2, 3) and not is_python_scalar(a):
        base, _ = numeric(a, b) if isinstance(b, int) else promoted(a, b)
        return base if b == 1 else multiply(base, base) if b == 2 else multiply(multiply(base, base), base)
    left, right = numeric(a, b)
    return apply("pow", left, right, weak=left.weak)


def where(mask: TensorLike, a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a` where `mask` is nonzero, else `b`. Selects by data: both are computed, so it guards nothing (see `cases`)."""
    left, right = promoted(a, b)
    return apply("where", truth(mask), left, right, weak=left.weak)


def truth(x: TensorLike) -> RecurrentTensor:
    """Whether nonzero; an array is asked before it is rounded."""
    given = operand(x)
    if isinstance(given, np.ndarray):
        return as_tensor(given, "bool")
    tensor = as_tensor(given)
    return tensor if tensor.dtype == "bool" else not_equal(tensor, 0)


def clip(x: TensorLike, min: TensorLike = None, max: TensorLike = None) -> RecurrentTensor:
    """`x` limited to `min` and `max`; None leaves that side open."""
    result, *bounds = promoted(x, *(bound for bound in (min, max) if bound is not None))
    if min is not None:
        result = maximum(result, bounds[0])
    return result if max is None else minimum(result, bounds[-1])


def positive(x: TensorLike) -> RecurrentTensor:
    """`x` itself."""
    return as_tensor(x)


def absolute(x: TensorLike) -> RecurrentTensor:
    """The distance from zero."""
    operand = as_tensor(x)
    return operand if operand.dtype == "bool" else apply("abs", operand, weak=operand.weak)


def square(x: TensorLike) -> RecurrentTensor:
    """`x * x`."""
    (operand,) = numeric(x)
    return multiply(operand, operand)


def reciprocal(x: TensorLike) -> RecurrentTensor:
    """`1 / x`."""
    return divide(1, x)


def exp2(x: TensorLike) -> RecurrentTensor:
    """2 to the power of `x`."""
    return power(2.0, x)


def log2(x: TensorLike) -> RecurrentTensor:
    """The logarithm to the base 2."""
    return log(x) * 1.4426950408889634


def log10(x: TensorLike) -> RecurrentTensor:
    """The logarithm to the base 10."""
    return log(x) * 0.4342944819032518


def logaddexp(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`log(exp(a) + exp(b))` without overflow."""
    left, right = floating(a, b)
    distance = where(equal(left, right), 0.0, absolute(left - right))  # two equal infinities have no difference
    return maximum(left, right) + log1p(exp(-distance))


def floor(x: TensorLike) -> RecurrentTensor:
    """Rounded down."""
    return _rounded("floor", x)


def ceil(x: TensorLike) -> RecurrentTensor:
    """Rounded up."""
    return _rounded("ceil", x)


def round(x: TensorLike) -> RecurrentTensor:
    """Rounded to the nearest integer; halves to the even one."""
    return _rounded("round", x)


def trunc(x: TensorLike) -> RecurrentTensor:
    """Rounded towards zero."""
    operand = as_tensor(x)
    return where(operand < 0, ceil(operand), floor(operand))


def _rounded(op: str, x: TensorLike) -> RecurrentTensor:
    """Integers are themselves."""
    operand = as_tensor(x)
    return apply(op, operand, weak=operand.weak) if dtypes.is_float(operand.dtype) else operand


def isclose(a: TensorLike, b: TensorLike, rtol: float = 1e-5, atol: float = 1e-8) -> RecurrentTensor:
    """Whether `|a - b| <= atol + rtol * |b|`, or both are the same infinity."""
    left, right = floating(a, b)
    near = absolute(left - right) <= atol + rtol * absolute(right)
    return logical_or(equal(left, right), logical_and(near, isfinite(right)))


def nan_to_num(x: TensorLike, nan: float = 0.0) -> RecurrentTensor:
    """`x` with `nan` in place of NaN, and the greatest finite numbers in place of the infinities."""
    operand = as_tensor(x)
    if not dtypes.is_float(operand.dtype):
        return operand
    limit = float(ml_dtypes.finfo(dtypes.to_numpy(operand.dtype)).max)  # type: ignore[no-untyped-call]
    return where(isnan(operand), nan, clip(operand, -limit, limit))


def hypot(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The square root of `a**2 + b**2`."""
    left, right = floating(a, b)
    return sqrt(left * left + right * right)
