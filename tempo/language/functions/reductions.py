"""Reductions, scans and sorts over axes of the shape; `tp.max` and `tp.min` of index expressions, too."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Sequence
from typing import Any

from tempo import dtypes
from tempo.errors import IndexExpressionError, ShapeError, user_location
from tempo.language.conversion import (
    Axes,
    Shape,
    TensorLike,
    as_tensor,
    cast,
    index_value,
    normalize_axes,
    normalize_axis,
    reshaped,
    scalar,
    show,
    to_bool,
)
from tempo.language.functions.elementwise import floating, multiply, sqrt, truth
from tempo.language.functions.movement import flip, ravel
from tempo.language.indexing import expression as index_expression
from tempo.language.indexing.expression import IndexExpression, is_integer
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import const


def _reduce(op: str, x: RecurrentTensor, axis: Axes, keepdims: bool, nonempty: bool = False) -> RecurrentTensor:
    """The reduction; `nonempty` marks a sum that is an error over an empty axis, as part of a mean is."""
    axes = normalize_axes(axis, x.ndim)
    attrs = {"axes": axes, "nonempty": "mean"} if nonempty else {"axes": axes}
    result = apply(op, x, attrs=attrs, weak=x.weak) if axes else x
    return _kept(result, x.type.shape, axes) if keepdims else result


def _kept(result: RecurrentTensor, shape: Shape, axes: Sequence[int]) -> RecurrentTensor:
    """With ones where axes were reduced."""
    return reshaped(result, tuple(const(1) if axis in axes else size for axis, size in enumerate(shape)))


def _summable(x: TensorLike) -> RecurrentTensor:
    """Sums of integers narrower than 32 bits are made in 32."""
    tensor = as_tensor(x)
    if tensor.dtype == "bool" or (dtypes.is_integer(tensor.dtype) and dtypes.itemsize(tensor.dtype) < 4):
        return cast(tensor, "uint32" if dtypes.kind(tensor.dtype) == "uint" else "int32")
    return tensor


def _not_empty(x: RecurrentTensor, axes: Sequence[int], what: str) -> None:
    for axis in axes:
        if x.type.shape[axis] == const(0):
            raise ShapeError(
                f"{what} over axis {axis} of shape {show(x.type.shape)}, which is empty", location=user_location()
            )


def sum(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The sum over axes (all for None); 0 over an empty axis. Bools and small integers are summed as 32 bits."""
    return _reduce("reduce_sum", _summable(x), axis, keepdims)


def prod(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The product over axes; 1 over an empty axis."""
    return _reduce("reduce_prod", _summable(x), axis, keepdims)


def count_nonzero(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """How many elements are not zero, int32."""
    return sum(truth(x), axis, keepdims)


def amax(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The maximum over axes; an error where an axis is empty."""
    return _extremum("reduce_max", "reduce_any", x, axis, keepdims)


def amin(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The minimum over axes; an error where an axis is empty."""
    return _extremum("reduce_min", "reduce_all", x, axis, keepdims)


def _extremum(op: str, of_bools: str, x: TensorLike, axis: Axes, keepdims: bool) -> RecurrentTensor:
    tensor = as_tensor(x)
    _not_empty(tensor, normalize_axes(axis, tensor.ndim), op.removeprefix("reduce_"))
    return _reduce(of_bools if tensor.dtype == "bool" else op, tensor, axis, keepdims)


def max(x: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`tp.max(t - 3, 0)` is the largest of index expressions; `tp.max(x, axis=0)` the maximum of a tensor.

    The type of the arguments decides. Elementwise, of two tensors: `tp.maximum(a, b)`.
    """
    if _are_expressions(x, others):
        return index_expression.maximum(x, *others)
    return amax(x, axis=axis, keepdims=keepdims) if not others else amax(x, _axis(others, "max"), keepdims)


def min(x: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`tp.min(t, 3)` is the smallest of index expressions; `tp.min(x, axis=0)` the minimum of a tensor.

    The type of the arguments decides. Elementwise, of two tensors: `tp.minimum(a, b)`.
    """
    if _are_expressions(x, others):
        return index_expression.minimum(x, *others)
    return amin(x, axis=axis, keepdims=keepdims) if not others else amin(x, _axis(others, "min"), keepdims)


def _are_expressions(x: Any, others: tuple[Any, ...]) -> bool:
    if isinstance(x, IndexExpression):
        return True
    return bool(others) and (is_integer(x) or builtins.any(isinstance(other, IndexExpression) for other in others))


def _axis(others: tuple[Any, ...], name: str) -> Any:
    (axis, *rest) = others
    if rest or not (axis is None or is_integer(axis) or isinstance(axis, (tuple, list))):
        raise IndexExpressionError(
            f"tp.{name} of tensors takes one tensor and an axis",
            location=user_location(),
            hint=f"of two tensors elementwise, write tp.{name}imum(a, b)",
        )
    return axis


def ptp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The maximum less the minimum."""
    return amax(x, axis, keepdims) - amin(x, axis, keepdims)


def any(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """Whether an element is not zero."""
    return _reduce("reduce_any", truth(x), axis, keepdims)


def all(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """Whether no element is zero."""
    return _reduce("reduce_all", truth(x), axis, keepdims)


def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """The sum divided by the number of elements; of integers and bools, float32. An error where an axis is empty."""
    (given,) = floating(x)
    tensor = _wide(given)
    axes = normalize_axes(axis, tensor.ndim)
    _not_empty(tensor, axes, "mean")
    total = _reduce("reduce_sum", tensor, axis, False, nonempty=_may_be_empty(tensor, axes))
    kept = _kept(total, tensor.type.shape, axes) if keepdims else total
    return cast(_per_element(total, kept, tensor, axes), given.dtype, given.weak)


def _per_element(
    total: RecurrentTensor, kept: RecurrentTensor, x: RecurrentTensor, axes: Sequence[int], less: int = 0
) -> RecurrentTensor:
    """A sum, divided by how many elements of `x` there are along the axes, less `less`."""
    quotient = kept / count(x, axes, less)
    if axes:
        x.program.builder.means[quotient.edge.node] = total.edge.node, less
    return quotient


def _wide(x: RecurrentTensor) -> RecurrentTensor:
    """Halves as float32: they hold neither large sums nor large counts."""
    return cast(x, "float32") if dtypes.itemsize(x.dtype) == 2 else x


def _may_be_empty(x: RecurrentTensor, axes: Sequence[int]) -> bool:
    context = x.program.builder.context
    if x.program.builder.lengths:  # rows may be empty
        return True
    return not builtins.all(context.implies(x.type.shape[axis].ge(1)) for axis in axes)


def count(x: RecurrentTensor, axes: Sequence[int], less: int = 0) -> RecurrentTensor:
    """The number of elements along the axes, less `less`, in the dtype of `x`."""
    sizes = [x.type.shape[axis] for axis in axes]
    known = math.prod(size.as_int() for size in sizes if size.is_const)
    factors = [cast(index_value(size), x.dtype, x.weak) for size in sizes if not size.is_const]
    if known != 1 or not factors:
        factors.append(scalar(float(known), x.dtype, x.weak))
    result = functools.reduce(multiply, factors)
    return result - less if less else result


def var(x: TensorLike, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> RecurrentTensor:
    """The mean squared distance from the mean; the divisor is the number of elements less `ddof`."""
    (given,) = floating(x)
    tensor = _wide(given)
    axes = normalize_axes(axis, tensor.ndim)
    distance = tensor - mean(tensor, axis, keepdims=True)
    total = _reduce("reduce_sum", distance * distance, axis, False, nonempty=_may_be_empty(tensor, axes))
    kept = _kept(total, tensor.type.shape, axes) if keepdims else total
    return cast(_per_element(total, kept, tensor, axes, ddof), given.dtype, given.weak)


def std(x: TensorLike, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> RecurrentTensor:
    """The square root of `var`."""
    return sqrt(var(x, axis, ddof, keepdims))


def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> RecurrentTensor:
    """The position of the first maximum, int32; in the flattened tensor for None."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> RecurrentTensor:
    """The position of the first minimum, int32; in the flattened tensor for None."""
    return _arg("argmin", x, axis, keepdims)


def _arg(op: str, x: TensorLike, axis: int | None, keepdims: bool) -> RecurrentTensor:
    tensor = as_tensor(x)
    shape = tensor.type.shape
    flat, along = _flat_along(tensor, axis)
    _not_empty(flat, (along,), op)
    result = apply(op, flat, attrs={"axis": along})
    reduced = range(len(shape)) if axis is None else (along,)
    return _kept(result, shape, reduced) if keepdims else result


def cumsum(x: TensorLike, axis: int | None = None) -> RecurrentTensor:
    """The sum of the elements up to each; of the flattened tensor for None."""
    tensor, along = _flat_along(_summable(x), axis)
    return apply("cumsum", tensor, attrs={"axis": along}, weak=tensor.weak)


def cumprod(x: TensorLike, axis: int | None = None) -> RecurrentTensor:
    """The product of the elements up to each; of the flattened tensor for None."""
    tensor, along = _flat_along(_summable(x), axis)
    return apply("cumprod", tensor, attrs={"axis": along}, weak=tensor.weak)


def sort(x: TensorLike, axis: int | None = -1, descending: bool = False, stable: bool = True) -> RecurrentTensor:
    """In ascending order, or in descending; NaN is greater than all. Equal elements (0.0, -0.0) keep their order.

    Of the flattened tensor for `axis=None`. Sorts are stable, whatever `stable` says.
    """
    tensor, along = _flat_along(as_tensor(x), axis)
    return _sorted("sort", tensor, along, descending, stable, tensor.weak)


def argsort(x: TensorLike, axis: int | None = -1, descending: bool = False, stable: bool = True) -> RecurrentTensor:
    """The positions that sort, as `sort` does, int32; equal elements keep their order, also where it is descending."""
    tensor, along = _flat_along(as_tensor(x), axis)
    order = _sorted("argsort", tensor, along, descending, stable, weak=False)
    return index_value(tensor.type.shape[along] - 1) - order if descending else order


def _sorted(op: str, x: RecurrentTensor, axis: int, descending: bool, stable: bool, weak: bool) -> RecurrentTensor:
    """Descending is ascending from behind, seen from behind: what is equal has its order again."""
    to_bool(stable, "stable")
    if not to_bool(descending, "descending"):
        return apply(op, x, attrs={"axis": axis}, weak=weak)
    return flip(apply(op, flip(x, axis), attrs={"axis": axis}, weak=weak), axis)


def _flat_along(x: RecurrentTensor, axis: int | None) -> tuple[RecurrentTensor, int]:
    """The flattened tensor and its axis for None."""
    return (ravel(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))


def logsumexp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> RecurrentTensor:
    """`log(sum(exp(x)))` without overflow."""
    return _normalized("logsumexp", x, axis, keepdims)


def softmax(x: TensorLike, axis: Axes = -1) -> RecurrentTensor:
    """`exp(x) / sum(exp(x))` along the axes, without overflow."""
    return _normalized("softmax", x, axis)


def log_softmax(x: TensorLike, axis: Axes = -1) -> RecurrentTensor:
    """`log(softmax(x))` without overflow."""
    return _normalized("log_softmax", x, axis)


def layer_norm(x: TensorLike, axis: Axes = -1, epsilon: float = 1e-5) -> RecurrentTensor:
    """Mean 0 and variance 1 along the axes: `(x - mean(x)) / sqrt(var(x) + epsilon)`.

    Source: Ba, Kiros and Hinton 2016, section 3.
    """
    return _normalized("layer_norm", x, axis, epsilon=epsilon)


def rms_norm(x: TensorLike, axis: Axes = -1, epsilon: float = 1e-6) -> RecurrentTensor:
    """Root mean square 1 along the axes: `x / sqrt(mean(x^2) + epsilon)`.

    Source: Zhang and Sennrich 2019, equation 4.
    """
    return _normalized("rms_norm", x, axis, epsilon=epsilon)


def _normalized(op: str, x: TensorLike, axis: Axes, keepdims: bool = False, **attrs: float) -> RecurrentTensor:
    """The operator on a tensor of floats, along axes that are not empty."""
    (tensor,) = floating(x)
    axes = normalize_axes(axis, tensor.ndim)
    _not_empty(tensor, axes, op)
    numbers = {name: float(value) for name, value in attrs.items()}
    result = apply(op, tensor, attrs={"axes": axes, **numbers}, weak=tensor.weak)
    return _kept(result, tensor.type.shape, axes) if keepdims else result
