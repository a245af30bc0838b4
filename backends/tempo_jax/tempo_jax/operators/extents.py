"""Operators that add, drop or overwrite positions along axes: pad, slice, shift, mask."""

from __future__ import annotations

from collections.abc import Mapping

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


def _shift(call: Call) -> Function:
    """On a mesh one permute, whichever axis lies in parts: XLA's own padding may drop positions."""
    axis, zero = call.attrs["axis"], const(0, call.result.dtype)
    distance = max(min(call.attrs["distance"], call.result.shape[axis]), -call.result.shape[axis])
    widths = [(distance, -distance, 0) if at == axis else (0, 0, 0) for at in range(len(call.result.shape))]
    return lambda x: lax.pad(x, zero, widths)


def _mask(call: Call) -> Function:
    """Positions at or after the length along the axis become `fill`."""
    shape, axis = call.result.shape, call.attrs["axis"]
    fill = const(call.attrs["fill"], call.result.dtype)

    def mask(x: Value, length: Scalar) -> Value:
        inside = lax.broadcasted_iota(np.int32, shape, axis) < position(length)
        return jnp.where(inside, x, fill)

    return mask


def _slice(call: Call) -> Function:
    sizes, lengths, steps = call.operands[0].shape, call.result.shape, call.attrs["steps"]
    if 0 in lengths:
        shape, dtype = call.result.shape, call.result.dtype
        return lambda x, *starts: full(shape, 0, dtype)

    def slice(x: Value, *starts: Scalar) -> Value:
        """A start that is a number where this is traced, as of sizes that are fixed, costs nothing at run time."""
        for axis, along in enumerate(zip(starts, lengths, steps, strict=True)):
            x = (_fixed if _is_inside(sizes[axis], *along) else _moving)(x, axis, *along)
        return x

    return slice


def _is_inside(size: int, start: Scalar, length: int, step: int) -> bool:
    """Whether it is known that no position is outside the axis."""
    if not isinstance(start, int | np.integer):
        return False
    return bool(0 <= start < size and 0 <= start + (length - 1) * step < size)


def _fixed(x: Value, axis: int, start: int, length: int, step: int) -> Value:
    """What is read backwards is read forwards and reversed."""
    first, last = sorted((int(start), int(start) + (length - 1) * step))
    if (first, last + 1, step) == (0, x.shape[axis], 1):
        return x
    cut = lax.slice_in_dim(x, first, last + 1, abs(step), axis)
    return lax.rev(cut, (axis,)) if step < 0 else cut


def _moving(x: Value, axis: int, start: Scalar, length: int, step: int) -> Value:
    """Positions outside the axis are clamped one by one; XLA's dynamic slice moves the whole window instead.

    So the window is read where it fits, contiguously, and then its positions are clamped: a small gather, seven times
    as fast on a CPU as one from the whole operand. An axis without positions is read in branches that are traced but
    never taken.
    """
    start, size = position(start), x.shape[axis]
    if size == 0:
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, length * (at == axis), 0) for at in range(x.ndim)])
    span = (length - 1) * abs(step) + 1
    if span > size:
        return take(x, _clamped(positions(length, start, step), size), axis)
    first = start if step > 0 else start - np.int32(span - 1)
    held = lax.clamp(np.int32(0), first, np.int32(size - span))
    window = lax.dynamic_slice_in_dim(x, held, span, axis)
    return window if length == 1 else take(window, _clamped(positions(length, start - held, step), span), axis)


def _clamped(at: Value, size: int) -> Value:
    return lax.clamp(np.int32(0), at, np.int32(size - 1))


EXTENTS: Mapping[str, Builder] = {"pad": _pad, "slice": _slice, "shift": _shift, "mask": _mask}
