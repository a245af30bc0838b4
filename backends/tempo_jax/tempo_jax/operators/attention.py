"""Attention of many points at once, in blocks: of points, and of the axes in front where these hold too much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.backends.operators import MOST_SCORES, Band, Builder, Call, PointBlock, band_of, points_at_once
from tempo_jax.operators.values import HALF, Function, Scalar, Value, const, converted, full, index
from tempo_jax.precision import HIGHEST

_PIECES = 4
"""Into how many pieces points are cut at most, each with keys of its own, whose number is known when it is traced."""
_LONG = 512
"""How many points a block has at most. XLA's library brings all keys into its own layout in each product: the products
with 1,024 keys of 64 take 1.65 ms for 8 matrices of 128 points, 1.27 for 2 of 512."""
_FEW = 1 << 16
"""How many elements the values may have, repeated for every point."""


def _banded(call: Call) -> Function:
    shape, dtype = call.result.shape, call.result.dtype
    if not call.result.elements:
        return lambda *given: full(shape, 0, dtype)
    band = band_of(call)
    attention = _BlockedAttention(call, band, points_at_once(call, in_parts=True, most=_longest(band)))
    return lambda *given: converted(attention(*given), dtype)


def _longest(band: Band) -> int:
    """Each point of a block is multiplied with all keys that any of them sees: of a window a quarter more, at most."""
    return _LONG if band.widest == band.keys else max(128, min(_LONG, band.widest // 4))


@dataclass(frozen=True)
class _BlockedAttention:
    """`size` points at once. XLA makes one pass over the scores of a block, which stay in the caches. `apart`: each
    point has values of its own, 0 where it does not see them: a weight of 0 does not hide what is not finite. Halves
    are multiplied as halves, and all else is float32."""

    call: Call
    band: Band
    size: int
    apart: bool = False

    def __call__(self, q: Value, k: Value, v: Value, *extras: Value) -> Value:
        if self.band.points * v.size <= _FEW and self.band.points <= self.size:
            given = self.turned(q, k, v, extras)
            return replace(self, apart=True).attend(0, self.band.points, 0, self.band.keys, given)
        one_by_one, back = replace(self, size=1, apart=True), np.argsort(self.as_keys_lie)

        def blocks(attention: _BlockedAttention) -> Function:
            return lambda q, k, v, *extras: attention.in_parts(*self.turned(lax.transpose(q, back), k, v, extras))

        # What a branch is given has been made: what makes queries and what turns them would be one pass, without SIMD.
        lying = lax.transpose(q, self.as_keys_lie)
        return lax.cond(jnp.isfinite(v).all(), blocks(self), blocks(one_by_one), lying, k, v, *extras)

    @property
    def as_keys_lie(self) -> tuple[int, ...]:
        """The axes of queries in the order of those of keys, which come as they were made."""
        axes = self.call.attrs["key_axes"]
        return (*(axes.index(axis) for axis in range(len(axes)) if axis != axes[-1]), len(axes) - 1, len(axes))

    def turned(self, q: Value, k: Value, v: Value, extras: tuple[Value, ...]) -> tuple[Value, ...]:
        k, v = (lax.transpose(x, self.call.attrs[name]) for x, name in ((k, "key_axes"), (v, "value_axes")))
        return (q, k, v, *extras)

    def in_blocks(self, *given: Value) -> Value:
        q, v = given[0], given[2]
        out = self.nothing(q, v)
        for ends in pairwise(self.ends()):
            out = self.piece(self.band.block(*ends), given, out)
        return out

    def in_parts(self, *given: Value, axis: int = 0) -> Value:
        """A loop over parts of an axis in front, of as many elements as hold half of what a block may: XLA holds the
        scores of pieces of one block, which are no loops, at once."""
        q, v = given[0], given[2]
        if axis == q.ndim - 3:
            return self.in_blocks(*given)
        one = math.prod(q.shape[axis + 1 : -3]) * q.shape[-2] * min(self.size, self.band.points) * self.band.widest
        extent, most = q.shape[axis], max(1, MOST_SCORES // 2 // max(one, 1))
        if most >= extent:
            return self.in_parts(*given, axis=axis + 1)
        parts = -(-extent // most)
        count = -(-extent // parts)  # as even as they can be: the last begins where it ends with the axis

        def step(number: Value, out: Value) -> Value:
            first = jnp.minimum(number * count, extent - count)
            made = self.in_parts(*(_part(each, axis - each.ndim, first, count) for each in given), axis=axis + 1)
            return lax.dynamic_update_slice_in_dim(out, made, first, axis)

        return lax.fori_loop(0, parts, step, self.nothing(q, v))

    @staticmethod
    def nothing(q: Value, v: Value) -> Value:
        """Where the result is written to."""
        return jnp.zeros((*q.shape[:-1], v.shape[-1]), np.float32 if v.dtype.name in HALF else v.dtype)

    def ends(self) -> list[int]:
        """Where pieces begin and end. Where a point sees few keys, so do those of a block: one piece is enough."""
        blocks = -(-self.band.points // self.size)
        is_narrow = 2 * (self.band.widest + self.size) <= self.band.keys
        pieces = 1 if is_narrow or self.apart else min(blocks, _PIECES)
        step = -(-blocks // pieces) * self.size
        return [*range(0, self.band.points, step), self.band.points]

    def piece(self, block: PointBlock, given: tuple[Value, ...], out: Value) -> Value:
        """`out` with its points. A loop over its blocks; the last begins where it ends with the piece, so that all are
        as long."""
        points = block.last - block.first
        if points <= self.size:
            made = self.attend(block.first, points, block.start, block.stop - block.start, given)
            return lax.dynamic_update_slice_in_dim(out, made, block.first, out.ndim - 3)
        width = min(block.stop - block.start, self.size - 1 + self.band.high - self.band.low)

        def step(number: Value, out: Value) -> Value:
            first = jnp.minimum(number * self.size, points - self.size) + block.first
            start = jnp.clip(first + self.band.low, block.start, block.stop - width)
            made = self.attend(first, self.size, start, width, given)
            return lax.dynamic_update_slice_in_dim(out, made, first, out.ndim - 3)

        return lax.fori_loop(0, -(-points // self.size), step, out)

    def attend(self, first: Scalar, points: int, start: Scalar, keys: int, given: tuple[Value, ...]) -> Value:
        """Of `points` points from `first` on, to `keys` keys from `start` on."""
        q, k, v, *extras = given
        q = _part(q, -3, first, points)
        k, v = (_part(x, -2, start, keys) for x in (k, v))
        extras = [_part(_part(extra, -3, first, points), -1, start, keys) for extra in extras]
        scores = self.scores(q, k, extras)
        is_known = isinstance(first, int) and isinstance(start, int)
        if not is_known or not self.band.all_see_all(PointBlock(first, first + points, start, start + keys)):
            seen = self.seen(_positions(first, points, 0), _positions(start, keys, 1))
            scores = jnp.where(seen[:, None, :], scores, const(-np.inf, scores.dtype.name))
            v = jnp.where(seen[:, :, None], v[..., None, :, :], const(0, v.dtype.name)) if self.apart else v
        weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
        return _product(converted(weights, v.dtype.name), v, v.ndim - 2) / weights.sum(axis=-1, keepdims=True)

    def seen(self, points: Value, keys: Value) -> Value:
        return (keys >= points + np.int32(self.band.low)) & (keys < points + np.int32(self.band.high))

    def scores(self, q: Value, k: Value, extras: list[Value]) -> Value:
        """(batch..., points, rows, keys)"""
        attrs, extras = self.call.attrs, list(extras)
        scores = _product(q, k, k.ndim - 1)
        if attrs["scale"] != 1:
            scores = scores * const(attrs["scale"], scores.dtype.name)
        if attrs["biased"]:
            scores = scores + converted(extras[0], scores.dtype.name)
        if attrs["masked"]:
            scores = jnp.where(extras[-1], scores, const(attrs["fill"], scores.dtype.name))
        return scores


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
    """(batch..., points, rows, c) with (batch..., keys, width), over the last axis and `contracted`; as matrices with
    (batch..., points, keys, width). Of halves it is float32."""
    wide = np.dtype(np.float32) if x.dtype.name in HALF else x.dtype
    if x.ndim == y.ndim:
        return jnp.matmul(x, y, precision=HIGHEST, preferred_element_type=wide)
    *batch, points, rows, last = x.shape
    axes = tuple(range(len(batch)))
    x = lax.reshape(x, (*batch, points * rows, last))
    made = lax.dot_general(
        x, y, (((x.ndim - 1,), (contracted,)), (axes, axes)), precision=HIGHEST, preferred_element_type=wide
    )
    return lax.reshape(made, (*batch, points, rows, made.shape[-1]))


ATTENTION: Mapping[str, Builder] = {"banded_attention": _banded}
"""Named in the descriptor's `composites`."""
