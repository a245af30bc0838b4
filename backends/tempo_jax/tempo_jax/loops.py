"""Loops as XLA has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any
Carried = tuple[Array, ...]
Body = Callable[[Any, Carried], Carried]


def repeat(lo: Any, hi: Any, body: Body, start: Carried, stop: int | None, dtype: Any) -> Carried:
    """`body` from `lo` to `hi`, counted in `dtype`, left as soon as the carried scalar at `stop` is not 0."""
    if stop is None:
        return lax.fori_loop(_bound(lo, dtype), _bound(hi, dtype), body, start)  # type: ignore[no-any-return]

    def goes_on(carry: tuple[Any, Carried]) -> Any:
        step, arrays = carry
        return (step < hi) & (arrays[stop] == 0)

    def step(carry: tuple[Any, Carried]) -> tuple[Any, Carried]:
        return carry[0] + 1, body(*carry)

    _, arrays = lax.while_loop(goes_on, step, (jnp.asarray(lo, dtype), start))
    return arrays  # type: ignore[no-any-return]


def _bound(value: Any, dtype: Any) -> Any:
    """A number stays one: between two of them XLA knows the trip count, and tests nothing per iteration."""
    return np.dtype(dtype).type(value) if isinstance(value, int) else value
