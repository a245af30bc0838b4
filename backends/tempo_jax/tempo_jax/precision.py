"""64-bit types in JAX: off by default, switched on around what needs them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax import experimental, lax

from tempo.backends import NARROW, SegmentRequest
from tempo.backends.loop_ir import Compute, walk

WIDE = frozenset({"float64", "int64", "uint64"})
HIGHEST = lax.Precision.HIGHEST
"""float32 means float32: no TF32 or bfloat16 passes in contractions."""


def x64() -> AbstractContextManager[Any]:
    """64-bit types within the `with` block, in this thread: for tracing, and for every call of what was traced so.

    >>> import jax.numpy as jnp
    >>> with x64():
    ...     str(jnp.arange(2, dtype="int64").dtype)
    'int64'
    """
    home: Any = jax if hasattr(jax, "enable_x64") else experimental  # before JAX 0.8
    context: AbstractContextManager[Any] = home.enable_x64(True)
    return context


def x64_for(*dtypes: str) -> AbstractContextManager[Any]:
    """`x64()` where one of the dtypes has 64 bits, else a context that changes nothing."""
    return nullcontext() if WIDE.isdisjoint(dtypes) else x64()


def is_wide(request: SegmentRequest) -> bool:
    """Whether 64-bit types occur in a segment's program, or its indices need them: then it runs under `x64()`."""
    program = request.program
    if request.index_bits > NARROW or any(buffer.dtype in WIDE for buffer in program.buffers.values()):
        return True
    computes = (each for segment in program.segments for each in walk(segment.body) if isinstance(each, Compute))
    return any(type.dtype in WIDE for each in computes for type in (*each.operand_types, each.type))
