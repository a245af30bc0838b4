"""From what users write to tensors: scalars, arrays, index expressions; promotion and casts."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, TempoError, user_location
from tempo.language.apply import apply, open_program
from tempo.language.index_expression import IndexCondition, IndexExpression, show
from tempo.language.program import current_program, require_program
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.call import ArrayValue
from tempo.symbolic import Expr

TensorLike: TypeAlias = Any
"""A tensor, an index expression or condition, a Python scalar, or an array (`__array__` or `__dlpack__`)."""


def as_tensor(value: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """The tensor that `value` is.

    Index expressions and Python numbers are weak (they take the dtype of what they meet), conditions are bool; arrays
    of 64 bits become 32 unless `dtype` says otherwise. With `dtype`, what `.astype(dtype)` gives.

    Raises `DTypeError` for what is no array of numbers, or an integer that does not fit.
    """
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(value, RecurrentTensor):
        open_program(value)
        return value if target is None else cast(value, target)
    if isinstance(value, (IndexExpression, IndexCondition)):
        tensor = _index_tensor(value)
        return tensor if target is None else cast(tensor, target)
    if is_python_scalar(value):
        default, weak = ("int32", True) if type(value) is int else dtypes.scalar_dtype(value)
        return scalar(value, target or default, weak and target is None)
    return array(value, target)


def is_python_scalar(value: Any) -> bool:
    """NumPy's scalars are none: they carry a dtype."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def as_dtype(value: Any) -> str:
    """The name of a dtype. Raises `DTypeError` at the user's line."""
    try:
        return dtypes.as_dtype(value)
    except TempoError as error:
        raise _at_user(error) from None
    except ValueError:  # NumPy's, for an object whose `dtype` is none
        raise DTypeError(f"{show(value)} is no dtype", location=user_location(), hint="write tp.float32") from None


def scalar(value: bool | int | float, dtype: str, weak: bool = False) -> RecurrentTensor:
    """A constant of shape () and the given dtype. Raises `DTypeError` where the value does not fit it."""
    kept: bool | int | float = value
    if dtypes.is_integer(dtype):
        limits = np.iinfo(dtypes.to_numpy(dtype))
        if not limits.min <= value <= limits.max:
            raise DTypeError(
                f"{value} is out of the range of {dtype}",
                location=user_location(),
                hint=f"{dtype} holds {limits.min} to {limits.max}; use a wider dtype explicitly",
            )
        kept = int(value)
    return _constant(np.asarray(kept, dtypes.to_numpy(dtype)), weak)


def array(value: Any, dtype: str | None = None) -> RecurrentTensor:
    """A constant from anything that NumPy takes for an array of numbers."""
    current_program()
    try:
        given = value if hasattr(value, "__array__") or not hasattr(value, "__dlpack__") else np.from_dlpack(value)
        return _constant(dtypes.convert(given, dtype))
    except TempoError as error:
        raise _at_user(error) from None
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"{show(value)} is no array of numbers: {error}",
            location=user_location(),
            hint="join tensors with tp.stack or tp.concatenate",
        ) from error


def constant(array_like: Any, dtype: Any = None) -> RecurrentTensor:
    """An array that is part of the program.

    Shape as given; without `dtype`, int64 becomes int32 (an integer that does not fit raises `DTypeError`) and
    float64 becomes float32.
    """
    return array(array_like, None if dtype is None else as_dtype(dtype))


def _constant(value: np.ndarray[Any, Any], weak: bool = False) -> RecurrentTensor:
    return apply("constant", attrs={"value": ArrayValue(value)}, weak=weak)


def _index_tensor(value: IndexExpression | IndexCondition) -> RecurrentTensor:
    program = current_program()
    require_program(program, value.program, f"the index expression {value}")
    if isinstance(value, IndexCondition):
        return apply("condition_value", attrs={"condition": value.condition})
    return index_value(value.expr)


def index_value(expr: Expr) -> RecurrentTensor:
    """The value of an expression at each point, weak int32."""
    if expr.is_const:
        return scalar(expr.as_int(), "int32", weak=True)
    return apply("index_value", attrs={"expr": expr}, weak=True)


def cast(x: RecurrentTensor, dtype: str, weak: bool = False) -> RecurrentTensor:
    """`x` in another dtype, as `astype` does it; no node where it has that dtype already."""
    if x.dtype == dtype:
        return x if x.weak == weak else RecurrentTensor(x.program, x.edge, weak)
    return apply("cast", x, attrs={"dtype": dtype}, weak=weak)


def type_of(value: TensorLike) -> tuple[str, bool]:
    """`(dtype, weak)` of a Python scalar or a tensor."""
    if isinstance(value, RecurrentTensor):
        return value.dtype, value.weak
    return ("int32", True) if type(value) is int else dtypes.scalar_dtype(value)


def promoted(*values: TensorLike, to_float: bool = False) -> list[RecurrentTensor]:
    """The values as tensors of their common dtype; with `to_float`, integers and bools become float32."""
    given = [value if is_python_scalar(value) else as_tensor(value) for value in values]
    dtype, weak = dtypes.promote(*(type_of(value) for value in given))
    if to_float and not dtypes.is_float(dtype):
        dtype = "float32"
    return [_to(value, dtype, weak) for value in given]


def _to(value: TensorLike, dtype: str, weak: bool) -> RecurrentTensor:
    return cast(value, dtype, weak) if isinstance(value, RecurrentTensor) else scalar(value, dtype, weak)


def assignable(value: TensorLike, dtype: str, what: str) -> RecurrentTensor:
    """`value` cast to `dtype` as NumPy assigns: within a kind, or bool to integer to float. Raises `DTypeError`."""
    if is_python_scalar(value):
        _check_cast(type_of(value)[0], dtype, what, weak=True)
        return scalar(value, dtype)
    tensor = as_tensor(value)
    _check_cast(tensor.dtype, dtype, what, tensor.weak)
    return cast(tensor, dtype)


def _check_cast(source: str, target: str, what: str, weak: bool) -> None:
    if weak and dtypes.is_integer(source) and dtypes.is_integer(target):
        return
    try:
        dtypes.check_cast(source, target, what)
    except DTypeError as error:
        raise _at_user(error) from None


def _at_user(error: TempoError) -> TempoError:
    error.location = error.location or user_location()
    return error


def integers(x: RecurrentTensor) -> RecurrentTensor:
    """`x`, if it can index. Raises `DTypeError`."""
    if not dtypes.is_integer(x.dtype):
        raise DTypeError(
            f"{x.label} is an index and has dtype {x.dtype}",
            location=user_location(),
            hint="index with integers: .astype(tp.int32); select by a bool mask with tp.where",
        )
    return x
