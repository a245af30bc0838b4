"""From what users write to tensors: scalars, arrays, index expressions; promotion and casts."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tempo import dtypes
from tempo.errors import AtUserLine, DTypeError, ShapeError, TempoError, user_location
from tempo.language.indexing.expression import IndexCondition, IndexExpression, show
from tempo.language.program import current_program
from tempo.language.tensor import RecurrentTensor, apply, open_program
from tempo.sdg.call import ArrayValue
from tempo.symbolic import Expr

TensorLike: TypeAlias = Any
"""A tensor, an index expression or condition, a Python scalar, or an array (`__array__` or `__dlpack__`)."""

Numbers: TypeAlias = np.ndarray[Any, Any]
Operand: TypeAlias = RecurrentTensor | bool | int | float | Numbers
"""What takes part in promotion: a tensor, or numbers with the bits they came with, until their dtype is known."""


def as_tensor(value: TensorLike, dtype: Any = None) -> RecurrentTensor:
    """The tensor that `value` is.

    Index expressions and Python numbers are weak (they take the dtype of what they meet), conditions are bool; arrays
    of 64 bits become 32 unless `dtype` says otherwise. With `dtype`, what `.astype(dtype)` gives.

    Raises `DTypeError` for what is no array of numbers, or an integer that does not fit; `InputError` for a finite
    number that would become infinite.
    """
    target = None if dtype is None else as_dtype(dtype)
    if isinstance(value, RecurrentTensor):
        open_program(value)
        return value if target is None else cast(value, target)
    if isinstance(value, (IndexExpression, IndexCondition)):
        tensor = _index_tensor(value)
        return tensor if target is None else cast(tensor, target)
    if is_python_scalar(value):
        default, weak = dtypes.scalar_dtype(value)
        return scalar(value, target or default, weak and target is None)
    return _of_numbers(_numbers(value), target)


def is_python_scalar(value: Any) -> bool:
    """NumPy's scalars are none: they carry a dtype."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def as_dtype(value: Any) -> str:
    """The name of a dtype. Raises `DTypeError` at the user's line."""
    with AtUserLine():
        try:
            return dtypes.as_dtype(value)
        except ValueError:  # NumPy's, for an object whose `dtype` is none
            raise DTypeError(f"{show(value)} is no dtype", hint="write tp.float32") from None


def scalar(value: bool | int | float, dtype: str, weak: bool = False) -> RecurrentTensor:
    """A constant of shape () and the given dtype. Raises `DTypeError` or `InputError` where the value does not fit."""
    return _constant(scalar_array(value, dtype), weak)


def scalar_array(value: bool | int | float, dtype: str) -> Numbers:
    if not dtypes.is_integer(dtype):
        with AtUserLine():
            return dtypes.rounded_scalar(value, dtype)
    limits = np.iinfo(dtypes.to_numpy(dtype))
    if not limits.min <= value <= limits.max:
        raise DTypeError(
            f"{value} is out of the range of {dtype}",
            location=user_location(),
            hint=f"{dtype} holds {limits.min} to {limits.max}; use a wider dtype explicitly",
        )
    return np.asarray(int(value), dtypes.to_numpy(dtype))


def number(value: Any, dtype: str, what: str) -> bool | int | float:
    """A number as `dtype` holds it, for an attribute of an operator. A fraction is no integer: `DTypeError`."""
    given = value if is_python_scalar(value) else _numbers(value)
    if isinstance(given, np.ndarray) and given.shape:
        raise ShapeError(f"{what} has shape {given.shape}, and must be one number", location=user_location())
    plain: bool | int | float = given.item() if isinstance(given, np.ndarray) else given
    if dtypes.is_integer(dtype) and plain != plain // 1:
        _check_cast("float32", dtype, what, weak=True)
    return scalar_array(plain, dtype).item()  # type: ignore[no-any-return]


def _of_numbers(numbers: Numbers, dtype: str | None) -> RecurrentTensor:
    with AtUserLine():
        return _constant(dtypes.convert(numbers, dtype))


def _numbers(value: Any) -> Numbers:
    """The array that NumPy takes `value` for, as it is. Raises `DTypeError`."""
    current_program()
    is_numpys = hasattr(value, "__array__") or not hasattr(value, "__dlpack__")
    with AtUserLine():
        try:
            return dtypes.numbers(value if is_numpys else np.from_dlpack(value))
        except TempoError:
            raise
        except (TypeError, ValueError) as error:
            hint = "join tensors with tp.stack or tp.concatenate"
            raise DTypeError(f"{show(value)} is no array of numbers: {error}", hint=hint) from error


def constant(array_like: Any, dtype: Any = None) -> RecurrentTensor:
    """An array that is part of the program.

    Shape as given; without `dtype`, int64 becomes int32 (an integer that does not fit raises `DTypeError`) and
    float64 becomes float32.
    """
    return _of_numbers(_numbers(array_like), None if dtype is None else as_dtype(dtype))


def _constant(value: np.ndarray[Any, Any], weak: bool = False) -> RecurrentTensor:
    return apply("constant", attrs={"value": ArrayValue(value)}, weak=weak)


def _index_tensor(value: IndexExpression | IndexCondition) -> RecurrentTensor:
    program = current_program()
    program.require(value.program, f"the index expression {value}")
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


def operand(value: TensorLike) -> Operand:
    """`value` as what promotion looks at. Raises `DTypeError` for what is no array of numbers."""
    if is_python_scalar(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (RecurrentTensor, IndexExpression, IndexCondition)):
        return as_tensor(value)
    return _numbers(value)


def type_of(value: Operand) -> tuple[str, bool]:
    """`(dtype, weak)` as promotion sees it. float64 is what NumPy makes of any number, so it takes its partner's."""
    if isinstance(value, RecurrentTensor):
        return value.dtype, value.weak
    if isinstance(value, np.ndarray):
        return dtypes.default_dtype(dtypes.from_numpy(value.dtype)), value.dtype == np.float64
    return dtypes.scalar_dtype(value)


def promoted(*values: TensorLike, to_float: bool = False) -> list[RecurrentTensor]:
    """The values as tensors of their common dtype; with `to_float`, integers and bools become float32.

    A float64 array has the dtype of the floats that it meets, float32 where it meets none; what NumPy or Python gave is
    converted once.
    """
    given = [operand(value) for value in values]
    dtype, weak = dtypes.promote(*(type_of(value) for value in given))
    if to_float and not dtypes.is_float(dtype):
        dtype = "float32"
    weak = weak and not any(isinstance(value, np.ndarray) and value.dtype == np.float64 for value in given)
    return [_to(value, dtype, weak) for value in given]


def _to(value: Operand, dtype: str, weak: bool) -> RecurrentTensor:
    if isinstance(value, RecurrentTensor):
        return cast(value, dtype, weak)
    if isinstance(value, np.ndarray):
        return _of_numbers(value, None if dtypes.default_dtype(dtypes.from_numpy(value.dtype)) == dtype else dtype)
    return scalar(value, dtype, weak)


def assignable(value: TensorLike, dtype: str, what: str) -> RecurrentTensor:
    """`value` cast to `dtype` as NumPy assigns: within a kind, or bool to integer to float. Raises `DTypeError`."""
    given = operand(value)
    source, weak = type_of(given)
    _check_cast(source if not isinstance(given, np.ndarray) else dtypes.from_numpy(given.dtype), dtype, what, weak)
    return _to(given, dtype, weak=False)


def _check_cast(source: str, target: str, what: str, weak: bool) -> None:
    if weak and dtypes.is_integer(source) and dtypes.is_integer(target):
        return
    with AtUserLine():
        dtypes.check_cast(source, target, what)


def integers(x: RecurrentTensor) -> RecurrentTensor:
    """`x`, if it can index. Raises `DTypeError`."""
    if not dtypes.is_integer(x.dtype):
        raise DTypeError(
            f"{x.label} is an index and has dtype {x.dtype}",
            location=user_location(),
            hint="index with integers: .astype(tp.int32); select by a bool mask with tp.where",
        )
    return x
