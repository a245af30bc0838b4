"""Arithmetic, comparisons, logic, selection: shapes broadcast and dtypes promote as `tempo.dtypes` says."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo.language.conversion import TensorLike, as_tensor, cast, is_python_scalar, operand, promoted
from tempo.language.conversion import as_dtype as to_dtype
from tempo.language.tensor import RecurrentTensor, apply


def unary(op: str, x: TensorLike, to_float: bool = False) -> RecurrentTensor:
    """The operator on `x`; with `to_float`, integers become float32 first."""
    (operand,) = promoted(x, to_float=to_float)
    return apply(op, operand, weak=operand.weak)


def binary(op: str, a: TensorLike, b: TensorLike, to_float: bool = False) -> RecurrentTensor:
    """The operator on the promoted operands."""
    left, right = promoted(a, b, to_float=to_float)
    return apply(op, left, right, weak=left.weak)


def compare(op: str, a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The operator on the promoted operands; the result is bool."""
    left, right = promoted(a, b)
    return apply(op, left, right)


def numeric(*values: TensorLike) -> list[RecurrentTensor]:
    """Promoted; bool becomes int32, as arithmetic that bool has not."""
    operands = promoted(*values)
    return [cast(x, "int32") for x in operands] if operands[0].dtype == "bool" else operands


def astype(x: TensorLike, dtype: Any) -> RecurrentTensor:
    """`x` cast to `dtype`; floats are truncated towards zero to integers."""
    return as_tensor(x, to_dtype(dtype))


def add(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a + b`; of bools, the logical or."""
    return binary("add", a, b)


def subtract(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a - b`."""
    left, right = numeric(a, b)
    return apply("sub", left, right, weak=left.weak)


def multiply(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a * b`; of bools, the logical and."""
    return binary("mul", a, b)


def divide(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a / b`; of integers, float32."""
    return binary("div", a, b, to_float=True)


def floor_divide(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a // b`, rounded towards minus infinity."""
    left, right = numeric(a, b)
    return apply("floordiv", left, right, weak=left.weak)


def mod(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a % b`, with the sign of `b`."""
    left, right = numeric(a, b)
    return apply("mod", left, right, weak=left.weak)


def power(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a ** b`; a small whole Python number becomes products."""
    if is_python_scalar(b) and not isinstance(b, bool) and b in (1, 2, 3) and not is_python_scalar(a):
        base, _ = numeric(a, b) if isinstance(b, int) else promoted(a, b)
        return base if b == 1 else multiply(base, base) if b == 2 else multiply(multiply(base, base), base)
    left, right = numeric(a, b)
    return apply("pow", left, right, weak=left.weak)


def maximum(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The larger of each pair; NaN where either is NaN."""
    return binary("maximum", a, b)


def minimum(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The smaller of each pair; NaN where either is NaN."""
    return binary("minimum", a, b)


def bitwise_and(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a & b`, of integers or bools."""
    return binary("bitwise_and", a, b)


def bitwise_or(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a | b`, of integers or bools."""
    return binary("bitwise_or", a, b)


def bitwise_xor(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a ^ b`, of integers or bools."""
    return binary("bitwise_xor", a, b)


def left_shift(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a << b`, of integers."""
    return binary("shift_left", a, b)


def right_shift(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a >> b`, of integers; the sign is kept."""
    return binary("shift_right", a, b)


def logical_and(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether both are nonzero."""
    return compare("logical_and", a, b)


def logical_or(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether one is nonzero."""
    return compare("logical_or", a, b)


def logical_xor(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Whether exactly one is nonzero."""
    return compare("logical_xor", a, b)


def equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a == b`, elementwise."""
    return compare("eq", a, b)


def not_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a != b`, elementwise."""
    return compare("ne", a, b)


def less(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a < b`, elementwise."""
    return compare("lt", a, b)


def less_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a <= b`, elementwise."""
    return compare("le", a, b)


def greater(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a > b`, elementwise."""
    return compare("gt", a, b)


def greater_equal(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a >= b`, elementwise."""
    return compare("ge", a, b)


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


def negative(x: TensorLike) -> RecurrentTensor:
    """`-x`."""
    (operand,) = numeric(x)
    return apply("neg", operand, weak=operand.weak)


def positive(x: TensorLike) -> RecurrentTensor:
    """`x` itself."""
    return as_tensor(x)


def absolute(x: TensorLike) -> RecurrentTensor:
    """The distance from zero."""
    operand = as_tensor(x)
    return operand if operand.dtype == "bool" else unary("abs", operand)


def sign(x: TensorLike) -> RecurrentTensor:
    """-1, 0 or 1."""
    (operand,) = numeric(x)
    return apply("sign", operand, weak=operand.weak)


def square(x: TensorLike) -> RecurrentTensor:
    """`x * x`."""
    (operand,) = numeric(x)
    return multiply(operand, operand)


def reciprocal(x: TensorLike) -> RecurrentTensor:
    """`1 / x`."""
    return divide(1, x)


def logical_not(x: TensorLike) -> RecurrentTensor:
    """Whether zero."""
    return apply("logical_not", as_tensor(x))


def bitwise_not(x: TensorLike) -> RecurrentTensor:
    """`~x`, of integers or bools."""
    return unary("bitwise_not", x)
