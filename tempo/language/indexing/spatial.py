"""Indexing the shape: NumPy's basic indexing with index expressions, and integer tensors as gather indices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, NoReturn

import numpy as np

from tempo.errors import DefinitionError, IndexOutOfRangeError, ShapeError, user_location
from tempo.language.conversion import (
    as_tensor,
    broadcast_together,
    index_value,
    integers,
    reshaped,
    show,
    transposed,
)
from tempo.language.functions.creation import iota, steps_between
from tempo.language.functions.elementwise import where
from tempo.language.functions.movement import gather
from tempo.language.indexing.expression import IndexCondition, IndexExpression, fail, is_integer, to_expr
from tempo.language.tensor import RecurrentTensor, apply, open_program
from tempo.symbolic import Expr, const, maximum, minimum


class SpatialIndexer:
    """What `x.spatial` gives: `x.spatial[0]`, `x.spatial[t]`, `x.spatial[..., 1:t + 1]`, `x.spatial[index]`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: RecurrentTensor) -> None:
        self.tensor = tensor

    def __getitem__(self, key: Any) -> RecurrentTensor:
        return index(self.tensor, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise DefinitionError(
            f"{self.tensor.label} cannot be changed in place: a tensor is what its equations say",
            location=user_location(),
            hint="make a new tensor: tp.where(mask, new, x), with a mask such as tp.arange(n) == index",
        )

    def __iter__(self) -> NoReturn:
        fail("x.spatial is no sequence", "take a tensor apart with tp.unstack(x, axis)")


@dataclass(frozen=True)
class AxisSlice:
    """`length` positions of an axis from `start` in steps; `dropped` where the axis is no axis of the result.

    Positions that are not `proven` to lie within the axis are checked when the program runs.
    """

    start: Expr
    length: Expr
    step: int = 1
    dropped: bool = False
    proven: bool = True


Entry = AxisSlice | RecurrentTensor | None
"""What is at one place of the index: positions of an axis, an index tensor for an axis, or a new axis."""


def index(x: RecurrentTensor, key: Any) -> RecurrentTensor:
    """`x.spatial[key]`."""
    open_program(x)
    entries = _entries(x, key if isinstance(key, tuple) else (key,))
    given = zip((entry for entry in entries if entry is not None), x.type.shape)
    result = _sliced(x, [entry if isinstance(entry, AxisSlice) else _whole(size) for entry, size in given])
    sizes = iter(result.type.shape)
    shape: list[Expr] = []
    for entry in entries:
        size = const(1) if entry is None else next(sizes)
        if not (isinstance(entry, AxisSlice) and entry.dropped):
            shape.append(size)
    return _gathered(reshaped(result, tuple(shape)), entries)


def _whole(size: Expr) -> AxisSlice:
    return AxisSlice(const(0), size)


def _entries(x: RecurrentTensor, items: tuple[Any, ...]) -> list[Entry]:
    shape = x.type.shape
    dots = [place for place, item in enumerate(items) if isinstance(item, EllipsisType)]
    used = sum(1 for item in items if item is not None and not isinstance(item, EllipsisType))
    if len(dots) > 1 or used > len(shape):
        problem = "more than one ..." if len(dots) > 1 else f"{used} indices for the {len(shape)} axes of {show(shape)}"
        raise ShapeError(f"spatial index of {x.label}: {problem}", location=user_location())
    cut = dots[0] if dots else len(items)
    rest = [slice(None)] * (len(shape) - used)
    sizes = iter(shape)
    spread = (*items[:cut], *rest, *items[cut + 1 :])
    return [None if item is None else _entry(x, item, next(sizes)) for item in spread]


def _entry(x: RecurrentTensor, item: Any, size: Expr) -> AxisSlice | RecurrentTensor:
    context = x.program.builder.context
    if is_integer(item):
        return AxisSlice(_number(x, int(item), size), const(1), dropped=True)
    if isinstance(item, IndexExpression):
        start = to_expr(item, x.program, "a spatial index")
        inside = context.implies(start.ge(0) & start.lt(size))
        return AxisSlice(start, const(1), dropped=True, proven=inside)
    if isinstance(item, slice):
        part = _slice(x, item, size)
        ends = part.start, part.start + (part.length - 1) * part.step
        first, last = ends if part.step > 0 else ends[::-1]
        inside = context.implies(first.ge(0) & last.lt(size))
        return replace(part, proven=inside or part.length == const(0))
    return _index_tensor(item, size)


def _number(x: RecurrentTensor, item: int, size: Expr) -> Expr:
    if size.is_const and not -size.as_int() <= item < size.as_int():
        raise IndexOutOfRangeError(
            f"spatial index {item} of {x.label} is out of range for an axis of size {size}", location=user_location()
        )
    return size + item if item < 0 else const(item)


def _index_tensor(item: Any, size: Expr) -> RecurrentTensor:
    if isinstance(item, (IndexCondition, float, np.floating, str)):
        fail(f"{item!r} is no spatial index", "index with integers, index expressions, slices or integer tensors")
    given = item if isinstance(item, RecurrentTensor) else np.asarray(item)
    if given.dtype in ("bool", np.bool_):
        fail(
            "a bool mask as a spatial index has a shape that depends on data",
            "select with tp.where(mask, a, b) instead",
        )
    tensor = integers(as_tensor(item))
    if isinstance(given, np.ndarray) and given.size and given.min() < 0:
        return where(tensor < 0, tensor + index_value(size), tensor)
    return tensor


def _slice(x: RecurrentTensor, item: slice, size: Expr) -> AxisSlice:
    step = 1 if item.step is None else item.step
    if not is_integer(step) or step == 0:
        fail(f"a slice has step {step}", "its step is an integer other than 0")
    if size.is_const and all(bound is None or is_integer(bound) for bound in (item.start, item.stop)):
        positions = range(size.as_int())[item]
        return AxisSlice(const(positions.start), const(len(positions)), int(step))
    forward = step > 0
    start = _bound(x, item.start, size, const(0) if forward else size - 1, forward)
    stop = _bound(x, item.stop, size, size if forward else const(-1), forward)
    return AxisSlice(start, steps_between(x.program.builder.context, start, stop, int(step)), int(step))


def _bound(x: RecurrentTensor, item: Any, size: Expr, default: Expr, forward: bool) -> Expr:
    """A number is clipped into the axis, as in NumPy; an expression means what it says."""
    if item is None:
        return default
    if isinstance(item, RecurrentTensor):
        fail("a tensor bounds a spatial slice", "the length of a slice may not depend on data; mask with tp.where")
    expr = to_expr(item, x.program, "a bound of a spatial slice")
    if not is_integer(item):
        return expr
    least, most = (const(0), size) if forward else (const(-1), size - 1)
    context = x.program.builder.context
    return context.simplify(maximum(size + expr, least) if item < 0 else minimum(expr, most))


def _sliced(x: RecurrentTensor, parts: list[AxisSlice]) -> RecurrentTensor:
    """Axes cut to their parts, none dropped yet; no node where every part is whole."""
    cuts = [part if part.proven else _whole(size) for part, size in zip(parts, x.type.shape)]
    if any(replace(cut, dropped=False) != _whole(size) for cut, size in zip(cuts, x.type.shape)):
        attrs = {
            "starts": tuple(cut.start for cut in cuts),
            "lengths": tuple(cut.length for cut in cuts),
            "steps": tuple(cut.step for cut in cuts),
        }
        x = apply("slice", x, attrs=attrs, weak=x.weak)
    for axis, part in enumerate(parts):
        if not part.proven:
            values = iota(part.length)
            steps = values if part.step == 1 else values * part.step
            x = gather(x, index_value(part.start) + steps, axis)
    return x


def _gathered(x: RecurrentTensor, entries: list[Entry]) -> RecurrentTensor:
    """Index tensors applied to their axes of `x`, which are those of the entries that are not dropped."""
    kept = [entry for entry in entries if not (isinstance(entry, AxisSlice) and entry.dropped)]
    axes = [axis for axis, entry in enumerate(kept) if isinstance(entry, RecurrentTensor)]
    if not axes:
        return x
    place = _place(entries)
    others = [axis for axis in range(x.ndim) if axis not in axes]
    data = transposed(x, (*others[:place], *axes, *others[place:]))
    indices = [entry for entry in kept if isinstance(entry, RecurrentTensor)]
    if len(indices) == 1:
        return gather(data, indices[0], place)
    arrays = broadcast_together(indices, "spatial index")
    attrs = {"axis": place, "count": len(arrays), "batch": 0, "checked": True}
    return apply("gather_pairs", data, *arrays, attrs=attrs, weak=x.weak)


def _place(entries: list[Entry]) -> int:
    """Where the axes of the index tensors come in the result: in their place if they are adjacent, else in front.

    As in NumPy, single positions count as index tensors here.
    """
    advanced = [isinstance(e, RecurrentTensor) or (isinstance(e, AxisSlice) and e.dropped) for e in entries]
    first, last = advanced.index(True), len(advanced) - 1 - advanced[::-1].index(True)
    return first if all(advanced[first : last + 1]) else 0
