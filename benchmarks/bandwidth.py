"""What memory gives: the floor of everything that must read more than the processor's caches hold."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.harness import Session
from benchmarks.measure import timed

ELEMENTS = 1 << 26
"""Of the array, in float32: 256 MiB."""
_TRIES = 5


def bandwidth(session: Session) -> float:
    """Bytes per second: the most of several sums of a large array, and of adding to it in place (read and written).

    By the session's library with its threads, or by NumPy where that is faster.
    """
    array = np.ones(ELEMENTS, np.float32)
    found = _best(array, lambda each: each.sum(), lambda each: np.add(each, 1, out=each))
    if session.backend == "numpy":
        return found
    ours = session.resident(array)
    if session.backend == "torch":
        more = _best(ours, lambda each: session.ready(each.sum()), lambda each: session.ready(each.add_(1)))
    else:
        jax = import_module("jax")
        add = jax.jit(lambda each: each + 1, donate_argnums=0)
        total = jax.jit(lambda each: each.sum())
        more = _best(ours, lambda each: session.ready(total(each)), lambda each: session.ready(add(each)))
    return more if session.device != "cpu" else max(found, more)


def _best(array: Any, total: Callable[[Any], Any], add: Callable[[Any], Any]) -> float:
    """`add` returns the array that it added to, which may be another object for the same memory."""
    held = [add(array)]

    def added() -> None:
        held[0] = add(held[0])

    rates = [(array_bytes, run) for array_bytes, run in ((1, lambda: total(held[0])), (2, added))]
    return max(times * 4 * ELEMENTS / timed(run) for times, run in rates for _ in range(_TRIES))
