"""Elementwise functions: shapes broadcast and dtypes promote as `tempo.dtypes` says."""

from __future__ import annotations

from typing import Any

from tempo import dtypes
from tempo.language.apply import apply
from tempo.language.conversion import TensorLike, as_tensor, cast, is_python_scalar, promoted
from tempo.language.conversion import as_dtype as to_dtype
from tempo.language.tensor import RecurrentTensor


def _unary(op: str, x: TensorLike, to_float: bool = False) -> RecurrentTensor:
    (operand,) = promoted(x, to_float=to_float)
    return apply(op, operand, weak=operand.weak)


def _float(op: str, x: TensorLike) -> RecurrentTensor:
    return _unary(op, x, to_float=True)


def _binary(op: str, a: TensorLike, b: TensorLike, to_float: bool = False) -> RecurrentTensor:
    left, right = promoted(a, b, to_float=to_float)
    return apply(op, left, right, weak=left.weak)


def _compare(op: str, a: TensorLike, b: TensorLike) -> RecurrentTensor:
    left, right = promoted(a, b)
    return apply(op, left, right)


def _numeric(*values: TensorLike) -> list[RecurrentTensor]:
    """Promoted; bool becomes int32, as arithmetic that bool has not."""
    operands = promoted(*values)
    return [cast(x, "int32") for x in operands] if operands[0].dtype == "bool" else operands


def astype(x: TensorLike, dtype: Any) -> RecurrentTensor:
    """`x` cast to `dtype`; floats are truncated towards zero to integers."""
    return cast(as_tensor(x), to_dtype(dtype))


def add(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a + b`; of bools, the logical or."""
    return _binary("add", a, b)


def subtract(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a - b`."""
    left, right = _numeric(a, b)
    return apply("sub", left, right, weak=left.weak)


def multiply(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a * b`; of bools, the logical and."""
    return _binary("mul", a, b)


def divide(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a / b`; of integers, float32."""
    return _binary("div", a, b, to_float=True)


def floor_divide(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a // b`, rounded towards minus infinity."""
    left, right = _numeric(a, b)
    return apply("floordiv", left, right, weak=left.weak)


def mod(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a % b`, with the sign of `b`."""
    left, right = _numeric(a, b)
    return apply("mod", left, right, weak=left.weak)


def power(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a ** b`; a small whole Python number becomes products."""
    if is_python_scalar(b) and not isinstance(b, bool) and b in (1, 2, 3) and not is_python_scalar(a):
        base, _ = _numeric(a, b) if isinstance(b, int) else promoted(a, b)
        return base if b == 1 else multiply(base, base) if b == 2 else multiply(multiply(base, base), base)
    left, right = _numeric(a, b)
    return apply("pow", left, right, weak=left.weak)


def maximum(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The larger of each pair; NaN where either is NaN."""
    return _binary("maximum", a, b)


def minimum(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The smaller of each pair; NaN where either is NaN."""
    return _binary("minimum", a, b)


def arctan2(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The angle of the point `(b, a)`."""
    return _binary("atan2", a, b, to_float=True)


def hypot(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The square root of `a**2 + b**2`."""
    left, right = promoted(a, b, to_float=True)
    return sqrt(left * left + right * right)


def bitwise_and(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a & b`, of integers or bools."""
    return _binary("bitwise_and", a, b)


def bitwise_or(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a | b`, of integers or bools."""
    return _binary("bitwise_or", a, b)


def bitwise_xor(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a ^ b`, of integers or bools."""
    return _binary("bitwise_xor", a, b)


def left_shift(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a << b`, of integers."""
    return _binary("shift_left", a, b)


def right_shift(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a >> b`, of integers; the sign is kept."""
    return _binary("shift_right", a, b)


def logical_and(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether both are nonzero."""
    return _compare("logical_and", a, b)


def logical_or(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether one is nonzero."""
    return _compare("logical_or", a, b)


def logical_xor(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether exactly one is nonzero."""
    return _compare("logical_xor", a, b)


def equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a == b`, elementwise."""
    return _compare("eq", a, b)


def not_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a != b`, elementwise."""
    return _compare("ne", a, b)


def less(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a < b`, elementwise."""
    return _compare("lt", a, b)


def less_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a <= b`, elementwise."""
    return _compare("le", a, b)


def greater(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a > b`, elementwise."""
    return _compare("gt", a, b)


def greater_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a >= b`, elementwise."""
    return _compare("ge", a, b)


def where(mask: TensorLike, a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a` where `mask` is nonzero, else `b`. Selects by data: both are computed, so it guards nothing (see `cases`)."""
    chosen = as_tensor(mask)
    left, right = promoted(a, b)
    return apply("where", chosen if chosen.dtype == "bool" else not_equal(chosen, 0), left, right, weak=left.weak)


def clip(x: TensorLike, min: TensorLike = None, max: TensorLike = None) -> RecurrentTensor:
    """`x` limited to `min` and `max`; None leaves that side open."""
    result = as_tensor(x)
    if min is not None:
        result = maximum(result, min)
    return result if max is None else minimum(result, max)


def negative(x: TensorLike) -> RecurrentTensor:
    """`-x`."""
    (operand,) = _numeric(x)
    return apply("neg", operand, weak=operand.weak)


def positive(x: TensorLike) -> RecurrentTensor:
    """`x` itself."""
    return as_tensor(x)


def absolute(x: TensorLike) -> RecurrentTensor:
    """The distance from zero."""
    operand = as_tensor(x)
    return operand if operand.dtype == "bool" else _unary("abs", operand)


def sign(x: TensorLike) -> RecurrentTensor:
    """-1, 0 or 1."""
    (operand,) = _numeric(x)
    return apply("sign", operand, weak=operand.weak)


def square(x: TensorLike) -> RecurrentTensor:
    """`x * x`."""
    (operand,) = _numeric(x)
    return multiply(operand, operand)


def reciprocal(x: TensorLike) -> RecurrentTensor:
    """`1 / x`."""
    return divide(1, x)


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
    return _unary(op, operand) if dtypes.is_float(operand.dtype) else operand


def logical_not(x: TensorLike) -> RecurrentTensor:
    """Whether zero."""
    return apply("logical_not", as_tensor(x))


def bitwise_not(x: TensorLike) -> RecurrentTensor:
    """`~x`, of integers or bools."""
    return _unary("bitwise_not", x)


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
    limit = float(dtypes.ml_dtypes.finfo(dtypes.to_numpy(operand.dtype)).max)
    return where(isnan(operand), nan, clip(operand, -limit, limit))
