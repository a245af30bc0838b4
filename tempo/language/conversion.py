"""From what users write to what operators take: tensors of one dtype, promotion and casts, shapes and axes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tempo import dtypes
from tempo.errors import (
    AtUserLine,
    DefinitionError,
    DTypeError,
    IndexExpressionError,
    Location,
    ShapeError,
    TempoError,
    user_location,
)
from tempo.language.indexing.expression import IndexCondition, IndexExpression, is_integer, lasts, to_expr
from tempo.language.indexing.expression import show as show_value
from tempo.language.program import Program, current_program
from tempo.language.tensor import RecurrentTensor, apply, open_program
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, Slice, TensorType
from tempo.sdg.operators.axes import broadcast_shapes
from tempo.sdg.operators.axes import show as show
from tempo.symbolic import (
    And,
    Atom,
    Comparison,
    Condition,
    Context,
    Eq,
    Expr,
    FloorDiv,
    Min,
    Mod,
    Or,
    Symbol,
    const,
    from_terms,
    var,
)

Shape = tuple[Expr, ...]
Axes = int | Sequence[int] | None
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
            raise DTypeError(f"{show_value(value)} is no dtype", hint="write tp.float32") from None


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
            raise DTypeError(f"{show_value(value)} is no array of numbers: {error}", hint=hint) from error


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
        return condition_value(value.condition)
    return index_value(value.expr)


def condition_value(condition: Condition) -> RecurrentTensor:
    """Whether it holds at each point."""
    if not lasts(condition):
        return apply("condition_value", attrs={"condition": condition})
    if isinstance(condition, (And, Or)):
        op = "logical_and" if isinstance(condition, And) else "logical_or"
        return functools.reduce(partial(apply, op), map(condition_value, condition.args))
    assert isinstance(condition, Comparison)  # a constant varies with nothing
    op = "eq" if isinstance(condition, Eq) else "ge"
    return apply(op, index_value(condition.expr), scalar(0, "int32", weak=True))


def index_value(expr: Expr) -> RecurrentTensor:
    """The value of an expression at each point, weak int32."""
    if lasts(expr):
        rest = from_terms({atom: factor for atom, factor in expr.terms if not lasts(atom)}, expr.const)
        parts = [_scaled(_of_last(atom), factor) for atom, factor in expr.terms if lasts(atom)]
        return functools.reduce(partial(_weak, "add"), parts if rest == const(0) else [*parts, index_value(rest)])
    if expr.is_const:
        return scalar(expr.as_int(), "int32", weak=True)
    return apply("index_value", attrs={"expr": expr}, weak=True)


def _weak(op: str, *operands: RecurrentTensor) -> RecurrentTensor:
    return apply(op, *operands, weak=True)


def _scaled(value: RecurrentTensor, factor: int) -> RecurrentTensor:
    return value if factor == 1 else _weak("mul", value, index_value(const(factor)))


def _of_last(atom: Atom) -> RecurrentTensor:
    """The value of what varies with last points, which no node holds."""
    if isinstance(atom, Symbol):
        program, dim = current_program(), atom.of_kind("dim")
        if dim not in program.builder.lengths:
            each = index_value(var(dim)).edge
            points = Edge(each.node, (Slice(const(0), program.builder.size(dim)),))
            return RecurrentTensor(program, program.builder.at_end(dim, points, str(atom)), weak=True)
        lengths = RecurrentTensor(program, program.builder.lengths[dim])
        return _weak("sub", cast(lengths, "int32"), index_value(const(1)))
    if isinstance(atom, (FloorDiv, Mod)):
        op = "floordiv" if isinstance(atom, FloorDiv) else "mod"
        return _weak(op, index_value(atom.expr), index_value(const(atom.divisor)))
    return functools.reduce(
        partial(_weak, "minimum" if isinstance(atom, Min) else "maximum"), map(index_value, atom.args)
    )


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


def assigned(
    value: TensorLike,
    type: TensorType,
    what: str,
    dims: Iterable[Symbol],
    context: Context,
    says: tuple[str, str],
    location: Location | None = None,
) -> RecurrentTensor:
    """`value` cast and broadcast to `type` as NumPy assigns, where it varies along no other dims than `dims`.

    `says`: that it varies along others, and what to do. Raises `DefinitionError`, `DTypeError`, `ShapeError`.
    """
    tensor = assignable(value, type.dtype, what)
    if outside := set(tensor.symbols) - set(dims):
        message, hint = (text.format(dim_names(outside)) for text in says)
        raise DefinitionError(f"{what} varies {message}", location=location or user_location(), hint=hint)
    return fit(tensor, type.shape, what, context)


def dim_names(symbols: Iterable[Symbol]) -> str:
    return ", ".join(sorted(symbol.name for symbol in symbols))


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


# Shapes and axes.


def to_shape(program: Program, shape: Any) -> Shape:
    """The shape that a user gave: one size or a sequence of sizes, integers or index expressions.

    Raises `ShapeError` for a negative size.
    """
    exprs = tuple(to_expr(size, program, "a size of the shape") for size in several(shape))
    for expr in exprs:
        if expr.is_const and expr.as_int() < 0:
            raise ShapeError(f"the shape {show(exprs)} has a negative size", location=user_location())
    return exprs


def to_int(value: Any, what: str) -> int:
    """A number that the program's structure depends on. Raises `IndexExpressionError` for what is no integer."""
    if is_integer(value):
        return operator.index(value)
    raise IndexExpressionError(f"{what} is {value!r}, and must be an integer", location=user_location())


def to_bool(value: Any, what: str) -> bool:
    """A choice that the program's structure depends on. Raises `IndexExpressionError` for what is no bool."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise IndexExpressionError(f"{what} is {value!r}, and must be True or False", location=user_location())


def several(values: Any) -> tuple[Any, ...]:
    """The elements of a list or tuple, or the one value."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def normalize_axis(axis: Any, rank: int, what: str = "axis") -> int:
    """An axis counted from the front. Raises `ShapeError`."""
    found = to_int(axis, what)
    if not -rank <= found < rank:
        raise ShapeError(f"{what} {found} is out of range for a shape with {rank} axes", location=user_location())
    return found % rank


def normalize_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, ascending; all of them for None. Raises `ShapeError`."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(normalize_axis(axis, rank) for axis in several(axes))
    if len(set(found)) != len(found):
        raise ShapeError(f"an axis is named twice in {axes}", location=user_location())
    return tuple(found)


def reshaped(x: RecurrentTensor, shape: Shape) -> RecurrentTensor:
    """`x` with the same elements in another shape; no node where it has it already."""
    return x if x.type.shape == shape else apply("reshape", x, attrs={"shape": shape}, weak=x.weak)


def transposed(x: RecurrentTensor, axes: Sequence[int]) -> RecurrentTensor:
    """`x` with its axes in the given order; no node where that is theirs."""
    order = tuple(axes)
    return x if order == tuple(range(len(order))) else apply("transpose", x, attrs={"axes": order}, weak=x.weak)


def broadcast(x: RecurrentTensor, shape: Shape) -> RecurrentTensor:
    """`x` broadcast to `shape` as NumPy does; no node where it has it already."""
    return x if x.type.shape == shape else apply("broadcast", x, attrs={"shape": shape}, weak=x.weak)


def broadcast_together(xs: Sequence[RecurrentTensor], what: str, but_last: int = 0) -> list[RecurrentTensor]:
    """All of them in one shape, as NumPy broadcasts, but for their last `but_last` axes. Raises `ShapeError`."""
    with AtUserLine():
        shape = broadcast_shapes([x.type.shape[: x.ndim - but_last] for x in xs], what)
    return [broadcast(x, (*shape, *x.type.shape[x.ndim - but_last :])) for x in xs]


def fit(x: RecurrentTensor, shape: Shape, what: str, context: Context) -> RecurrentTensor:
    """`x` broadcast to `shape` as NumPy assigns: ones may be missing or too many in front. Raises `ShapeError`.

    Sizes that `context` proves to be equal fit.
    """
    given = x.type.shape
    surplus = len(given) - len(shape)
    if surplus > 0 and all(size == const(1) for size in given[:surplus]):
        x = reshaped(x, given[surplus:])
        given = given[surplus:]
    missing = len(shape) - len(given)
    pairs = list(zip(given, shape[max(missing, 0) :]))
    if missing < 0 or not all(a == const(1) or a == b or context.implies(a.eq(b)) for a, b in pairs):
        raise ShapeError(f"{what} has shape {show(given)}, which does not fit {show(shape)}", location=user_location())
    wide = tuple(b if a == const(1) else a for a, b in pairs)
    return broadcast(x, (*shape[:missing], *wide))


def inferred_shape(old: Shape, new: Sequence[Any], program: Program) -> Shape:
    """A shape in which one size may be -1: what is left of the elements of `old`. Raises `ShapeError`."""
    unknown = [axis for axis, size in enumerate(new) if is_integer(size) and size == -1]
    if not unknown:
        return to_shape(program, new)
    if len(unknown) > 1:
        raise ShapeError(f"the shape {show(new)} has more than one -1", location=user_location())
    known = to_shape(program, [size for axis, size in enumerate(new) if axis != unknown[0]])
    rest = _quotient(old, known)
    if rest is None:
        raise ShapeError(
            f"the -1 in {show(new)} has no one size for a tensor of shape {show(old)}",
            location=user_location(),
            hint=_what_instead(old),
        )
    return (*known[: unknown[0]], rest, *known[unknown[0] :])


def _what_instead(old: Shape) -> str:
    unknown = [str(size) for size in old if not size.is_const]
    if len(unknown) < 2:
        return "the other sizes must divide the number of elements"
    return (
        f"{' * '.join(unknown)} is no index expression: keep an axis for each, reduce over both with axis=(0, 1), "
        f'or give all but one of them as numbers, tp.dim("b", 8)'
    )


def _quotient(old: Shape, new: Shape) -> Expr | None:
    """The one size that makes the elements of `new` those of `old`."""
    numerator, above = _factors(old)
    denominator, below = _factors(new)
    for factor in below:
        if factor not in above:
            return None
        above.remove(factor)
    if denominator == 0 or numerator % denominator or len(above) > 1:
        return None
    return (above[0] if above else const(1)) * (numerator // denominator)


def _factors(shape: Shape) -> tuple[int, list[Expr]]:
    """The elements as a number times expressions without a common factor."""
    number, varying = 1, []
    for size in shape:
        if size.is_const:
            number *= size.as_int()
            continue
        divisor = math.gcd(size.const, *(coefficient for _, coefficient in size.terms))
        number *= divisor
        varying.append(size // divisor)
    return number, varying
