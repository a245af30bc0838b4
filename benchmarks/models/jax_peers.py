"""The models as one writes them in JAX: one `jit`, `lax.scan` over time, what does not need the state outside of it.

Each takes the program's inputs and sizes, and returns its outputs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from examples.kalman import DRIFT, MOTION, NOISE, SEEN
from examples.value_iteration import GAMMA
from examples.wave import COURANT

Array = Any


def time_first(x: Array) -> Array:
    return jnp.swapaxes(x, 0, 1)


def rnn(x: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    def step(h: Array, entering: Array) -> tuple[Array, Array]:
        h = jnp.tanh(entering + h @ wh)
        return h, h

    _, h = lax.scan(step, jnp.zeros((len(x), len(wh))), time_first(x) @ wx + bias)
    return {"h": time_first(h)}


def lstm(x: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    def step(state: tuple[Array, Array], entering: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        enter, forget, new, leave = jnp.split(entering + h @ wh, 4, axis=-1)
        c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(enter) * jnp.tanh(new)
        h = jax.nn.sigmoid(leave) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((len(x), len(wh)))
    _, h = lax.scan(step, (zero, zero), time_first(x) @ wx + bias)
    return {"h": time_first(h)}


def lstm_bptt(x: Array, target: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    def loss(weights: dict[str, Array]) -> Array:
        return ((lstm(x, **weights)["h"] - target) ** 2).mean(-1).sum()

    found, gradients = jax.value_and_grad(loss)({"wx": wx, "wh": wh, "bias": bias})
    return {"loss": found, **gradients}


def state_space(u: Array, a: Array, w_in: Array, w_out: Array) -> dict[str, Array]:
    def step(h: Array, entering: Array) -> tuple[Array, Array]:
        h = a * h + entering[..., None] * w_in
        return h, (h * w_out).sum(-1)

    _, y = lax.scan(step, jnp.zeros((len(u), *a.shape)), time_first(u))
    return {"y": time_first(y)}


def wave(start: Array, t: int) -> dict[str, Array]:
    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        before, now = state
        inner = now[1:-1, 1:-1]
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        following = jnp.pad(2 * inner - before[1:-1, 1:-1] + COURANT**2 * (around - 4 * inner), 1)
        return (now, following), (following**2).sum()

    first = jnp.pad(start[1:-1, 1:-1], 1)
    (_, last), energy = lax.scan(step, (first, first), length=t - 2)
    return {"first": first, "last": last, "energy": jnp.concatenate([jnp.full(2, (first**2).sum()), energy])}


def value_iteration(reward: Array, p: Array, k: int) -> dict[str, Array]:
    def sweep(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        value, _ = state
        q = reward + GAMMA * (p @ value)
        better = q.max(-1)
        return (better, q), jnp.abs(better - value).max()

    (value, q), residual = lax.scan(sweep, (jnp.zeros(len(p)), jnp.zeros_like(reward)), length=k)
    return {"residual": residual, "value": value, "policy": q.argmax(-1)}


def edit_distance(first: Array, second: Array) -> dict[str, Array]:
    """Rows in a scan, and letters of a row in a scan inside."""
    batch, length = second.shape

    def letter(left: Array, given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        diagonal, above, differs = given
        found = jnp.minimum(jnp.minimum(above, left) + 1, diagonal + differs)
        return found, found

    def row(above: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
        i, mine = given
        start = jnp.full((batch,), i + 1)
        _, rest = lax.scan(letter, start, (above[:-1], above[1:], mine != second.T[:-1]))
        return jnp.concatenate([start[None], rest]), None

    top = jnp.broadcast_to(jnp.arange(length)[:, None], (length, batch))
    last, _ = lax.scan(row, top, (jnp.arange(first.shape[1] - 1), first.T[:-1]))
    return {"distance": last[-1]}


def kalman(z: Array) -> dict[str, Array]:
    def step(state: tuple[Array, Array], seen: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        mean, covariance = state
        (a, b), (c, d) = SEEN @ covariance @ SEEN.T + NOISE
        inverse = jnp.stack([jnp.stack([d, -b]), jnp.stack([-c, a])]) / (a * d - b * c)
        gain = covariance @ SEEN.T @ inverse
        filtered = mean + (seen - mean @ SEEN.T) @ gain.T
        remaining = covariance - gain @ SEEN @ covariance
        following = filtered @ MOTION.T, MOTION @ remaining @ MOTION.T + DRIFT
        return following, (filtered, jnp.sqrt(remaining[0, 0]))

    start = jnp.zeros((len(z), 4)), 10 * jnp.eye(4)
    _, (filtered, deviation) = lax.scan(step, start, time_first(z))
    return {"filtered": time_first(filtered), "deviation": deviation}


PEERS = {
    each.__name__: each for each in (rnn, lstm, lstm_bptt, state_space, wave, value_iteration, edit_distance, kalman)
}


def prepare(name: str, inputs: dict[str, Any], sizes: dict[str, int]) -> Any:
    """A call without arguments; inputs are the library's arrays."""
    jitted = jax.jit(PEERS[name], static_argnames=tuple(sizes))
    return lambda: jitted(**inputs, **sizes)
