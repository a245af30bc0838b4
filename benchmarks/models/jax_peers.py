"""The models as one writes them in JAX: one `jit`, `lax.scan` over time, what does not need the state outside of it.

Each takes the program's inputs and sizes, and returns its outputs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.models.translator import RATE
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


def gru(weights: dict[str, Array], name: str, x: Array, h: Array) -> tuple[Array, Array]:
    """The last state and all of them, time in front."""

    def step(h: Array, entering: Array) -> tuple[Array, Array]:
        reset_x, update_x, new_x = jnp.split(entering, 3, axis=-1)
        mapped = h @ weights[f"{name}.hidden.weight"] + weights[f"{name}.hidden.bias"]
        reset_h, update_h, new_h = jnp.split(mapped, 3, axis=-1)
        reset, update = jax.nn.sigmoid(reset_x + reset_h), jax.nn.sigmoid(update_x + update_h)
        h = (1 - update) * jnp.tanh(new_x + reset * new_h) + update * h
        return h, h

    return lax.scan(step, h, x @ weights[f"{name}.input.weight"] + weights[f"{name}.input.bias"])


def translation_loss(weights: dict[str, Array], source: Array, target: Array) -> Array:
    """Of one batch."""
    zero = jnp.zeros((len(source), weights["encoder.hidden.weight"].shape[0]))
    last, states = gru(weights, "encoder", weights["read.weight"][source.T], zero)
    before = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
    _, h = gru(weights, "decoder", weights["written.weight"][before.T], last)
    attention = jax.nn.softmax(jnp.einsum("tbh,sbh->tbs", h, states))
    found = jnp.einsum("tbs,sbh->tbh", attention, states)
    logits = jnp.concatenate([h, found], axis=-1) @ weights["said.weight"] + weights["said.bias"]
    log_p = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_p, target.T[..., None], -1).mean()


def translator(source: Array, target: Array, weights: dict[str, Array]) -> dict[str, Array]:
    _, loss = lax.scan(lambda none, batch: (none, translation_loss(weights, *batch)), (), (source, target))
    return {"loss": loss}


def translator_training(source: Array, target: Array, weights: dict[str, Array]) -> dict[str, Array]:
    def iteration(carry: tuple[Any, ...], batch: tuple[Array, Array]) -> tuple[Any, Array]:
        weights, mean, square, step = carry
        loss, gradient = jax.value_and_grad(translation_loss)(weights, *batch)
        step = step + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradient)

        def updated(w: Array, m: Array, v: Array) -> Array:
            return w - RATE * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)

        return (jax.tree.map(updated, weights, mean, square), mean, square, step), loss

    zeros = jax.tree.map(jnp.zeros_like, weights)
    _, loss = lax.scan(iteration, (weights, zeros, zeros, jnp.float32(0)), (source, target))
    return {"loss": loss}


MODELS = (rnn, lstm, lstm_bptt, state_space, wave, value_iteration, edit_distance, kalman)
PEERS = {each.__name__: each for each in (*MODELS, translator, translator_training)}


def prepare(name: str, inputs: dict[str, Any], sizes: dict[str, int]) -> Any:
    """A call without arguments; inputs are the library's arrays."""
    jitted = jax.jit(PEERS[name], static_argnames=tuple(sizes))
    return lambda: jitted(**inputs, **sizes)
