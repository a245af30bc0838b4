"""Rules on shapes and dtypes that several operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import Attrs, Shape
from tempo.symbolic import Expr, as_expr

FLOAT = ("float",)
INTEGER = ("int", "uint")
NUMBER = ("float", "int", "uint")
ANY = ("float", "int", "uint", "bool")

Infer = Callable[[Attrs, tuple[TensorType, ...]], TensorType]
Cost = Callable[[Call], float]
ShapeRule = Callable[..., Shape]
"""From the attributes, and the shape of each operand."""


def typed(op: str, count: int, shape: ShapeRule, kinds: Sequence[str] = ANY, result: str | None = None) -> Infer:
    """The rule of an operator that takes `count` operands of one dtype, which is of `kinds`. Its result has that dtype,
    or `result`."""

    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        check_count(op, operands, count)
        dtype = check_same_dtype(op, operands)
        check_kind(op, dtype, kinds)
        return TensorType(shape(attrs, *(operand.shape for operand in operands)), result or dtype)

    return infer


def same_shape(attrs: Attrs, shape: Shape) -> Shape:
    return shape


def shape_of(sizes: Iterable[int | Expr]) -> Shape:
    return tuple(as_expr(size) for size in sizes)


def show(shape: Iterable[Any]) -> str:
    """As Python prints a tuple: `(3,)`, `(t + 1, 64)`."""
    sizes = [str(size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def is_number(size: Expr, value: int) -> bool:
    return size.is_const and size.as_int() == value


def broadcast_shapes(shapes: Sequence[Shape], op: str) -> Shape:
    """NumPy's rule; sizes fit where they are equal expressions or one is the number 1. Raises `ShapeError`."""
    rank, one, found = max(map(len, shapes)), as_expr(1), []
    for sizes in zip(*((one,) * (rank - len(shape)) + shape for shape in shapes)):
        longer = {size for size in sizes if size != one}
        if len(longer) > 1:
            raise ShapeError(
                f"{op}: shapes {' and '.join(show(shape) for shape in shapes)} do not broadcast",
                hint="sizes must be equal, or one of them 1",
            )
        found.append(longer.pop() if longer else one)
    return tuple(found)


def check_count(op: str, operands: Sequence[TensorType], count: int) -> None:
    if len(operands) != count:
        raise ShapeError(f"{op} takes {count} operand{'s' * (count != 1)}, not {len(operands)}")


def check_axes(op: str, axes: Iterable[int], rank: int) -> None:
    """Axes are numbers from 0 to rank - 1, each at most once. Raises `ShapeError`."""
    given = tuple(axes)
    wrong = [axis for axis in given if not 0 <= axis < rank]
    if wrong:
        raise ShapeError(f"{op}: axis {wrong[0]} is out of range for {rank} axes")
    if len(set(given)) != len(given):
        raise ShapeError(f"{op}: an axis is named twice in {given}")


def check_kind(op: str, dtype: str, kinds: Sequence[str]) -> None:
    """Raises `DTypeError` where the kind of `dtype` is none of `kinds`."""
    if dtypes.kind(dtype) not in kinds:
        raise DTypeError(f"{op} of {dtype} is not defined", hint=f"cast it to {' or '.join(kinds)} first")


def check_same_dtype(op: str, operands: Sequence[TensorType]) -> str:
    found = {operand.dtype for operand in operands}
    if len(found) != 1:
        raise DTypeError(f"{op}: dtypes {' and '.join(operand.dtype for operand in operands)} are not equal")
    return operands[0].dtype


def without(items: Sequence[Any], axes: Iterable[int]) -> tuple[Any, ...]:
    removed = frozenset(axes)
    return tuple(item for axis, item in enumerate(items) if axis not in removed)


def per_element(weight: float = 1.0) -> Cost:
    """The cost of `weight` operations for every element of the result."""

    def cost(call: Call) -> float:
        return weight * call.result.elements

    return cost


def no_cost(call: Call) -> float:
    return 0.0


def per_operand_element(weight: float = 1.0) -> Cost:
    """The cost of `weight` operations for every element of the first operand."""

    def cost(call: Call) -> float:
        return weight * call.operands[0].elements

    return cost
