"""What is made small in training."""

from __future__ import annotations

import numpy as np

from tempo import dtypes
from tempo.errors import ShapeError, user_location
from tempo.language.conversion import TensorLike, as_tensor, integers, promoted
from tempo.language.functions.arithmetic import equal, where
from tempo.language.functions.lookup import take_along_axis
from tempo.language.functions.movement import expand_dims, squeeze
from tempo.language.functions.reductions import log_softmax
from tempo.language.shapes import broadcast, normalize_axis, show, to_int
from tempo.language.tensor import RecurrentTensor


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
