"""The axis rule of an operator: how the axes of its operands reach those of its result, as *factors*.

A factor is one index of what the operator ranges over, as in `bij,bjk->bik` (the name is that of sharding propagation).
It lies at an axis of some operands and at one of the result, or at none where it is folded. What is lifted, padded,
masked, cut into blocks or followed from statement to statement is an axis; all who ask what an operator does to it ask
here. Then the rules on shapes and dtypes that several operators share.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.symbolic import Expr, as_expr

Attrs = Mapping[str, Any]
Shape = tuple[Expr, ...]


class Role(enum.Enum):
    """What an operator does along a factor.

    PARALLEL   position i of the operands reaches position i of the result, and no other
    REDUCING   the positions are folded; padding with `Fold.neutral` changes nothing
    SCANNING   as many positions, each of which may see others; behind padding at the end with `Fold.neutral` (with
               anything, where there is none) the ones before it are unchanged
    WINDOW     position i sees a fixed number from position `stride * i` on, or so many are added in front and behind
    MOVING     positions are moved, dropped or inserted, by an amount that attributes and sizes of other operands say
    MAJOR      the first of axes that are joined, or of those that one is divided into: the first half of the positions
               reaches the first half, and so on for any parts of one size that both can be cut into
    OPAQUE     none of these
    """

    PARALLEL = "parallel"
    REDUCING = "reducing"
    SCANNING = "scanning"
    WINDOW = "window"
    MOVING = "moving"
    MAJOR = "major"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Factor:
    """`operands`: its axis in each operand, None in those that repeat along it. `result`: that of the result, or None.

    Every axis is that of one factor, but for those of size 1 that repeat. `ordered`: what happens at a position depends
    on which one it is. `by_position`: OPAQUE, since it must not be made at other positions than are asked for, though
    each is made of that position of the operands alone. `distance`: of a WINDOW, that position i of the result is
    position i - distance of the operands, of which there are as many.
    """

    role: Role
    operands: tuple[int | None, ...]
    result: int | None = None
    ordered: bool = False
    stride: int = 1
    by_position: bool = False
    distance: int | None = None

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The numbers of the operands that have it, each with its axis."""
        return tuple((number, axis) for number, axis in enumerate(self.operands) if axis is not None)

    @property
    def keeps(self) -> bool:
        """Whether each position of the result is made of that position of the operands alone, whichever it is."""
        return self.role is Role.PARALLEL and self.result is not None and not self.ordered

    @property
    def folds(self) -> bool:
        """Whether all positions come together, whichever they are."""
        return self.role is Role.REDUCING and self.result is None and not self.ordered


Factors = tuple[Factor, ...]
AxisRule = Callable[[Attrs, Sequence[Shape], Shape], Factors]
"""From the attributes, the shapes of the operands and that of the result."""


@dataclass(frozen=True)
class Fold:
    """How positions come together along a REDUCING factor (a SCANNING one is padded with the same).

    neutral   from the dtype of an operand: padding with it changes nothing. None: the operator tells padding by itself
    combine   the operator that makes the whole of what two parts gave; None: none does
    onto      the number of an operand that the positions are added to; then the parts of all others are, too
    """

    neutral: Callable[[str], bool | int | float] | None
    combine: str | None = None
    onto: int | None = None


SIZE = "size"
"""In `Operator.entries`: what an axis has in the attribute is its size."""


def matching(given: Shape, result: Shape, batch: int = 0) -> Iterator[int | None]:
    """For each axis of a result that of an operand which broadcasts to it; the first `batch` axes correspond."""
    more = len(result) - len(given)
    for place, size in enumerate(result):
        axis = place if place < batch else place - more
        found = axis >= 0 and not batch <= place < batch + more and given[axis] == size
        yield axis if found else None


def broadcast_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """All axes are kept, aligned as NumPy does behind the first `batch`."""
    found = [tuple(matching(shape, result, attrs.get("batch", 0))) for shape in operands]
    return tuple(Factor(Role.PARALLEL, tuple(of[axis] for of in found), axis) for axis in range(len(result)))


def along(key: str, role: Role, removed: bool = False, ordered: bool = False) -> AxisRule:
    """`role` along the axes of all operands that an attribute names, which the result lacks where `removed`."""

    def rule(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
        named, kept = _named(attrs, key), iter(range(len(result)))
        factors = []
        for axis in range(len(operands[0])):
            places = (axis,) * len(operands)
            if axis not in named:
                factors.append(Factor(Role.PARALLEL, places, next(kept)))
            else:
                factors.append(Factor(role, places, None if removed else next(kept), ordered))
        return tuple(factors)

    return rule


def _named(attrs: Attrs, key: str) -> tuple[int, ...]:
    given = attrs[key]
    return (given,) if isinstance(given, int) else given


def no_axes_known(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Every axis by itself, OPAQUE."""
    count = len(operands)
    found = [
        Factor(Role.OPAQUE, only(number, axis, count))
        for number, shape in enumerate(operands)
        for axis in range(len(shape))
    ]
    return (*found, *(Factor(Role.OPAQUE, (None,) * count, axis) for axis in range(len(result))))


def only(number: int, axis: int, count: int) -> tuple[int | None, ...]:
    """An axis of one of `count` operands."""
    return tuple(axis if at == number else None for at in range(count))


def after_a_new_one(axes: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """The same axes behind a new leading one."""
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)


# Shapes and dtypes.

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


def created(op: str, type: Callable[[Attrs], TensorType]) -> Infer:
    """The rule of an operator without operands."""

    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        check_count(op, operands, 0)
        return type(attrs)

    return infer


def shape_along(op: str, key: str, removed: bool = False, least: int = 0) -> ShapeRule:
    """That of the operand, where `removed` without the axes that an attribute names. `least`: see `Operator`."""

    def shape_left(attrs: Attrs, shape: Shape) -> Shape:
        axes = _named(attrs, key)
        check_axes(op, axes, len(shape))
        if least and any(is_number(shape[axis], 0) for axis in axes):
            raise ShapeError(f"{op} over an empty axis has no value")
        return without(shape, axes) if removed else shape

    return shape_left


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
    rank, one, found = max(map(len, shapes), default=0), as_expr(1), []
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
    """The cost of `weight` operations for every element of what is largest: of what an operator folds, the operand."""

    def cost(call: Call) -> float:
        return weight * max(type.elements for type in (call.result, *call.operands))

    return cost


no_cost = per_element(0.0)


HALF = frozenset({"float16", "bfloat16"})
"""Dtypes whose sums, contractions and composed functions are computed in float32 and rounded once."""


def in_float32(dtype: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with halves computed in float32 and rounded once."""
    if dtype not in HALF:
        return function
    target = dtypes.to_numpy(dtype)
    return lambda *arrays: function(*(x.astype(np.float32) for x in arrays)).astype(target)
