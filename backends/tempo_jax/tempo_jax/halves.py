"""Arrays of bfloat16 as their bits. XLA for a processor moves no bfloat16: it updates a slice of an array of float32
that it makes of all of the array, and makes bfloat16 of all of that again. What segments write part by part they hold
as integers of 16 bits.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tempo.backends.loop_ir import Buffer, LoopProgram
from tempo.backends.loops import in_segments

Array = Any
_DTYPE, BITS = "bfloat16", jnp.dtype("uint16")


def is_held(buffer: Buffer) -> bool:
    """Whether a segment that writes parts of it holds its bits."""
    return buffer.dtype == _DTYPE and not buffer.is_slot and buffer.role != "constant"


def between(program: LoopProgram) -> frozenset[int]:
    """The buffers that stay so from segment to segment."""
    return frozenset(id for id in in_segments(program) if is_held(program.buffers[id]))


def bits(array: Array) -> Array:
    """Of an array, or of each of its pieces."""
    return jax.tree.map(lambda each: each if each.dtype == BITS else lax.bitcast_convert_type(each, BITS), array)


def numbers(array: Array, dtype: str) -> Array:
    """What arrays of this dtype say, where that is held as bits."""
    if dtype != _DTYPE:
        return array
    return jax.tree.map(lambda each: lax.bitcast_convert_type(each, _DTYPE) if each.dtype == BITS else each, array)


def as_held(value: Array, array: Array) -> Array:
    """A value of the dtype of `array`, or its bits where that holds bits."""
    return bits(value) if array.dtype == BITS and value.dtype == _DTYPE else value
