"""Operators that move, repeat or drop elements."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax

from tempo.backends.operators import Builder, Call
from tempo_jax.operators.values import Function, Value


def _reshape(call: Call) -> Function:
    shape = call.result.shape
    return lambda x: lax.reshape(x, shape)


def _transpose(call: Call) -> Function:
    axes = tuple(call.attrs["axes"])
    return _same(call) if axes == tuple(range(len(axes))) else lambda x: lax.transpose(x, axes)


def _broadcast(call: Call) -> Function:
    """As `np.broadcast_to`, after the first `batch` axes, which correspond."""
    shape, given, batch = call.result.shape, call.operands[0].shape, call.attrs.get("batch", 0)
    aligned = (*given[:batch], *(1,) * (len(shape) - len(given)), *given[batch:])
    return lambda x: jnp.broadcast_to(lax.reshape(x, aligned), shape)


def _concat(call: Call) -> Function:
    axis = call.attrs["axis"]
    return lambda *parts: lax.concatenate(parts, axis)


def _flip(call: Call) -> Function:
    axes = tuple(call.attrs["axes"])
    return lambda x: lax.rev(x, axes)


def _same(call: Call) -> Function:
    def same(x: Value) -> Value:
        return x

    return same


MOVEMENT: Mapping[str, Builder] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "concat": _concat,
    "flip": _flip,
    "copy": _same,
}
