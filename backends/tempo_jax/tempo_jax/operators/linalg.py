"""Linear algebra. What has no answer is not finite, as JAX has it."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax

from tempo.backends.operators import Builder, Call
from tempo_jax.operators.values import Function, in_float32


def _in_float32(function: Function) -> Builder:
    def builder(call: Call) -> Function:
        return in_float32(function, call.result.dtype)

    return builder


LINALG: Mapping[str, Builder] = {
    "solve": _in_float32(jnp.linalg.solve),
    "cholesky": _in_float32(lambda a: lax.linalg.cholesky(a, symmetrize_input=False)),
    "det": _in_float32(jnp.linalg.det),
}
