"""Reading along axes at the values of integer tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from tempo.errors import ShapeError, user_location
from tempo.language.conversion import TensorLike, as_tensor, integers
from tempo.language.functions.creation import iota
from tempo.language.functions.movement import ravel
from tempo.language.shapes import broadcast, broadcast_together, normalize_axis, reshaped, to_int, transposed
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import Expr, const


def gather(
    x: RecurrentTensor,
    indices: RecurrentTensor,
    axis: int,
    batch: int = 0,
    within: tuple[Expr, Expr] | None = None,
) -> RecurrentTensor:
    """`x` read along `axis` at `indices`; the first `batch` axes of both go together.

    `within`: from where to where along a dim the user said they are, where `x` is a part of it.
    """
    attrs: dict[str, Any] = {"axis": axis, "batch": batch, "checked": True}
    if within is not None:
        attrs["within"] = within
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
