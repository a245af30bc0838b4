"""Options of XLA's compiler, for one segment.

Instructions that do not wait for one another XLA's CPU compiler puts in an order in which many may be run at once, and
so holds what each of them makes: 64 MB for the gradients of a batch of trees, and 51 where it is told to hold little. A
large piece of memory is new to the process at every call, and costs a fault for each of its pages, more than is won.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import jax

from tempo.backends import SegmentRequest
from tempo.backends.loops import buffer_bytes

_HOLDS_LITTLE = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
_ANEW = 32 << 20
"""What is larger malloc always takes anew from the system, and gives back (mallopt(3), M_MMAP_THRESHOLD)."""


def compile_options(request: SegmentRequest, platform: str) -> Mapping[str, str]:
    program = request.program
    inside = (id for id in request.segment.buffers if program.buffers[id].role == "internal")
    if platform != "cpu" or sum(buffer_bytes(program, id, request.sizes) for id in inside) < _ANEW:
        return {}
    return {name: value for name, value in _HOLDS_LITTLE.items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: str) -> bool:
    """Whether this version of XLA has the option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
