"""The user's own functions of JAX arrays: traced where the loop around them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from tempo.sdg.operators import Builder
from tempo.sdg.operators.backend_function import function_of, result_of


def _array(value: Any, dtype: Any = None) -> Any:
    """Never weakly typed."""
    array = jnp.asarray(value)
    return jnp.asarray(array, array.dtype if dtype is None else dtype)


CALLS: Mapping[str, Builder] = {"backend_call": function_of, "backend_result": result_of(_array)}
