"""Attention of many points at once, each on a band of the keys, that never holds the scores of all pairs.

What `attention` is to one point of a decode, this is to a prompt: point i sees the keys from i + low to i + high - 1,
of those that there are. Causal is high = 1, a window of w in addition low = 1 - w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tempo.sdg.call import Call
from tempo.sdg.composites.attention import axes, inferred, lift, scored
from tempo.sdg.composites.normalization import softmax, widened
from tempo.sdg.graph import Edge
from tempo.sdg.operators.axes import Attrs
from tempo.sdg.operators.gradients import Formula
from tempo.sdg.operators.operator import Function, Operator
from tempo.sdg.operators.special import HALF
from tempo.symbolic import Expr

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


def _cost(call: Call) -> float:
    per_key = 4 * call.operands[0].elements // max(call.operands[0].shape[-3], 1)
    return float(per_key * band_of(call).pairs)


def _decomposed(f: Formula) -> Edge:
    """Values that a point does not see are masked for that point: a weight of 0 does not hide NaN."""
    queries, keys, values, *rest = f.operands
    keys, values = f.transpose(keys, f.attrs["key_axes"]), f.transpose(values, f.attrs["value_axes"])
    rank = f.rank(queries)
    batch, last = tuple(range(rank - 3)), rank - 1
    scores = scored(f, f.dot(queries, keys, ((last,), (last - 1,)), (batch, batch)), rest)
    seen = _seen(f, f.shape(scores)[-3], f.shape(scores)[-1])
    points, count = f.shape(seen)
    scores = f.where(f.reshape(seen, (points, 1, count)), scores, -math.inf)
    weights = softmax(Formula({"axes": (last,)}, (scores,), f.maker))
    shape = f.shape(values)
    values = f.reshape(values, (*shape[:-2], 1, *shape[-2:]))
    values = f.where(f.reshape(seen, (points, count, 1)), values, 0)
    return f.dot(weights, values, ((last,), (last - 1,)), ((*batch, last - 2), (*batch, last - 2)))


def _seen(f: Formula, points: Expr, keys: Expr) -> Edge:
    """Which keys each point sees, (points, keys)."""
    at = [f.apply("iota", shape=(points, keys), axis=axis, dtype="int32") for axis in (0, 1)]
    low, high = (f.add(at[0], _number(f, f.attrs[name], at[0])) for name in ("low", "high"))
    return f.apply("logical_and", f.compare("ge", at[1], low), f.compare("lt", at[1], high))


def _number(f: Formula, value: Expr | int, like: Edge) -> Edge:
    if isinstance(value, Expr) and not value.is_const:
        return f.apply("index_value", expr=value)
    return f.number(value if isinstance(value, int) else value.as_int(), like)


# In NumPy: a block of points at once.

_SCORES = 1 << 20
"""How many scores are held at once, about."""


def points_at_once(call: Call, most: int = _SCORES) -> int:
    """How many points make a block of about `most` scores; no fewer than 16, since each block is some calls."""
    band = band_of(call)
    per_point = math.prod(call.result.shape[:-3]) * call.result.shape[-2] * band.widest
    return max(16, min(128, most // max(per_point, 1)))


def _numpy(call: Call) -> Function:
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
    cost=_cost,
    numpy=_numpy,
    inserts=lift,
    static_attrs=("low", "high"),
    gradient_note="lifting makes it, long after gradients are taken",
    decompose=widened(_decomposed),
)
