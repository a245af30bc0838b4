"""Data-dependent reads and writes: gather, gather_pairs, scatter_add.

`gather {axis, batch, checked}`: data and indices, whose first `batch` axes (0 unless given) correspond; the result is
`data.shape[:axis] + indices.shape[batch:] + data.shape[axis + 1:]`. `gather_pairs` has also `count`: that many index
arrays of one shape, for the axes axis, axis + 1, ...; they are used together, as in NumPy's advanced indexing.
`scatter_add {axis, batch, checked}`: base, indices, updates; what gather would read at the indices is added to, with
`count`, too, what gather_pairs would. In LoopIR it may be `in_place`: the base is its own.
An index is out of range below 0 or from the size on: an `IndexOutOfRangeError` where `checked`, else clamped. With
`lengths`, passed at run time, so many positions of each indexed axis of a gather count, whatever its size. Where
dims were lifted, `layout` says what the axes of checked indices are: `t - 1` has the point t at position t - 1. Of dims
that were taken apart, `origin` says what they are of their parts. For messages alone: `within`, from where to where the
user counts them, `data`, what they index, and `row`: an index behind the end of its row is given as one of so many more
as the axis has positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo.errors import IndexOutOfRangeError, ShapeError
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import (
    HALF,
    INTEGER,
    NUMBER,
    Attrs,
    Factor,
    Factors,
    Fold,
    Role,
    Shape,
    check_axes,
    check_count,
    check_kind,
    check_same_dtype,
    only,
    show,
)
from tempo.sdg.operators.making import Gradient, Reverse
from tempo.sdg.operators.operator import Function, Lifted, Operator
from tempo.symbolic import Expr


def _batch(attrs: Attrs) -> int:
    return int(attrs.get("batch", 0))


def _axes(attrs: Attrs) -> range:
    """The axes of data that are indexed."""
    return range(attrs["axis"], attrs["axis"] + attrs.get("count", 1))


def _gathered(op: str, attrs: Attrs, data: Shape, indices: tuple[TensorType, ...]) -> Shape:
    """The shape of what is read at the indices."""
    axes, batch = _axes(attrs), _batch(attrs)
    check_count(op, indices, len(axes))
    check_axes(op, axes, len(data))
    shape = indices[0].shape
    for index in indices:
        check_kind(f"{op} at an index", index.dtype, INTEGER)
        if index.shape != shape:
            raise ShapeError(f"{op}: indices of shapes {show(shape)} and {show(index.shape)}")
    if attrs["axis"] < batch or shape[:batch] != data[:batch]:
        raise ShapeError(f"{op}: indices {show(shape)} do not share the first {batch} axes of {show(data)}")
    return (*data[: axes.start], *shape[batch:], *data[axes.stop :])


def _infer_gather(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    data, indices = operands[0], operands[1:]
    return TensorType(_gathered("gather", attrs, data.shape, indices), data.dtype)


def _gather_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Padding in an index array is harmless where indices are clamped; a check would fail on it."""
    axes, batch, count = _axes(attrs), _batch(attrs), len(operands)
    checked = bool(attrs.get("checked", False))
    at_indices = Role.OPAQUE if checked else Role.PARALLEL
    data = (*range(batch, axes.start), *range(axes.stop, len(operands[0])))
    more = len(operands[1]) - batch - len(axes)  # by how much the axes behind those that are indexed have moved
    return (
        *(Factor(at_indices, (axis,) * count, axis, by_position=checked) for axis in range(batch)),
        *(Factor(Role.OPAQUE, only(0, axis, count)) for axis in axes),
        *(Factor(Role.PARALLEL, only(0, axis, count), axis + more * (axis >= axes.stop)) for axis in data),
        *(
            Factor(at_indices, (None, *(axis,) * (count - 1)), axes.start + axis - batch, by_position=checked)
            for axis in range(batch, len(operands[1]))
        ),
    )


def _lift_gather(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    if _batch(attrs) == 0 and lifted[0] and not any(lifted[1:]):
        return Lifted({**attrs, "axis": attrs["axis"] + 1})
    if not lifted[0] and all(lifted[1:]):
        return Lifted(attrs, axis=attrs["axis"], at=_batch(attrs))
    return Lifted({**attrs, "axis": attrs["axis"] + 1, "batch": _batch(attrs) + 1}, broadcast=True)


def _cost(call: Call) -> float:
    return float(call.operands[-1].elements)


# The NumPy meaning. With the indexed axes moved behind the batch axes, both are indexed together.


def _checker(attrs: Attrs, size: int) -> Function:
    """From an index array to one that is within range, as NumPy's own index type; `length` positions may count."""

    def check(index: Any, length: int = size) -> Any:
        index, end = _as_intp(index), min(length, size)
        if index.size and index.view(np.uintp).max() >= end:  # a negative index is a large unsigned one
            raise _out_of_range(index[(index < 0) | (index >= end)].flat[0], end)
        return index

    def clamp(index: Any, length: int = size) -> Any:
        index = _as_intp(index)
        if index.size and size == 0:
            raise _out_of_range(index.flat[0], size)
        return np.minimum(np.maximum(index, 0), max(min(length, size) - 1, 0))

    return check if attrs.get("checked", False) and size else clamp


def _as_intp(index: Any) -> Any:
    """A uint64 that is too great stays too great; every other dtype fits."""
    index = np.asarray(index)
    if index.dtype == np.uint64:
        index = np.minimum(index, np.uint64(np.iinfo(np.intp).max))
    return index.astype(np.intp, copy=False)


def _out_of_range(index: int, size: int) -> IndexOutOfRangeError:
    return IndexOutOfRangeError(f"index {index} is out of range for an axis of size {size}")


def _indexer(attrs: Attrs, data: StaticType, index: StaticType) -> tuple[tuple[int, ...], Function]:
    """The order of axes batch, indexed, others for data, and the index into data so ordered, from the index arrays."""
    axes, batch = _axes(attrs), _batch(attrs)
    order = (*range(batch), *axes, *range(batch, axes.start), *range(axes.stop, data.rank))
    aligned = (-1,) + (1,) * (index.rank - 1)
    rows = [np.arange(index.shape[axis]).reshape(aligned[: index.rank - axis]) for axis in range(batch)]
    checkers = [_checker(attrs, data.shape[axis]) for axis in axes]

    def index_of(given: Sequence[Any]) -> tuple[Any, ...]:
        each = zip(checkers, *(given[at : at + len(axes)] for at in range(0, len(given), len(axes))))
        return (*rows, *(check(*index) for check, *index in each))

    return order, index_of


def _numpy_gather(call: Call) -> Function:
    attrs, data, index = call.attrs, call.operands[0], call.operands[1]
    axes, batch = _axes(attrs), _batch(attrs)
    if batch == 0 and len(axes) == 1:
        return _take(attrs, data, index)
    order, indexer = _indexer(attrs, data, index)
    middle = axes.start - batch  # axes between the batch and the indexed ones: after the index's axes in what is read
    read = range(call.result.rank)
    back = (
        *read[:batch],
        *read[index.rank : index.rank + middle],
        *read[batch : index.rank],
        *read[index.rank + middle :],
    )

    def gather(data: Any, *given: Any) -> Any:
        return np.array(data.transpose(order)[indexer(given)]).transpose(back)

    return gather


def _take(attrs: Attrs, data: StaticType, index: StaticType) -> Function:
    axis = attrs["axis"]
    if index.rank == 0:
        return _take_one(attrs, data)
    check = _checker(attrs, data.shape[axis])
    return lambda data, *given: data.take(check(*given), axis)


def _take_one(attrs: Attrs, data: StaticType) -> Function:
    """One position: what a loop over steps reads, so without the cost of arrays."""
    before, size, checked = (slice(None),) * attrs["axis"], data.shape[attrs["axis"]], attrs.get("checked", False)

    def inside(index: Any, length: int = size) -> int:
        position, end = int(index), min(length, size)
        if 0 <= position < end:
            return position
        if checked or size == 0:
            raise _out_of_range(position, end)
        return max(min(position, end - 1), 0)

    if data.rank == 1:
        return lambda data, *given: data[inside(*given)]  # a scalar, and no view
    return lambda data, *given: data[(*before, inside(*given))].copy()


def _gather_gradient(r: Reverse) -> tuple[Edge | None, ...]:
    """What was read is added where it was read."""
    attrs = {key: r.attrs[key] for key in ("axis", "batch", "count") if key in r.attrs}
    indices = _clamped(r)
    added = r.apply("scatter_add", r.zeros(r.seen(r.x)), *indices, r.g, **attrs, checked=False)
    return (added, *(None for _ in indices))


def _clamped(r: Reverse) -> tuple[Edge, ...]:
    """The indices, none behind the positions that count."""
    lengths = r.attrs.get("lengths", ())
    return tuple(map(r.at_most, r.operands[1:], (each - 1 for each in lengths))) if lengths else r.operands[1:]


# scatter_add {axis, batch, checked}


def _infer_scatter(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("scatter_add", operands, 2 + len(_axes(attrs)))
    base, *indices, updates = operands
    check_kind("scatter_add", check_same_dtype("scatter_add", (base, updates)), NUMBER)
    wanted = _gathered("scatter_add", attrs, base.shape, tuple(indices))
    if updates.shape != wanted:
        raise ShapeError(f"scatter_add: updates of shape {show(updates.shape)}, not {show(wanted)}")
    return base


def _scatter_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Padding of indices and updates with 0 adds 0 to the first position, which changes nothing."""
    batch, axes, count = _batch(attrs), _axes(attrs), len(operands)
    added = len(operands[1]) - batch
    indices, more = (None,) * (count - 2), added - len(axes)
    others = (place for place in range(batch, len(result)) if place not in axes)
    return (
        *(Factor(Role.PARALLEL, (place,) * count, place) for place in range(batch)),
        *(Factor(Role.OPAQUE, (axis, *indices, None), axis) for axis in axes),
        *(Factor(Role.PARALLEL, (at, *indices, at + more * (at >= axes.stop)), at) for at in others),
        *(
            Factor(Role.REDUCING, (None, *(batch + number for _ in axes), axes.start + number))
            for number in range(added)
        ),
    )


def _lift_scatter(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    return Lifted({**attrs, "axis": attrs["axis"] + 1, "batch": _batch(attrs) + 1}, broadcast=True)


def _numpy_scatter(call: Call) -> Function:
    attrs, base, index = call.attrs, call.operands[0], call.operands[1]
    axis, batch, dtype = attrs["axis"], _batch(attrs), call.result.numpy_dtype
    order, indexer = _indexer(attrs, base, index)
    updates = range(call.operands[-1].rank)
    added = updates[axis : axis + index.rank - batch]
    reordered = (*updates[:batch], *added, *updates[batch:axis], *updates[added.stop :])
    wide = np.dtype(np.float32) if call.result.dtype in HALF else dtype

    def scatter(base: Any, *given: Any) -> Any:
        *indices, updates = given
        result = base if attrs.get("in_place") else np.array(base, dtype=wide)
        np.add.at(result.transpose(order), indexer(indices), updates.transpose(reordered).astype(wide, copy=False))
        return result.astype(dtype, copy=False)

    return scatter


def _scatter_gradient(r: Reverse) -> tuple[Edge | None, ...]:
    indices, attrs = r.operands[1:-1], {key: r.attrs[key] for key in ("axis", "batch", "count") if key in r.attrs}
    read = r.apply("gather_pairs" if "count" in attrs else "gather", r.g, *indices, **attrs, checked=False)
    return (r.g, *(None for _ in indices), read)


def _gather(name: str, gradient: Gradient) -> Operator:
    return Operator(
        name=name,
        kind="indexing",
        infer=_infer_gather,
        axes=_gather_axes,
        cost=_cost,
        numpy=_numpy_gather,
        inserts=_lift_gather,
        scalar_attrs=("lengths",),
        gradient=gradient,
    )


INDEXING = (
    _gather("gather", _gather_gradient),
    _gather("gather_pairs", _gather_gradient),
    Operator(
        name="scatter_add",
        kind="indexing",
        infer=_infer_scatter,
        axes=_scatter_axes,
        cost=_cost,
        numpy=_numpy_scatter,
        fold=Fold(lambda dtype: 0, onto=0),
        inserts=_lift_scatter,
        gradient=_scatter_gradient,
    ),
)
