"""Operators that add, drop or overwrite positions along axes: pad, slice, mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.backends.operators import Builder, Call
from tempo_jax.operators.indexing import take
from tempo_jax.operators.values import Function, Scalar, Value, const, full, position, positions


def _pad(call: Call) -> Function:
    value = const(call.attrs.get("value", 0), call.result.dtype)
    widths = [(low, high, 0) for low, high in zip(call.attrs["low"], call.attrs["high"])]
    return lambda x: lax.pad(x, value, widths)


def _mask(call: Call) -> Function:
    """Positions at or after the length along the axis become `fill`."""
    shape, axis = call.result.shape, call.attrs["axis"]
    fill = const(call.attrs["fill"], call.result.dtype)

    def mask(x: Value, length: Scalar) -> Value:
        inside = lax.broadcasted_iota(np.int32, shape, axis) < position(length)
        return jnp.where(inside, x, fill)

    return mask


@dataclass(frozen=True)
class _Along:
    """One axis of a slice. `start` is None where it is known at run time only."""

    axis: int
    size: int
    length: int
    step: int
    start: int | None

    @property
    def whole(self) -> bool:
        return (self.start, self.length, self.step) == (0, self.size, 1)

    @property
    def inside(self) -> bool:
        """Known to read no position outside the axis."""
        if self.start is None:
            return False
        return 0 <= self.start < self.size and 0 <= self.start + (self.length - 1) * self.step < self.size


def _slice(call: Call) -> Function:
    sizes, lengths, steps = call.operands[0].shape, call.result.shape, call.attrs["steps"]
    if 0 in lengths:
        shape, dtype = call.result.shape, call.result.dtype
        return lambda x, *starts: full(shape, 0, dtype)

    def slice(x: Value, *starts: Scalar) -> Value:
        """A start that is a number where this is traced, as of sizes that are fixed, costs nothing at run time."""
        known = [int(start) if isinstance(start, int | np.integer) else None for start in starts]
        axes = [_Along(*of_axis) for of_axis in zip(range(len(sizes)), sizes, lengths, steps, known, strict=True)]
        fixed = [along for along in axes if along.inside and not along.whole]
        cut = _fixed(x, fixed) if fixed else x
        for along in axes:
            if not along.inside:
                cut = _moving(cut, along, position(starts[along.axis]))
        return cut

    return slice


def _fixed(x: Value, axes: list[_Along]) -> Value:
    """One strided slice; what is read backwards is read forwards and reversed."""
    low, high, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for along in axes:
        ends = (along.start or 0, (along.start or 0) + (along.length - 1) * along.step)
        low[along.axis], high[along.axis], strides[along.axis] = min(ends), max(ends) + 1, abs(along.step)
    cut = lax.slice(x, low, high, strides)
    backwards = tuple(along.axis for along in axes if along.step < 0)
    return lax.rev(cut, backwards) if backwards else cut


def _moving(x: Value, along: _Along, start: Value) -> Value:
    """Positions outside the axis are clamped one by one; XLA's dynamic slice moves the whole window instead.

    So the window is read where it fits, contiguously, and then its positions are clamped: a small gather, seven times
    as fast on a CPU as one from the whole operand. An axis without positions is read in branches that are traced but
    never taken.
    """
    if along.size == 0:
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, along.length * (at == along.axis), 0) for at in range(x.ndim)])
    span = (along.length - 1) * abs(along.step) + 1
    if span > along.size:
        return take(x, _clamped(positions(along.length, start, along.step), along.size), along.axis)
    first = start if along.step > 0 else start - np.int32(span - 1)
    held = lax.clamp(np.int32(0), first, np.int32(along.size - span))
    window = lax.dynamic_slice_in_dim(x, held, span, along.axis)
    if along.length == 1:
        return window
    return take(window, _clamped(positions(along.length, start - held, along.step), span), along.axis)


def _clamped(at: Value, size: int) -> Value:
    return lax.clamp(np.int32(0), at, np.int32(size - 1))


EXTENTS: Mapping[str, Builder] = {"pad": _pad, "slice": _slice, "mask": _mask}
