"""Operators that move, repeat or drop elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from typing import Any

import numpy as np

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import (
    SIZE,
    Attrs,
    Factor,
    Factors,
    Role,
    Shape,
    along,
    broadcast_axes,
    check_axes,
    check_same_dtype,
    is_number,
    no_cost,
    same_shape,
    shape_along,
    shape_of,
    show,
    typed,
    without,
)
from tempo.sdg.operators.making import Reverse
from tempo.sdg.operators.operator import Function, Lifted, Operator
from tempo.symbolic import Expr, as_expr, const

_FILLED = 4096  # elements below which a filled array is cheaper to make than a broadcast view


def identity(call: Call) -> Function:
    return lambda x: x


# reshape {shape}: the same elements in row-major order


def _reshaped(attrs: Attrs, given: Shape) -> Shape:
    shape = shape_of(attrs["shape"])
    if _factorized(shape) != _factorized(given):
        raise ShapeError(f"reshape: {show(given)} has not as many elements as {show(shape)}")
    return shape


@dataclass(frozen=True)
class Group:
    """Adjacent axes of the operand, and those of the result that hold the same elements in the same order."""

    left: tuple[int, ...]
    right: tuple[int, ...]


def groups(left: Shape, right: Shape) -> Iterator[Group]:
    """The smallest groups from the front; what cannot be told apart is one group."""
    i = j = 0
    while i < len(left) or j < len(right):
        start_i, start_j = i, j
        i, j = min(i + 1, len(left)), min(j + 1, len(right))
        while _factorized(left[start_i:i]) != _factorized(right[start_j:j]):
            if i == len(left) and j == len(right):
                break
            grow_left = j == len(right) or (i < len(left) and _divides(left[start_i:i], right[start_j:j]))
            i, j = (i + 1, j) if grow_left else (i, j + 1)
        yield Group(tuple(range(start_i, i)), tuple(range(start_j, j)))


def _factorized(sizes: Sequence[Expr]) -> tuple[int, Counter[Expr]]:
    """The product of the sizes: a number, and expressions without a common factor. Products that are equal have one."""
    number, rest = 1, Counter[Expr]()
    for size in sizes:
        content = gcd(size.const, *(factor for _, factor in size.terms))
        number *= content
        if not size.is_const:
            rest[Expr(tuple((atom, factor // content) for atom, factor in size.terms), size.const // content)] += 1
    return number, rest if number else Counter()


def _divides(part: Sequence[Expr], whole: Sequence[Expr]) -> bool:
    (number, rest), (all_numbers, all_rest) = _factorized(part), _factorized(whole)
    return number != 0 and all_numbers % number == 0 and rest <= all_rest


def _reshape_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """An axis is kept where, of what is longer than 1, it alone holds the elements of one of the result."""
    (given,), found = operands, []
    for group in groups(given, result):
        left = [axis for axis in group.left if not is_number(given[axis], 1)]
        right = [axis for axis in group.right if not is_number(result[axis], 1)]
        ones = set(group.right).difference(right)
        found += [Factor(Role.PARALLEL, (None,), axis) for axis in ones]
        if len(left) == len(right) == 1 and given[left[0]] == result[right[0]]:
            found.append(Factor(Role.PARALLEL, (left[0],), right[0]))
            continue
        if left and right:
            found.append(Factor(Role.MAJOR, (left.pop(0),), right.pop(0)))
        found += [Factor(Role.OPAQUE, (axis,)) for axis in left]
        found += [Factor(Role.OPAQUE, (None,), axis) for axis in right]
    return tuple(found)


def _numpy_reshape(call: Call) -> Function:
    shape = call.result.shape
    return lambda x: x.reshape(shape)


def _reshape_gradient(r: Reverse) -> tuple[Edge]:
    return (r.reshape(r.g, r.shape(r.x)),)


# transpose {axes}: axis i of the result is axis axes[i] of the operand


def _transposed(attrs: Attrs, shape: Shape) -> Shape:
    axes = attrs["axes"]
    check_axes("transpose", axes, len(shape))
    if len(axes) != len(shape):
        raise ShapeError(f"transpose: {show(axes)} is no order of the {len(shape)} axes of {show(shape)}")
    return tuple(shape[axis] for axis in axes)


def _transpose_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    return tuple(Factor(Role.PARALLEL, (axis,), place) for place, axis in enumerate(attrs["axes"]))


def _numpy_transpose(call: Call) -> Function:
    axes = tuple(call.attrs["axes"])
    return identity(call) if axes == tuple(range(len(axes))) else lambda x: x.transpose(axes)


def _transpose_gradient(r: Reverse) -> tuple[Edge]:
    axes = r.attrs["axes"]
    return (r.transpose(r.g, [axes.index(axis) for axis in range(len(axes))]),)


# broadcast {shape, batch}: as np.broadcast_to, after the first `batch` axes (0 unless given), which correspond


def _aligned(shape: Sequence[Any], rank: int, batch: int) -> tuple[Any, ...]:
    """Ones are put after the first `batch` sizes, so that there are `rank` of them."""
    return (*shape[:batch], *(1,) * (rank - len(shape)), *shape[batch:])


def _broadcast(attrs: Attrs, given: Shape) -> Shape:
    shape = shape_of(attrs["shape"])
    aligned = shape_of(_aligned(given, len(shape), attrs.get("batch", 0)))
    fits = len(aligned) == len(shape) and all(a == b or is_number(a, 1) for a, b in zip(aligned, shape))
    if not fits:
        raise ShapeError(f"broadcast: {show(given)} does not broadcast to {show(shape)}")
    return shape


def _lift_broadcast(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    changed = {**attrs, "shape": (size, *attrs["shape"])}
    if ranks[0] != len(attrs["shape"]) or "batch" in attrs:
        changed["batch"] = attrs.get("batch", 0) + 1
    return Lifted(changed)


def _numpy_broadcast(call: Call) -> Function:
    given, shape, dtype = call.operands[0].shape, call.result.shape, call.result.numpy_dtype
    aligned = _aligned(given, len(shape), call.attrs.get("batch", 0))
    if given == shape:
        return identity(call)
    if call.result.elements > _FILLED:
        return lambda x: np.broadcast_to(x.reshape(aligned), shape)
    reshaped = given != aligned[len(aligned) - len(given) :]

    def fill(x: Any) -> Any:
        result = np.empty(shape, dtype)
        result[...] = x.reshape(aligned) if reshaped else x
        return result

    return fill


def _broadcast_gradient(r: Reverse) -> tuple[Edge]:
    return (r.summed_to(r.g, r.shape(r.x), r.attrs.get("batch", 0)),)


# concat {axis}


def _infer_concat(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    if not operands:
        raise ShapeError("concat of nothing")
    axis, first = attrs["axis"], operands[0].shape
    check_axes("concat", (axis,), len(first))
    for operand in operands:
        if len(operand.shape) != len(first) or without(operand.shape, (axis,)) != without(first, (axis,)):
            raise ShapeError(f"concat: {show(first)} and {show(operand.shape)} differ beside axis {axis}")
    length = sum((operand.shape[axis] for operand in operands), as_expr(0))
    return TensorType((*first[:axis], length, *first[axis + 1 :]), check_same_dtype("concat", operands))


def _numpy_concat(call: Call) -> Function:
    axis, concatenate = call.attrs["axis"], np.concatenate
    return lambda *parts: concatenate(parts, axis)


def _concat_gradient(r: Reverse) -> list[Edge]:
    """The part that came from each operand."""
    axis = r.attrs["axis"]
    lengths = [r.shape(operand)[axis] for operand in r.operands]
    starts = accumulate(lengths, initial=const(0))
    return [r.cut(r.g, axis, start, length) for start, length in zip(starts, lengths)]


# flip {axes}


def _numpy_flip(call: Call) -> Function:
    index = tuple(slice(None, None, -1 if i in call.attrs["axes"] else 1) for i in range(call.result.rank))
    return lambda x: x[index]


MOVEMENT = (
    Operator(
        name="reshape",
        kind="movement",
        infer=typed("reshape", 1, _reshaped),
        axes=_reshape_axes,
        cost=no_cost,
        numpy=_numpy_reshape,
        entries={"shape": SIZE},
        static_attrs=("shape",),
        views=True,
        gradient=_reshape_gradient,
    ),
    Operator(
        name="transpose",
        kind="movement",
        infer=typed("transpose", 1, _transposed),
        axes=_transpose_axes,
        cost=no_cost,
        numpy=_numpy_transpose,
        axis_attrs=("axes",),
        entries={"axes": 0},
        views=True,
        gradient=_transpose_gradient,
    ),
    Operator(
        name="broadcast",
        kind="movement",
        infer=typed("broadcast", 1, _broadcast),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=_numpy_broadcast,
        entries={"shape": SIZE},
        inserts=_lift_broadcast,
        static_attrs=("shape",),
        views=True,
        gradient=_broadcast_gradient,
    ),
    Operator(
        name="concat",
        kind="movement",
        infer=_infer_concat,
        axes=along("axis", Role.MOVING),
        cost=no_cost,
        numpy=_numpy_concat,
        axis_attrs=("axis",),
        gradient=_concat_gradient,
    ),
    Operator(
        name="flip",
        kind="movement",
        infer=typed("flip", 1, shape_along("flip", "axes")),
        axes=along("axes", Role.MOVING),
        cost=no_cost,
        numpy=_numpy_flip,
        axis_attrs=("axes",),
        views=True,
        gradient=lambda r: (r.apply("flip", r.g, axes=r.attrs["axes"]),),
    ),
    # the operand itself; what reads through an index map without computing
    Operator(
        name="copy",
        kind="movement",
        infer=typed("copy", 1, same_shape),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=identity,
        views=True,
        gradient=lambda r: (r.g,),
    ),
)
