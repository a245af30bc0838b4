"""Elementwise functions of mathematics; integers become float32 where the result is no integer."""

from __future__ import annotations

import ml_dtypes

from tempo import dtypes
from tempo.language.conversion import TensorLike, as_tensor, promoted
from tempo.language.functions.arithmetic import (
    absolute,
    binary,
    clip,
    equal,
    logical_and,
    logical_or,
    maximum,
    power,
    unary,
    where,
)
from tempo.language.tensor import RecurrentTensor


def _float(op: str, x: TensorLike) -> RecurrentTensor:
    return unary(op, x, to_float=True)


def exp(x: TensorLike) -> RecurrentTensor:
    """e to the power of `x`."""
    return _float("exp", x)


def exp2(x: TensorLike) -> RecurrentTensor:
    """2 to the power of `x`."""
    return power(2.0, x)


def expm1(x: TensorLike) -> RecurrentTensor:
    """`exp(x) - 1`, precise near 0."""
    return _float("expm1", x)


def log(x: TensorLike) -> RecurrentTensor:
    """The natural logarithm."""
    return _float("log", x)


def log1p(x: TensorLike) -> RecurrentTensor:
    """`log(1 + x)`, precise near 0."""
    return _float("log1p", x)


def log2(x: TensorLike) -> RecurrentTensor:
    """The logarithm to the base 2."""
    return log(x) * 1.4426950408889634


def log10(x: TensorLike) -> RecurrentTensor:
    """The logarithm to the base 10."""
    return log(x) * 0.4342944819032518


def sqrt(x: TensorLike) -> RecurrentTensor:
    """The square root."""
    return _float("sqrt", x)


def rsqrt(x: TensorLike) -> RecurrentTensor:
    """`1 / sqrt(x)`."""
    return _float("rsqrt", x)


def sin(x: TensorLike) -> RecurrentTensor:
    """The sine of an angle in radians."""
    return _float("sin", x)


def cos(x: TensorLike) -> RecurrentTensor:
    """The cosine of an angle in radians."""
    return _float("cos", x)


def tan(x: TensorLike) -> RecurrentTensor:
    """The tangent of an angle in radians."""
    return _float("tan", x)


def arcsin(x: TensorLike) -> RecurrentTensor:
    """The inverse of `sin`."""
    return _float("asin", x)


def arccos(x: TensorLike) -> RecurrentTensor:
    """The inverse of `cos`."""
    return _float("acos", x)


def arctan(x: TensorLike) -> RecurrentTensor:
    """The inverse of `tan`."""
    return _float("atan", x)


def sinh(x: TensorLike) -> RecurrentTensor:
    """The hyperbolic sine."""
    return _float("sinh", x)


def cosh(x: TensorLike) -> RecurrentTensor:
    """The hyperbolic cosine."""
    return _float("cosh", x)


def tanh(x: TensorLike) -> RecurrentTensor:
    """The hyperbolic tangent."""
    return _float("tanh", x)


def arcsinh(x: TensorLike) -> RecurrentTensor:
    """The inverse of `sinh`."""
    return _float("asinh", x)


def arccosh(x: TensorLike) -> RecurrentTensor:
    """The inverse of `cosh`."""
    return _float("acosh", x)


def arctanh(x: TensorLike) -> RecurrentTensor:
    """The inverse of `tanh`."""
    return _float("atanh", x)


def logaddexp(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`log(exp(a) + exp(b))` without overflow."""
    left, right = promoted(a, b, to_float=True)
    distance = where(equal(left, right), 0.0, absolute(left - right))  # two equal infinities have no difference
    return maximum(left, right) + log1p(exp(-distance))


def erf(x: TensorLike) -> RecurrentTensor:
    """The error function."""
    return _float("erf", x)


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
    return unary(op, operand) if dtypes.is_float(operand.dtype) else operand


def isnan(x: TensorLike) -> RecurrentTensor:
    """Whether not a number."""
    return _float("isnan", x)


def isinf(x: TensorLike) -> RecurrentTensor:
    """Whether infinite."""
    return _float("isinf", x)


def isfinite(x: TensorLike) -> RecurrentTensor:
    """Whether neither infinite nor NaN."""
    return _float("isfinite", x)


def isclose(a: TensorLike, b: TensorLike, rtol: float = 1e-5, atol: float = 1e-8) -> RecurrentTensor:
    """Whether `|a - b| <= atol + rtol * |b|`, or both are the same infinity."""
    left, right = promoted(a, b, to_float=True)
    near = absolute(left - right) <= atol + rtol * absolute(right)
    return logical_or(equal(left, right), logical_and(near, isfinite(right)))


def nan_to_num(x: TensorLike, nan: float = 0.0) -> RecurrentTensor:
    """`x` with `nan` in place of NaN, and the greatest finite numbers in place of the infinities."""
    operand = as_tensor(x)
    if not dtypes.is_float(operand.dtype):
        return operand
    limit = float(ml_dtypes.finfo(dtypes.to_numpy(operand.dtype)).max)  # type: ignore[no-untyped-call]
    return where(isnan(operand), nan, clip(operand, -limit, limit))


def arctan2(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The angle of the point `(b, a)`."""
    return binary("atan2", a, b, to_float=True)


def hypot(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The square root of `a**2 + b**2`."""
    left, right = promoted(a, b, to_float=True)
    return sqrt(left * left + right * right)
