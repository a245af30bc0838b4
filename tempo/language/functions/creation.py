"""Tensors from nothing but a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo.errors import ShapeError, user_location
from tempo.language.conversion import (
    TensorLike,
    as_dtype,
    as_tensor,
    broadcast,
    broadcast_together,
    cast,
    constant,
    index_value,
    integers,
    normalize_axis,
    promoted,
    reshaped,
    to_int,
    to_shape,
)
from tempo.language.functions.elementwise import equal, greater_equal, where
from tempo.language.indexing.expression import IndexExpression, is_integer, to_expr
from tempo.language.program import current_program
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import Context, Expr, const, maximum


def full(shape: Any, fill_value: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """`fill_value` everywhere."""
    value = as_tensor(fill_value, dtype)
    return broadcast(cast(value, value.dtype), to_shape(value.program, shape))


def zeros(shape: Any, dtype: Any = "float32") -> RecurrentTensor:
    """Zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = "float32") -> RecurrentTensor:
    """Ones."""
    return full(shape, 1, dtype)


def full_like(x: TensorLike, fill_value: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """`fill_value` in the shape and dtype of `x`."""
    tensor = as_tensor(x)
    filled = broadcast(as_tensor(fill_value, tensor.dtype if dtype is None else dtype), tensor.type.shape)
    return where(equal(tensor, tensor), filled, filled) if tensor.program.builder.lengths else filled  # points of rows


def zeros_like(x: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """Zeros in the shape and dtype of `x`."""
    return full_like(x, 0, dtype)


def ones_like(x: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """Ones in the shape and dtype of `x`."""
    return full_like(x, 1, dtype)


def iota(size: Expr, dtype: str = "int32") -> RecurrentTensor:
    """0, 1, ... along one axis."""
    return apply("iota", attrs={"shape": (size,), "axis": 0, "dtype": dtype})


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> RecurrentTensor:
    """`start, start + step, ...` below `stop` (from 0 with one argument); integers or index expressions, or floats.

    With dtype, cast to it; else int32, or float32 where an argument is a float.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if any(isinstance(value, (float, np.floating)) for value in (first, last, step)):
        return constant(_float_range(first, last, step), "float32" if dtype is None else dtype)
    program = current_program()
    low, high = (to_expr(value, program, "a bound of arange") for value in (first, last))
    if not is_integer(step) or step == 0:
        raise ShapeError(f"arange: the step {step} is no integer other than 0", location=user_location())
    values = iota(steps_between(program.builder.context, low, high, int(step)))
    values = values if step == 1 else values * int(step)
    values = values if low == const(0) else values + index_value(low)
    return values if dtype is None else cast(values, as_dtype(dtype))


def steps_between(context: Context, start: Expr, stop: Expr, step: int) -> Expr:
    """How many of `start, start + step, ...` come before `stop`."""
    distance = stop - start if step > 0 else start - stop
    length = context.simplify(maximum(distance, 0))
    return length if abs(step) == 1 else context.simplify((length + abs(step) - 1) // abs(step))


def _float_range(start: Any, stop: Any, step: Any) -> np.ndarray[Any, Any]:
    try:
        return np.arange(start, stop, step)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ShapeError(f"arange of {start} to {stop} in steps of {step}: {error}", location=user_location()) from None


def linspace(start: TensorLike, stop: TensorLike, num: int, dtype: Any = "float32") -> RecurrentTensor:
    """`num` numbers (at least one) from `start` to `stop`, both included, along a new axis in front."""
    count = to_int(num, "the number of samples")
    if count < 1:
        raise ShapeError(f"linspace of {count} numbers", location=user_location())
    wanted = as_dtype(dtype)
    if wanted == "float64":
        first, last = as_tensor(start, wanted), as_tensor(stop, wanted)
    else:
        first, last = promoted(start, stop, to_float=True)
    first, last = broadcast_together([first, last], "linspace")
    place = reshaped(iota(const(count)), (const(count), *(const(1),) * first.ndim))
    part = cast(place, first.dtype, weak=True) / max(count - 1, 1)
    return cast(first + (last - first) * part, wanted)


def eye(n: int | IndexExpression, m: int | IndexExpression | None = None, dtype: Any = "float32") -> RecurrentTensor:
    """Ones on the diagonal, zeros elsewhere."""
    program = current_program()
    rows, columns = to_shape(program, (n, n if m is None else m))
    return cast(equal(_column(iota(rows)), iota(columns)), as_dtype(dtype))


def _column(x: RecurrentTensor) -> RecurrentTensor:
    return reshaped(x, (*x.type.shape, const(1)))


def tri(n: Any, m: Any = None, k: int = 0, dtype: Any = "float32") -> RecurrentTensor:
    """Ones at and below the `k`-th diagonal, zeros above."""
    rows, columns = to_shape(current_program(), (n, n if m is None else m))
    return cast(_at_or_below(rows, columns, k), as_dtype(dtype))


def tril(x: TensorLike, k: int = 0) -> RecurrentTensor:
    """`x` with zeros above the `k`-th diagonal of its last two axes."""
    tensor = as_tensor(x)
    return where(_triangle(tensor, k), tensor, 0)


def triu(x: TensorLike, k: int = 0) -> RecurrentTensor:
    """`x` with zeros below the `k`-th diagonal of its last two axes."""
    tensor = as_tensor(x)
    return where(_triangle(tensor, to_int(k, "k") - 1), 0, tensor)


def _triangle(x: RecurrentTensor, k: int) -> RecurrentTensor:
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs two axes, not {x.ndim}", location=user_location())
    rows, columns = x.type.shape[-2:]
    return _at_or_below(rows, columns, k)


def _at_or_below(rows: Expr, columns: Expr, k: int) -> RecurrentTensor:
    return greater_equal(_column(iota(rows)) + to_int(k, "k"), iota(columns))


def one_hot(
    x: TensorLike, num_classes: int | IndexExpression, dtype: Any = "float32", axis: int = -1
) -> RecurrentTensor:
    """1 at the position that each integer of `x` names along a new axis, else 0; all 0 where it is out of range."""
    tensor = integers(as_tensor(x))
    place = normalize_axis(axis, tensor.ndim + 1)
    shape = tensor.type.shape
    apart = reshaped(tensor, (*shape[:place], const(1), *shape[place:])) if place else tensor
    (classes,) = to_shape(tensor.program, num_classes)
    positions = reshaped(iota(classes), (classes, *(const(1),) * (len(shape) - place)))
    return cast(equal(apart, positions), as_dtype(dtype))
