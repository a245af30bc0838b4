"""What neural networks are made of: activation functions, and what is made small in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import ProgramError, ShapeError, user_location
from tempo.language.conversion import (
    TensorLike,
    as_tensor,
    broadcast,
    integers,
    normalize_axis,
    promoted,
    show,
    to_int,
)
from tempo.language.functions.elementwise import (
    absolute,
    equal,
    erf,
    exp,
    expm1,
    floating,
    log1p,
    maximum,
    minimum,
    sigmoid,
    tanh,
    where,
)
from tempo.language.functions.movement import expand_dims, squeeze, take_along_axis
from tempo.language.functions.reductions import log_softmax
from tempo.language.indexing.expression import show as show_value
from tempo.language.tensor import RecurrentTensor

_BY_TANH: dict[Any, bool] = {"none": False, "tanh": True, False: False, True: True}


def _float(x: TensorLike) -> RecurrentTensor:
    return floating(x)[0]


def relu(x: TensorLike) -> RecurrentTensor:
    """`max(x, 0)`."""
    return maximum(x, 0)


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> RecurrentTensor:
    """`x` where positive, else `negative_slope * x`."""
    tensor = _float(x)
    return where(tensor > 0, tensor, tensor * negative_slope)


def elu(x: TensorLike, alpha: float = 1.0) -> RecurrentTensor:
    """`x` where positive, else `alpha * (exp(x) - 1)`."""
    tensor = _float(x)
    return where(tensor > 0, tensor, alpha * expm1(minimum(tensor, 0)))


def log_sigmoid(x: TensorLike) -> RecurrentTensor:
    """`log(sigmoid(x))` without overflow."""
    return -softplus(-_float(x))


def softplus(x: TensorLike) -> RecurrentTensor:
    """`log(1 + exp(x))` without overflow."""
    tensor = _float(x)
    return maximum(tensor, 0) + log1p(exp(-absolute(tensor)))


def silu(x: TensorLike) -> RecurrentTensor:
    """`x * sigmoid(x)`, also known as swish."""
    tensor = _float(x)
    return tensor * sigmoid(tensor)


def gelu(x: TensorLike, approximate: str | bool = "none") -> RecurrentTensor:
    """`x` times the standard normal's distribution function: exact, by `erf`, or with "tanh" (True) by its fit.

    `approximate` is "none" or "tanh", as PyTorch's, or a bool, as JAX's. Source: Hendrycks and Gimpel 2016, section 2.
    """
    tensor = _float(x)
    if not isinstance(approximate, str | bool | np.bool_) or approximate not in _BY_TANH:  # type: ignore[redundant-expr]
        raise ProgramError(
            f"approximate is {show_value(approximate)}, which names no way to compute gelu",
            location=user_location(),
            hint='write "none" (exact, the default) or "tanh"; False and True mean the same',
        )
    if _BY_TANH[approximate]:
        inside = 0.7978845608028654 * (tensor + 0.044715 * (tensor * tensor * tensor))
        return (1 + tanh(inside)) * 0.5 * tensor  # in this order all of it can be made in one array
    return (1 + erf(tensor * 0.7071067811865476)) * 0.5 * tensor


def cross_entropy(
    logits: TensorLike, labels: TensorLike, axis: int = -1, ignore_index: int | None = None
) -> RecurrentTensor:
    """`-log(softmax(logits))` at the class that each label names, without overflow.

    `logits` has the classes along `axis`; `labels`, integers, has its shape without that axis, and so has the result,
    one loss per label (PyTorch's with `reduction="none"`: take `.mean()` yourself). A label outside the classes is an
    `IndexOutOfRangeError` in a run with checks, and is clamped without. One that is `ignore_index` names no class: its
    loss is 0, and so is the gradient of its logits, whatever they are.

    >>> import tempo as tp
    >>> with tp.Program("classify"):
    ...     t = tp.dim("t")
    ...     logits, labels = tp.input("logits", (8, 10), (t,)), tp.input("labels", (8,), (t,), dtype=tp.int32)
    ...     loss = tp.cross_entropy(logits, labels, ignore_index=-100)
    >>> loss
    RecurrentTensor(where, domain=(t,), shape=(8,), dtype=float32)
    """
    (scores,) = promoted(logits, to_float=True)
    classes = integers(as_tensor(labels))
    along = normalize_axis(axis, scores.ndim)
    shape = scores.type.shape
    wanted = (*shape[:along], *shape[along + 1 :])
    if classes.type.shape != wanted:
        raise ShapeError(
            f"cross_entropy of logits of shape {show(shape)} and labels of shape {show(classes.type.shape)}",
            location=user_location(),
            hint=f"with the classes along axis {along}, labels have the shape {show(wanted)}: one number each",
        )
    if ignore_index is None or not _may_be(classes, to_int(ignore_index, "ignore_index")):
        return _at_labels(scores, classes, along)
    ignored = equal(classes, to_int(ignore_index, "ignore_index"))
    known = where(broadcast(expand_dims(ignored, along), shape), 0, scores)
    return where(ignored, 0, _at_labels(known, where(ignored, 0, classes), along))


def _may_be(labels: RecurrentTensor, value: int) -> bool:
    """Whether the labels' dtype holds the value."""
    limits = np.iinfo(dtypes.to_numpy(labels.dtype))
    return bool(limits.min <= value <= limits.max)


def _at_labels(scores: RecurrentTensor, labels: RecurrentTensor, axis: int) -> RecurrentTensor:
    found = take_along_axis(log_softmax(scores, axis), expand_dims(labels, axis), axis)
    return -squeeze(found, axis)
