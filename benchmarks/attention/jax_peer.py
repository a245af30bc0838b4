"""The decoder by hand in JAX, with a cache of the greatest length ("padded") and with one that grows ("bucketed").

Padded: one `jit` over all steps, attention over the whole cache, masked. Bucketed: a `jit` per bucket, whose lengths
double; a bucket loops over its steps with a cache of its own length, which the call before it gives away, and attends
to no more than that. With a window the bucketed cache is circular once it is as long as the window.

Both as XLA does best on CPU (measured: half the time of caches and weights that are stacked over the layers): an array
per layer of `(batch * kv_heads, length, head)`, contracted whole, weights taken apart before the loop. Queries that
share keys are rows of one product; keys and values are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tempo_jax.executables import needs

from benchmarks.attention.program import Config

LEAST = 128
"""Length of the first bucket."""

Carried = tuple[Any, tuple[Any, ...], tuple[Any, ...]]  # tokens; keys and values of the layers
Decode = Callable[[], np.ndarray]


def peers(
    config: Config, weights: Mapping[str, Any], length: int, prompt: np.ndarray | None = None
) -> dict[str, Decode]:
    if prompt is not None:
        return {"by hand": prompted(config, weights, length, prompt)}
    return {"padded": padded(config, weights, length), "bucketed": bucketed(config, weights, length)}


def padded(config: Config, weights: Mapping[str, Any], length: int) -> Decode:
    loop = _padded_loop(config, length)
    return lambda: np.asarray(loop(config.start(), dict(weights)))


def peak_bytes(config: Config, weights: Mapping[str, Any], length: int) -> dict[str, int]:
    """What XLA needs beyond the arguments, padded. It tells it of a call; bucketed there are several."""
    return {"padded": sum(needs(_padded_loop(config, length), (config.start(), dict(weights))))}


def _padded_loop(config: Config, length: int) -> Any:
    """`(first tokens, weights) -> tokens`, jitted."""

    @jax.jit
    def loop(start: Any, weights: Mapping[str, Any]) -> Any:
        carried = _tokens(config, start, length), _caches(config, length), _caches(config, length)
        return _steps(config, weights, carried, 0, length - 1)[0]

    return loop


def prompted(config: Config, weights: Mapping[str, Any], length: int, prompt: np.ndarray) -> Decode:
    """One pass over the prompt, then the padded loop, in one `jit`."""
    count = prompt.shape[1]

    @jax.jit
    def loop(prompt: Any, weights: Mapping[str, Any]) -> Any:
        following, keys, values = _prefill(config, weights, prompt, length)
        tokens = lax.dynamic_update_slice(_tokens(config, 0, length), prompt, (0, 0)).at[:, count].set(following)
        return _steps(config, weights, (tokens, keys, values), count, length - 1)[0]

    return lambda: np.asarray(loop(prompt, dict(weights)))


def bucketed(config: Config, weights: Mapping[str, Any], length: int) -> Decode:
    def run(carried: Carried, weights: Mapping[str, Any], first: Any, end: Any) -> Carried:
        return _steps(config, weights, carried, first, end)

    def grown(caches: tuple[Any, ...], extent: int) -> tuple[Any, ...]:
        return tuple(jnp.pad(cache, ((0, 0), (0, extent - cache.shape[1]), (0, 0))) for cache in caches)

    begin = jax.jit(
        lambda start, extent: (_tokens(config, start, length), *[_caches(config, extent)] * 2), static_argnums=1
    )
    advance, grow = jax.jit(run, donate_argnums=0), jax.jit(grown, static_argnums=1)

    def loop() -> np.ndarray:
        given, first = dict(weights), 0
        (extent, end), *rest = buckets(config.window, length)
        tokens, keys, values = advance(begin(config.start(), extent), given, first, end)
        for extent, until in rest:
            carried = tokens, grow(keys, extent), grow(values, extent)
            tokens, keys, values = advance(carried, given, end, until)
            end = until
        return np.asarray(tokens)

    return loop


def buckets(window: int | None, length: int) -> Iterator[tuple[int, int]]:
    """The cache's length and the step at which it is full, or all are done; a window needs no more than its own."""
    extent, longest = LEAST, min(window or length, length)
    while extent < longest:
        yield extent, extent
        extent *= 2
    yield longest, length - 1


def _tokens(config: Config, start: Any, length: int) -> Any:
    return jnp.zeros((config.batch, length), jnp.int32).at[:, 0].set(start)


def _caches(config: Config, extent: int) -> tuple[Any, ...]:
    shape = (config.batch * config.kv_heads, extent, config.head)
    return tuple(jnp.zeros(shape, config.dtype) for _ in range(config.layers))


def _steps(config: Config, weights: Mapping[str, Any], carried: Carried, first: Any, end: Any) -> Carried:
    layers = [{name: weights[name][layer] for name in config.shapes()} for layer in range(config.layers)]
    return lax.fori_loop(first, end, lambda t, each: _step(config, layers, weights["embedding"], t, each), carried)


def _step(config: Config, layers: list[dict[str, Any]], embedding: Any, t: Any, carried: Carried) -> Carried:
    """Positions lie at their remainder by the cache's length, which is at least the window's."""
    tokens, all_keys, all_values = carried[0], list(carried[1]), list(carried[2])
    extent = all_keys[0].shape[1]
    held = t - (t - jnp.arange(extent)) % extent  # the last position written to each place, or a negative one
    visible = held >= (0 if config.window is None else jnp.maximum(t - config.window + 1, 0))
    x = embedding[lax.dynamic_index_in_dim(tokens, t, 1, keepdims=False)]
    for layer, w in enumerate(layers):
        normed = _norm(x)
        q = (normed @ w["wq"]).reshape(config.batch * config.kv_heads, -1, config.head)
        k, v = ((normed @ w[name]).reshape(config.batch * config.kv_heads, 1, config.head) for name in ("wk", "wv"))
        keys = all_keys[layer] = lax.dynamic_update_slice(all_keys[layer], k, (0, t % extent, 0))
        values = all_values[layer] = lax.dynamic_update_slice(all_values[layer], v, (0, t % extent, 0))
        scores = jnp.matmul(q, keys.transpose(0, 2, 1)) * config.head**-0.5
        seen = jnp.matmul(jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1), values)
        x = x + seen.reshape(config.batch, config.width) @ w["wo"]
        x = x + jax.nn.silu(_norm(x) @ w["up"]) @ w["down"]
    following = (_norm(x) @ embedding.T).argmax(-1).astype(jnp.int32)
    return lax.dynamic_update_slice(tokens, following[:, None], (0, t + 1)), tuple(all_keys), tuple(all_values)


def _prefill(config: Config, weights: Mapping[str, Any], prompt: Any, length: int) -> tuple[Any, ...]:
    """The token after the prompt, and the caches of the layers."""
    at = jnp.arange(prompt.shape[1])
    visible = at <= at[:, None]
    if config.window is not None:
        visible &= at > at[:, None] - config.window
    x, all_keys, all_values = weights["embedding"][prompt], [], []
    for layer in range(config.layers):
        w = {name: weights[name][layer] for name in config.shapes()}
        normed = _norm(x)
        q, k, v = (
            (normed @ w[name]).reshape(config.batch, len(at), -1, config.head).transpose(0, 2, 1, 3)
            for name in ("wq", "wk", "wv")
        )
        for cache, made in zip((all_keys, all_values), (k, v), strict=True):
            rows = made.reshape(config.batch * config.kv_heads, len(at), config.head)
            cache.append(jnp.pad(rows, ((0, 0), (0, length - len(at)), (0, 0))))
        q = q.reshape(config.batch, config.kv_heads, -1, len(at), config.head)
        scores = jnp.where(visible, q @ k[:, :, None].swapaxes(-1, -2) * config.head**-0.5, -jnp.inf)
        seen = (jax.nn.softmax(scores, axis=-1) @ v[:, :, None]).reshape(config.batch, -1, len(at), config.head)
        x = x + seen.transpose(0, 2, 1, 3).reshape(config.batch, len(at), config.width) @ w["wo"]
        x = x + jax.nn.silu(_norm(x) @ w["up"]) @ w["down"]
    following = (_norm(x[:, -1]) @ weights["embedding"].T).argmax(-1).astype(jnp.int32)
    return following, tuple(all_keys), tuple(all_values)


def _norm(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
