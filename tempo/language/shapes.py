"""Spatial shapes: what users write for them, and fitting a tensor to one."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo.errors import AtUserLine, IndexExpressionError, ShapeError, user_location
from tempo.language.indexing.expression import is_integer, to_expr
from tempo.language.program import Program
from tempo.language.tensor import RecurrentTensor, apply
from tempo.sdg.operators.axes import broadcast_shapes
from tempo.sdg.operators.axes import show as show
from tempo.symbolic import Context, Expr, const

Shape = tuple[Expr, ...]
Axes = int | Sequence[int] | None


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
