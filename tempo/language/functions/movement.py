"""Functions that move, repeat, join or drop elements, and those that read them at the values of integer tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tempo.errors import ShapeError, user_location
from tempo.language.conversion import (
    Axes,
    TensorLike,
    as_tensor,
    broadcast,
    broadcast_together,
    inferred_shape,
    integers,
    normalize_axes,
    normalize_axis,
    number,
    promoted,
    reshaped,
    several,
    show,
    to_int,
    to_shape,
    transposed,
)
from tempo.language.functions.creation import iota
from tempo.language.indexing.expression import to_expr
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import Expr, const


def reshape(x: TensorLike, shape: Any) -> RecurrentTensor:
    """The same elements, row by row, in another shape; one size may be -1."""
    tensor = as_tensor(x)
    return reshaped(tensor, inferred_shape(tensor.type.shape, several(shape), tensor.program))


def ravel(x: TensorLike) -> RecurrentTensor:
    """With one axis."""
    return reshape(x, (-1,))


def transpose(x: TensorLike, axes: Sequence[int] | None = None) -> RecurrentTensor:
    """Axis `i` of the result is axis `axes[i]`; all axes reversed for None."""
    tensor = as_tensor(x)
    if axes is None:
        return transposed(tensor, range(tensor.ndim - 1, -1, -1))
    return transposed(tensor, [normalize_axis(axis, tensor.ndim) for axis in several(axes)])


def swapaxes(x: TensorLike, axis1: int, axis2: int) -> RecurrentTensor:
    """With two axes exchanged."""
    tensor = as_tensor(x)
    order = list(range(tensor.ndim))
    first, second = normalize_axis(axis1, tensor.ndim), normalize_axis(axis2, tensor.ndim)
    order[first], order[second] = second, first
    return transposed(tensor, order)


def moveaxis(x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]) -> RecurrentTensor:
    """With the axes `source` at the places `destination`, the others in their order."""
    tensor = as_tensor(x)
    sources = [normalize_axis(axis, tensor.ndim) for axis in several(source)]
    places = [normalize_axis(axis, tensor.ndim) for axis in several(destination)]
    if len(sources) != len(places):
        raise ShapeError(
            f"moveaxis of {len(sources)} axes to {len(places)} places: one place per axis", location=user_location()
        )
    order = [axis for axis in range(tensor.ndim) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return transposed(tensor, order)


def expand_dims(x: TensorLike, axis: int | Sequence[int]) -> RecurrentTensor:
    """With an axis of size 1 at `axis` of the result."""
    tensor = as_tensor(x)
    rank = tensor.ndim + len(several(axis))
    added = {normalize_axis(one, rank) for one in several(axis)}
    sizes = iter(tensor.type.shape)
    return reshaped(tensor, tuple(const(1) if place in added else next(sizes) for place in range(rank)))


def squeeze(x: TensorLike, axis: Axes = None) -> RecurrentTensor:
    """Without axes of size 1: all of them for None."""
    tensor = as_tensor(x)
    shape = tensor.type.shape
    ones = [place for place, size in enumerate(shape) if size == const(1)]
    removed = ones if axis is None else normalize_axes(axis, tensor.ndim)
    wrong = [place for place in removed if place not in ones]
    if wrong:
        raise ShapeError(f"axis {wrong[0]} of {show(shape)} is squeezed, and is not 1", location=user_location())
    return reshaped(tensor, tuple(size for place, size in enumerate(shape) if place not in removed))


def broadcast_to(x: TensorLike, shape: Any) -> RecurrentTensor:
    """Repeated along axes that are missing in front or 1."""
    tensor = as_tensor(x)
    return broadcast(tensor, to_shape(tensor.program, shape))


def broadcast_arrays(*xs: TensorLike) -> tuple[RecurrentTensor, ...]:
    """Each broadcast to the common shape."""
    return tuple(broadcast_together([as_tensor(x) for x in xs], "broadcast"))


def concatenate(xs: Sequence[TensorLike], axis: int | None = 0) -> RecurrentTensor:
    """Joined along an axis that they have; flattened first for None."""
    tensors = promoted(*_given(xs, "concatenate"))
    if axis is None:
        tensors, axis = [ravel(tensor) for tensor in tensors], 0
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ShapeError("concatenate of a tensor without axes", location=user_location(), hint="use tp.stack")
    return apply("concat", *tensors, attrs={"axis": normalize_axis(axis, tensors[0].ndim)}, weak=tensors[0].weak)


def stack(xs: Sequence[TensorLike], axis: int = 0) -> RecurrentTensor:
    """Joined along a new axis."""
    tensors = promoted(*_given(xs, "stack"))
    return concatenate([expand_dims(tensor, axis) for tensor in tensors], axis=axis)


def unstack(x: TensorLike, axis: int = 0) -> tuple[RecurrentTensor, ...]:
    """Taken apart along an axis of known size."""
    tensor = as_tensor(x)
    front = moveaxis(tensor, axis, 0)
    size = front.type.shape[0]
    if not size.is_const:
        raise ShapeError(f"the size {size} is not known, so the tensor cannot be taken apart", location=user_location())
    return tuple(front.spatial[place] for place in range(size.as_int()))


def split(x: TensorLike, sections: int | Sequence[int], axis: int = 0) -> tuple[RecurrentTensor, ...]:
    """Cut along an axis of known size into equal parts, or before the given positions."""
    tensor = as_tensor(x)
    along = normalize_axis(axis, tensor.ndim)
    size = tensor.type.shape[along]
    cuts = several(sections)
    if not isinstance(sections, (tuple, list)):
        count = to_int(sections, "the number of parts")
        if not size.is_const or count < 1 or size.as_int() % count:
            raise ShapeError(f"axis {along} of size {size} has no {count} equal parts", location=user_location())
        step = size.as_int() // count
        cuts = tuple(range(step, size.as_int(), step))
    front = (slice(None),) * along
    return tuple(tensor.spatial[(*front, slice(a, b))] for a, b in zip([None, *cuts], [*cuts, None]))


def _given(xs: Any, what: str) -> Sequence[TensorLike]:
    if not isinstance(xs, (list, tuple)) or not xs:
        raise ShapeError(f"{what} takes a list of at least one tensor", location=user_location())
    return tuple(xs)


def flip(x: TensorLike, axis: Axes = None) -> RecurrentTensor:
    """Reversed along the axes."""
    tensor = as_tensor(x)
    axes = normalize_axes(axis, tensor.ndim)
    return apply("flip", tensor, attrs={"axes": axes}, weak=tensor.weak) if axes else tensor


def roll(x: TensorLike, shift: int, axis: int) -> RecurrentTensor:
    """Moved along an axis of known size by `shift` places; what leaves at the end enters in front."""
    tensor = as_tensor(x)
    along = normalize_axis(axis, tensor.ndim)
    size = tensor.type.shape[along]
    if not size.is_const:
        raise ShapeError(f"roll along an axis of unknown size {size}", location=user_location())
    cut = -to_int(shift, "shift") % size.as_int() if size.as_int() else 0
    front = (slice(None),) * along
    parts = [tensor.spatial[(*front, slice(cut, None))], tensor.spatial[(*front, slice(0, cut))]]
    return concatenate(parts, axis=along) if cut else tensor


def pad(x: TensorLike, pad_width: Any, constant_values: bool | int | float = 0) -> RecurrentTensor:
    """With `constant_values` before and after each axis: one width, a pair, or a pair for every axis."""
    tensor = as_tensor(x)
    pairs = _pairs(tensor, pad_width)
    value = number(constant_values, tensor.dtype, "the value that pads")
    low, high = tuple(before for before, _ in pairs), tuple(after for _, after in pairs)
    return apply("pad", tensor, attrs={"low": low, "high": high, "value": value}, weak=tensor.weak)


def _pairs(x: RecurrentTensor, width: Any) -> list[tuple[Expr, Expr]]:
    what = "a pad width"
    if not isinstance(width, (tuple, list)):
        size = to_expr(width, x.program, what)
        return [(size, size)] * x.ndim
    if len(width) == 2 and not isinstance(width[0], (tuple, list)):
        return [(to_expr(width[0], x.program, what), to_expr(width[1], x.program, what))] * x.ndim
    if len(width) != x.ndim:
        raise ShapeError(f"{len(width)} pad widths for {x.ndim} axes", location=user_location())
    return [(to_expr(before, x.program, what), to_expr(after, x.program, what)) for before, after in width]


def repeat(x: TensorLike, repeats: int, axis: int) -> RecurrentTensor:
    """Every element `repeats` times in a row along an axis."""
    tensor = as_tensor(x)
    along = normalize_axis(axis, tensor.ndim)
    shape = tensor.type.shape
    (times,) = to_shape(tensor.program, to_int(repeats, "repeats"))
    wide = broadcast(expand_dims(tensor, along + 1), (*shape[: along + 1], times, *shape[along + 1 :]))
    return reshaped(wide, (*shape[:along], shape[along] * times, *shape[along + 1 :]))


def tile(x: TensorLike, reps: int | Sequence[int]) -> RecurrentTensor:
    """The whole tensor repeated along axes, the last ones where `reps` has fewer."""
    tensor = as_tensor(x)
    given = to_shape(tensor.program, [to_int(one, "reps") for one in several(reps)])
    rank = max(len(given), tensor.ndim)
    times = (const(1),) * (rank - len(given)) + given
    shape = (const(1),) * (rank - tensor.ndim) + tensor.type.shape
    apart = reshaped(tensor, tuple(size for one in shape for size in (const(1), one)))
    wide = broadcast(apart, tuple(size for time, one in zip(times, shape) for size in (time, one)))
    return reshaped(wide, tuple(one * time for time, one in zip(times, shape)))


def gather(
    x: RecurrentTensor,
    indices: RecurrentTensor,
    axis: int,
    batch: int = 0,
    within: tuple[Expr, Expr] | None = None,
    in_row: bool = False,
    row_of: RecurrentTensor | None = None,
) -> RecurrentTensor:
    """`x` read along `axis` at `indices`; the first `batch` axes of both go together.

    `within`: from where to where along a dim the user said they are, where `x` is a part of it. `in_row`: the axis
    shows a row that has a length of its own, and indices are known to lie in it. `row_of`: the tensor, for messages, in
    a row of which they are to lie, where `x` has the positions of that.
    """
    attrs: dict[str, Any] = {"axis": axis, "batch": batch, "checked": not in_row}
    if row_of is not None:
        attrs |= {"data": repr(row_of.name) if row_of.name else "", "row": True}
    if within is not None:
        attrs["within"] = within
    if in_row:
        attrs["in_row"] = True
    return apply("gather", x, integers(indices), attrs=attrs, weak=x.weak)


def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> RecurrentTensor:
    """Read along an axis at the values of `indices` (of the flattened tensor for None)."""
    tensor, index = as_tensor(x), as_tensor(indices)
    if axis is None:
        return gather(ravel(tensor), index, 0)
    return gather(tensor, index, normalize_axis(axis, tensor.ndim))


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int) -> RecurrentTensor:
    """Read along an axis at positions of their own for every place of the other axes, which broadcast."""
    tensor, index = as_tensor(x), as_tensor(indices)
    if tensor.ndim != index.ndim:
        raise ShapeError(f"take_along_axis of {tensor.ndim} and {index.ndim} axes", location=user_location())
    along = normalize_axis(axis, tensor.ndim)
    others = [place for place in range(tensor.ndim) if place != along]
    order = [*others, along]
    tensor, index = transposed(tensor, order), transposed(index, order)
    tensor, index = broadcast_together([tensor, index], "take_along_axis", but_last=1)
    result = gather(tensor, index, len(others), batch=len(others))
    return transposed(result, [order.index(place) for place in range(len(order))])


class TopK(NamedTuple):
    """What `top_k` found: `values` in descending order, and `indices`, int32, where they were."""

    values: RecurrentTensor
    indices: RecurrentTensor


def top_k(x: TensorLike, k: int, axis: int = -1) -> TopK:
    """The `k` greatest elements along an axis, greatest first, and their positions: (..., k) of (..., n), n >= k.

    Equal elements come in the order of their positions, and NaN is greater than all. Raises `ShapeError` where there
    are fewer than `k`.
    """
    tensor, count = as_tensor(x), to_int(k, "k")
    if count < 0:
        raise ShapeError(f"top_k of {count} elements", location=user_location())
    along = normalize_axis(axis, tensor.ndim)
    indices = apply("top_k_indices", tensor, attrs={"axis": along, "k": count})
    return TopK(take_along_axis(tensor, indices, along), indices)


def diagonal(x: TensorLike) -> RecurrentTensor:
    """The diagonal of the first two axes, which must be equal, as the first axis."""
    tensor = as_tensor(x)
    shape = tensor.type.shape
    if len(shape) < 2 or shape[0] != shape[1]:
        raise ShapeError("the diagonal of a tensor that is not square", location=user_location())
    index = reshaped(iota(shape[0]), (shape[0], *(const(1),) * (len(shape) - 1)))
    return take_along_axis(tensor, broadcast(index, (shape[0], const(1), *shape[2:])), 1).squeeze(1)
