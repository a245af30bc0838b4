"""The decoder by hand in JAX: one `jit` over all steps, a cache of the greatest length, attention over it all, masked.

Queries that share keys are rows of one product; keys and values are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.attention.program import Config


def decode(config: Config, weights: Mapping[str, Any], length: int) -> Callable[[], np.ndarray]:
    group = config.heads // config.kv_heads
    shape = (config.layers, config.batch, config.kv_heads, length, config.head)
    names = tuple(config.shapes())
    positions = jnp.arange(length)

    def norm(x: Any) -> Any:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def step(t: Any, carried: Any, given: Mapping[str, Any]) -> Any:
        tokens, keys, values = carried
        token = lax.dynamic_index_in_dim(tokens, t, 1, keepdims=False)
        x = given["embedding"][token]
        visible = positions <= t
        if config.window is not None:
            visible &= positions > t - config.window
        for layer in range(config.layers):
            w = {name: given[name][layer] for name in names}
            normed = norm(x)
            q = (normed @ w["wq"]).reshape(config.batch, config.kv_heads, group, config.head)
            k, v = ((normed @ w[name]).reshape(config.batch, config.kv_heads, 1, config.head) for name in ("wk", "wv"))
            keys = lax.dynamic_update_slice(keys, k[None], (layer, 0, 0, t, 0))
            values = lax.dynamic_update_slice(values, v[None], (layer, 0, 0, t, 0))
            scores = jnp.einsum("bkgd,bksd->bkgs", q, keys[layer]) * config.head**-0.5
            weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
            seen = jnp.einsum("bkgs,bksd->bkgd", weights, values[layer])
            x = x + seen.reshape(config.batch, config.width) @ w["wo"]
            x = x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"]
        following = (norm(x) @ given["embedding"].T).argmax(-1).astype(jnp.int32)
        return lax.dynamic_update_slice(tokens, following[:, None], (0, t + 1)), keys, values

    @jax.jit
    def loop(start: Any, given: Mapping[str, Any]) -> Any:
        tokens = jnp.zeros((config.batch, length), jnp.int32).at[:, 0].set(start)
        carried = tokens, jnp.zeros(shape), jnp.zeros(shape)
        return lax.fori_loop(0, length - 1, lambda t, each: step(t, each, given), carried)[0]

    return lambda: np.asarray(loop(config.start(), dict(weights)))
