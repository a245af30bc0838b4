"""The user's own functions of JAX arrays: traced where the loop around them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax.numpy as jnp

from tempo.backends.operators import Builder, Call, function_of, result_of
from tempo_jax.precision import x64_for


def _scope(*values: Any) -> AbstractContextManager[Any]:
    """A segment with 64-bit types is traced within JAX's switch; called alone, a function of such needs it as well."""
    return x64_for(*(str(getattr(value, "dtype", "")) for value in values))


def _function(call: Call) -> Callable[..., tuple[Any, ...]]:
    function = function_of(call)

    def scoped(*arrays: Any) -> tuple[Any, ...]:
        with _scope(*arrays):
            return function(*arrays)

    return scoped


def _array(value: Any, dtype: Any = None) -> Any:
    """Never weakly typed."""
    with _scope(value):
        array = jnp.asarray(value)
        return jnp.asarray(array, array.dtype if dtype is None else dtype)


CALLS: Mapping[str, Builder] = {"backend_call": _function, "backend_result": result_of(_array)}
