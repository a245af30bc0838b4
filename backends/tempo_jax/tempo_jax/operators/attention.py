"""Attention of many points at once, in blocks of points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.sdg.call import Call
from tempo.sdg.operators import Builder
from tempo.sdg.operators.banded import Band, Block, band_of, points_at_once
from tempo_jax.operators.values import Function, Scalar, Value, const, full, in_float32, index
from tempo_jax.precision import HIGHEST

_PIECES = 8
"""Into how many pieces points are cut, each with the keys of its own, whose number must be known when it is traced."""


def _banded(call: Call) -> Function:
    if not call.result.elements:
        return lambda *given: full(call.result.shape, 0, call.result.dtype)
    attention = _Banded(call, band_of(call), points_at_once(call))
    if not call.attrs["masked"]:
        return in_float32(attention, call.result.dtype)
    return lambda *given: in_float32(lambda *rest: attention(*rest, given[-1]), call.result.dtype)(*given[:-1])


@dataclass(frozen=True)
class _Banded:
    """`size` points at once. XLA makes one pass over the scores of a block, which stay in the caches."""

    call: Call
    band: Band
    size: int

    def __call__(self, q: Value, k: Value, v: Value, *extras: Value) -> Value:
        """A weight of 0 does not hide what is not finite: where values are not, each point has its own."""
        k, v = (lax.transpose(x, self.call.attrs[name]) for x, name in ((k, "key_axes"), (v, "value_axes")))
        given = (q, k, v, *extras)
        return lax.cond(jnp.isfinite(v).all(), self.in_blocks, self.point_by_point, *given)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def in_blocks(self, *given: Value) -> Value:
        pieces = [self.piece(self.band.block(*ends), given) for ends in pairwise(self.ends())]
        return pieces[0] if len(pieces) == 1 else lax.concatenate(pieces, pieces[0].ndim - 3)

    def ends(self) -> list[int]:
        """Where pieces begin and end. Where a point sees few keys, so do those of a block: one loop is enough."""
        blocks = -(-self.band.points // self.size)
        narrow = 2 * (self.band.widest + self.size) <= self.band.keys
        pieces = 1 if blocks > _PIECES and narrow else min(blocks, _PIECES)
        step = -(-blocks // pieces) * self.size
        return [*range(0, self.band.points, step), self.band.points]

    def piece(self, block: Block, given: tuple[Value, ...]) -> Value:
        """A loop over its blocks; the last begins where it ends with the piece, so that all are as long."""
        points = block.last - block.first
        if points <= self.size:
            return self.attend(block.first, points, block.start, block.stop - block.start, given)
        width = min(block.stop - block.start, self.size - 1 + self.band.high - self.band.low)
        q, v = given[0], given[2]
        out = jnp.zeros((*q.shape[:-3], points, q.shape[-2], v.shape[-1]), q.dtype)

        def step(number: Value, out: Value) -> Value:
            first = jnp.minimum(number * self.size, points - self.size) + block.first
            start = jnp.clip(first + self.band.low, block.start, block.stop - width)
            made = self.attend(first, self.size, start, width, given)
            return lax.dynamic_update_slice_in_dim(out, made, first - block.first, out.ndim - 3)

        return lax.fori_loop(0, -(-points // self.size), step, out)

    def attend(self, first: Scalar, points: int, start: Scalar, keys: int, given: tuple[Value, ...]) -> Value:
        """Of `points` points from `first` on, to `keys` keys from `start` on."""
        q, k, v, *extras = given
        q = _part(q, -3, first, points)
        k, v = (_part(x, -2, start, keys) for x in (k, v))
        extras = [_part(_part(extra, -3, first, points), -1, start, keys) for extra in extras]
        scores = self.scores(q, k, extras)
        is_known = isinstance(first, int) and isinstance(start, int)
        if is_known and self.band.all_see_all(Block(first, first + points, start, start + keys)):
            return self.averaged(scores, v)
        seen = self.seen(_positions(first, points, 0), _positions(start, keys, 1))
        return self.averaged(jnp.where(seen[:, None, :], scores, const(-np.inf, scores.dtype.name)), v)

    def seen(self, points: Value, keys: Value) -> Value:
        return (keys >= points + np.int32(self.band.low)) & (keys < points + np.int32(self.band.high))

    def scores(self, q: Value, k: Value, extras: list[Value]) -> Value:
        """(batch..., points, rows, keys)"""
        attrs, extras = self.call.attrs, list(extras)
        scores = _product(q, k, k.ndim - 1)
        if attrs["scale"] != 1:
            scores = scores * const(attrs["scale"], scores.dtype.name)
        if attrs["biased"]:
            scores = scores + extras[0]
        if attrs["masked"]:
            scores = jnp.where(extras[-1], scores, const(attrs["fill"], scores.dtype.name))
        return scores

    @staticmethod
    def averaged(scores: Value, v: Value) -> Value:
        """The values, weighted by the softmax of the scores."""
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        return _product(weights, v, v.ndim - 2) / weights.sum(axis=-1, keepdims=True)

    # -- points ------------------------------------------------------------------------------------------------------

    def point_by_point(self, *given: Value) -> Value:
        q, k, v, *extras = given

        def step(point: Value, out: Value) -> Value:
            here = [_part(extra, -3, point, 1) for extra in extras]
            seen = self.seen(point, lax.iota(np.int32, self.band.keys))
            scores = self.scores(_part(q, -3, point, 1), k, here)
            scores = jnp.where(seen, scores, const(-np.inf, scores.dtype.name))
            values = jnp.where(seen[:, None], v, const(0, v.dtype.name))
            return lax.dynamic_update_slice_in_dim(out, self.averaged(scores, values), point, out.ndim - 3)

        out = jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
        return lax.fori_loop(0, self.band.points, step, out)


def _positions(start: Scalar, count: int, axis: int) -> Value:
    return lax.broadcasted_iota(np.int32, (count, 1) if axis == 0 else (1, count), axis) + index(start)


def _part(x: Value, axis: int, start: Scalar, count: int) -> Value:
    """`count` positions of an axis; one of size 1 repeats."""
    if x.shape[axis] in (1, count):
        return x
    if isinstance(start, int):
        return lax.slice_in_dim(x, start, start + count, axis=x.ndim + axis)
    return lax.dynamic_slice_in_dim(x, start, count, axis=x.ndim + axis)


def _product(x: Value, y: Value, contracted: int) -> Value:
    """(batch..., points, rows, c) with (batch..., keys, width), over the last axis and `contracted`."""
    *batch, points, rows, last = x.shape
    axes = tuple(range(len(batch)))
    x = lax.reshape(x, (*batch, points * rows, last))
    made = lax.dot_general(x, y, (((x.ndim - 1,), (contracted,)), (axes, axes)), precision=HIGHEST)
    return lax.reshape(made, (*batch, points, rows, made.shape[-1]))


ATTENTION: Mapping[str, Builder] = {"banded_attention": _banded}
"""Named in the descriptor's `composites`."""
