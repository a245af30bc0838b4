"""Attention as operators: `softmax(scale * q k^T + bias) v`.

`attention` is that of one point of a decode, over the keys before a length known at run time. `banded_attention` is
what it is to a prompt: many points at once, each on a band of the keys, never with the scores of all pairs. Point i
sees the keys from i + low to i + high - 1, of those that there are: causal is high = 1, a window of w in addition
low = 1 - w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.composites.normalization import softmax, stepwise, widened
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import (
    HALF,
    Attrs,
    Factor,
    Factors,
    Fold,
    Role,
    Shape,
    broadcast_shapes,
    check_axes,
    check_kind,
    check_same_dtype,
    matching,
    only,
)
from tempo.sdg.operators.making import Formula
from tempo.sdg.operators.operator import Function, Lifted, Operator
from tempo.symbolic import Expr

# attention {key_axes, value_axes, scale, biased, masked, fill, length}
#   queries (batch..., rows, width); keys and values: `transpose(keys, key_axes)` is (batch..., keys, width), and values
#   likewise (batch..., keys, out), so that both are read as they lie in memory; where `biased` a bias, where `masked` a
#   mask: either has as many axes as the scores, (batch..., rows, keys), and is broadcast to them. The
#   result is (batch..., rows, out).
#   scores = scale * q k^T + bias, `fill` where the mask is False; keys at or after `length` do not count.
# Queries that share keys (grouped queries) are rows of one batch element.


def arranged(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(shape[axis] for axis in axes)


def inferred(name: str, attrs: Attrs, operands: tuple[TensorType, ...], more: int = 0) -> TensorType:
    """The result of attention whose queries have `more` axes, in front of their rows, than keys and values have."""
    if len(operands) != 3 + attrs["biased"] + attrs["masked"]:
        raise ShapeError(f"{name} takes queries, keys, values, bias and mask as its attributes say: {operands}")
    dtype = check_same_dtype(name, operands[: len(operands) - attrs["masked"]])
    check_kind(name, dtype, ("float",))
    queries = operands[0].shape
    rank = len(queries) - more
    for number, axes in ((1, "key_axes"), (2, "value_axes")):
        check_axes(name, attrs[axes], rank)
        if len(operands[number].shape) != rank or len(attrs[axes]) != rank:
            raise ShapeError(f"{name}: keys and values have as many axes as the queries{f', less {more}' * (more > 0)}")
    keys, values = (arranged(operands[at].shape, attrs[axes]) for at, axes in ((1, "key_axes"), (2, "value_axes")))
    if (*queries[: -2 - more], queries[-1]) != (*keys[:-2], keys[-1]) or values[:-1] != keys[:-1]:
        raise ShapeError(f"{name}: queries {queries}, keys {keys} and values {values} do not fit")
    scores = (*queries[:-1], keys[-2])
    for extra in operands[3:]:
        if len(extra.shape) != len(scores) or broadcast_shapes((scores, extra.shape), name) != scores:
            raise ShapeError(f"{name}: {extra.shape} is not broadcast to the scores, {scores}")
    if attrs["masked"]:
        check_kind(name, operands[-1].dtype, ("bool",))
    return TensorType((*queries[:-1], values[-1]), dtype)


def axes(attrs: Attrs, operands: Sequence[Shape], result: Shape, more: int = 0) -> Factors:
    """Which keys count it is told, or it knows by their positions: along those `more` axes, which are a band, too."""
    count, last = len(operands), len(result) - 1
    keys, values, extras = attrs["key_axes"], attrs["value_axes"], operands[3:]
    scores = (*operands[0][:-1], operands[1][keys[-2]])
    shown = [tuple(matching(extra, scores)) for extra in extras]

    def along(place: int) -> list[int | None]:
        return [of[place] for of in shown]

    batch, band = range(last - 1 - more), range(last - 1 - more, last - 1)
    none: list[int | None] = [None] * len(extras)
    of_keys = Role.OPAQUE if more else Role.REDUCING
    return (
        *(Factor(Role.PARALLEL, (at, keys[at], values[at], *along(at)), at) for at in batch),
        *(Factor(Role.OPAQUE, (at, None, None, *along(at)), at) for at in band),
        Factor(Role.PARALLEL, (last - 1, None, None, *along(last - 1)), last - 1),
        Factor(Role.OPAQUE, (last, keys[-1], None, *none)),
        Factor(of_keys, (None, keys[-2], values[-2], *along(last)), ordered=True),
        Factor(Role.PARALLEL, only(2, values[-1], count), last),
    )


def lift(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    """One more axis of the batch, along which bias and mask may repeat."""
    changed = {**attrs, **{name: (0, *(axis + 1 for axis in attrs[name])) for name in ("key_axes", "value_axes")}}
    return Lifted(changed, broadcast=True, repeats=tuple(range(3, len(lifted))))


def _cost(call: Call) -> float:
    queries, keys = call.operands[0].elements, call.operands[1].shape[call.attrs["key_axes"][-2]]
    return float(4 * queries * keys)


@widened
def _decomposed(f: Formula) -> Edge:
    queries, keys, values, *rest = f.operands
    keys, values = f.transpose(keys, f.attrs["key_axes"]), f.transpose(values, f.attrs["value_axes"])
    last = f.rank(queries) - 1
    batch = range(last - 1), range(last - 1)
    scores, length = f.dot(queries, keys, ((last,), (last,)), batch), f.attrs["length"]
    scores = scores if f.attrs["scale"] == 1 else f.mul(scores, f.attrs["scale"])
    scores = f.add(scores, rest[0]) if f.attrs["biased"] else scores
    scores = f.where(rest[-1], scores, f.attrs["fill"]) if f.attrs["masked"] else scores
    scores = f.apply("mask", scores, axis=last, fill=-math.inf, length=length)
    weights = softmax(Formula({"axes": (last,)}, (scores,), f.maker))
    values = f.apply("mask", values, axis=last - 1, fill=0, length=length)
    return f.dot(weights, values, ((last,), (last - 1,)), batch)


ATTENTION = Operator(
    name="attention",
    kind="composite",
    infer=partial(inferred, "attention"),
    axes=axes,
    fold=Fold(None),
    cost=_cost,
    inserts=lift,
    scalar_attrs=("length",),
    gradient_note="the pass `compose` makes it, long after gradients are taken",
    numpy=stepwise(_decomposed),
    decompose=_decomposed,
)


# banded_attention {key_axes, value_axes, scale, biased, masked, fill, low, high}
#   queries (batch..., points, rows, width); keys, values, bias and mask as of `attention`, but that the scores are
#   (batch..., points, rows, keys). The result is (batch..., points, rows, out).
#   scores = scale * q k^T + bias, `fill` where the mask is False; of point i, the keys p with i + low <= p < i + high
#   count, and no others. Every point has such a key. `low` at or below 1 - points is no limit, nor `high` from keys on.


@dataclass(frozen=True)
class PointBlock:
    """The points `first, ..., last - 1`, and the keys `start, ..., stop - 1` that some of them see."""

    first: int
    last: int
    start: int
    stop: int


@dataclass(frozen=True)
class Band:
    """Which of `keys` keys every one of `points` points sees: point i those from i + low to i + high - 1."""

    points: int
    keys: int
    low: int
    high: int

    def block(self, first: int, last: int) -> PointBlock:
        start = min(max(first + self.low, 0), self.keys)
        return PointBlock(first, last, start, max(min(last - 1 + self.high, self.keys), start))

    def blocks(self, size: int) -> Iterator[PointBlock]:
        """All points, so many at once."""
        return (self.block(first, min(first + size, self.points)) for first in range(0, self.points, size))

    def all_see_all(self, block: PointBlock) -> bool:
        return block.last - 1 + self.low <= block.start and block.first + self.high >= block.stop

    def mask(self, block: PointBlock) -> np.ndarray[Any, Any] | None:
        """Which keys of a block each of its points sees, (points, keys); None where all see all."""
        if self.all_see_all(block):
            return None
        points, keys = np.arange(block.first, block.last)[:, None], np.arange(block.start, block.stop)
        return (keys >= points + self.low) & (keys < points + self.high)

    @property
    def widest(self) -> int:
        """The most keys that one point sees."""
        return max(0, min(self.keys, self.high - self.low))

    @property
    def pairs(self) -> int:
        """How many keys all points see, one by one."""
        points = np.arange(self.points)
        return int((np.minimum(points + self.high, self.keys) - np.maximum(points + self.low, 0)).clip(0).sum())

    @property
    def is_causal(self) -> bool:
        """Whether point i sees all keys up to its own, and there are no others."""
        return self.points == self.keys and self.high == 1 and self.low <= 1 - self.points


def band_of(call: Call) -> Band:
    keys = call.operands[1].shape[call.attrs["key_axes"][-2]]
    return Band(call.operands[0].shape[-3], keys, call.attrs["low"], call.attrs["high"])


def _banded_cost(call: Call) -> float:
    per_key = 4 * call.operands[0].elements // max(call.operands[0].shape[-3], 1)
    return float(per_key * band_of(call).pairs)


# In NumPy: a block of points at once.

MOST_SCORES = 1 << 20
"""How many scores are held at once, about."""


def points_at_once(call: Call, in_parts: bool = False, most: int = 128) -> int:
    """How many points make a block of about `MOST_SCORES` scores, `most` of them; no fewer than 16, since each block is
    some calls. `in_parts`: a block need not be of all of the axes in front."""
    in_front = 1 if in_parts else math.prod(call.result.shape[:-3])
    per_point = in_front * call.result.shape[-2] * band_of(call).widest
    return max(16, min(most, MOST_SCORES // max(per_point, 1)))


def _banded_numpy(call: Call) -> Function:
    attrs, dtype = call.attrs, call.result.numpy_dtype
    wide = np.dtype(np.float32) if call.result.dtype in HALF else dtype
    band, size = band_of(call), points_at_once(call)

    def banded_attention(q: Any, k: Any, v: Any, *extras: Any) -> Any:
        q, k, v = (each.astype(wide, copy=False) for each in (q, k, v))
        k, v = np.transpose(k, attrs["key_axes"]), np.transpose(v, attrs["value_axes"])
        out = np.empty(call.result.shape, dtype)
        # A weight of 0 does not hide what is not finite: then one point at a time, of what it sees.
        for block in band.blocks(size if np.isfinite(v).all() else 1):
            points, keys = slice(block.first, block.last), slice(block.start, block.stop)
            given = [_part(extra, points, keys) for extra in extras]
            mask = band.mask(block)
            out[..., points, :, :] = _attend(attrs, q[..., points, :, :], k[..., keys, :], v[..., keys, :], given, mask)
        return out

    return banded_attention


def _part(extra: Any, points: slice, keys: slice) -> Any:
    """What belongs to a block; axes of size 1 repeat."""
    extra = extra if extra.shape[-1] == 1 else extra[..., keys]
    return extra if extra.shape[-3] == 1 else extra[..., points, :, :]


def _attend(attrs: Attrs, q: Any, k: Any, v: Any, extras: list[Any], mask: Any) -> Any:
    *batch, points, rows, width = q.shape
    keys = k.shape[-2]
    scores = np.matmul(q.reshape(*batch, points * rows, width), np.swapaxes(k, -1, -2))
    scores = scores.reshape(*batch, points, rows, keys)
    if attrs["scale"] != 1:
        scores *= attrs["scale"]
    if attrs["biased"]:
        scores += extras[0]
    if attrs["masked"]:
        np.copyto(scores, attrs["fill"], where=~extras[-1])
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask[:, None, :])
    with np.errstate(invalid="ignore", over="ignore"):  # as of the steps: what is infinite or NaN makes NaN
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores, out=scores)
        total = weights.sum(axis=-1, keepdims=True)
        made = np.matmul(weights.reshape(*batch, points * rows, keys), v)
        return made.reshape(*batch, points, rows, -1) / total


BANDED_ATTENTION = Operator(
    name="banded_attention",
    kind="composite",
    infer=partial(inferred, "banded_attention", more=1),
    axes=partial(axes, more=1),
    cost=_banded_cost,
    numpy=_banded_numpy,
    inserts=lift,
    static_attrs=("low", "high"),
    gradient_note="lifting makes it, long after gradients are taken",
)
