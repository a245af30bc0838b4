"""The models as one writes them in NumPy; those of the examples are taken from there."""

from __future__ import annotations

from typing import Any

import numpy as np

from examples import kalman as filtering
from examples import value_iteration as planning
from examples import wave as waves

Array = np.ndarray


def rnn(x: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    h, entering = np.zeros((len(x), len(wh)), np.float32), x @ wx + bias
    states = np.empty((*x.shape[:2], len(wh)), np.float32)
    for t in range(x.shape[1]):
        states[:, t] = h = np.tanh(entering[:, t] + h @ wh)
    return {"h": states}


def lstm(x: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    h = c = np.zeros((len(x), len(wh)), np.float32)
    entering, states = x @ wx + bias, np.empty((*x.shape[:2], len(wh)), np.float32)
    for t in range(x.shape[1]):
        enter, forget, new, leave = np.split(entering[:, t] + h @ wh, 4, axis=-1)
        c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(new)
        states[:, t] = h = sigmoid(leave) * np.tanh(c)
    return {"h": states}


def lstm_bptt(x: Array, target: Array, wx: Array, wh: Array, bias: Array) -> dict[str, Array]:
    """Backward by hand, with what the way back needs kept on the way forth."""
    batch, steps, width = target.shape
    h = c = np.zeros((batch, width), np.float32)
    entering, loss, kept = x @ wx + bias, 0.0, []
    for t in range(steps):
        enter, forget, new, leave = np.split(entering[:, t] + h @ wh, 4, axis=-1)
        enter, forget, new, leave = sigmoid(enter), sigmoid(forget), np.tanh(new), sigmoid(leave)
        before, c_before = h, c
        c = forget * c + enter * new
        h = leave * np.tanh(c)
        loss += ((h - target[:, t]) ** 2).mean(-1).sum()
        kept.append((enter, forget, new, leave, np.tanh(c), before, c_before, h))
    d_gates, befores = np.empty((steps, batch, 4 * width), np.float32), np.stack([each[5] for each in kept])
    dh = dc = np.zeros((batch, width), np.float32)
    for t in reversed(range(steps)):
        enter, forget, new, leave, shown, _, c_before, h = kept[t]
        dh = dh + 2 / width * (h - target[:, t])
        dc = dc + dh * leave * (1 - shown**2)
        parts = (
            dc * new * enter * (1 - enter),
            dc * c_before * forget * (1 - forget),
            dc * enter * (1 - new**2),
            dh * shown * leave * (1 - leave),
        )
        d_gates[t] = np.concatenate(parts, axis=-1)
        dh, dc = d_gates[t] @ wh.T, dc * forget
    return {
        "loss": np.float32(loss),
        "wx": np.einsum("bti,tbg->ig", x, d_gates, optimize=True),
        "wh": np.einsum("tbh,tbg->hg", befores, d_gates, optimize=True),
        "bias": d_gates.sum((0, 1)),
    }


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def state_space(u: Array, a: Array, w_in: Array, w_out: Array) -> dict[str, Array]:
    h, y = np.zeros((len(u), *a.shape), np.float32), np.empty_like(u)
    for t in range(u.shape[1]):
        h = a * h + u[:, t, :, None] * w_in
        y[:, t] = (h * w_out).sum(-1)
    return {"y": y}


def wave(start: Array, t: int) -> dict[str, Array]:
    return waves.numpy_loop(start, t)


def value_iteration(reward: Array, p: Array, k: int) -> dict[str, Array]:
    found = planning.numpy_loop(reward, p, k)
    return {"residual": found["residual"], "value": found["value"], "policy": found["q"].argmax(-1)}


def edit_distance(first: Array, second: Array) -> dict[str, Array]:
    """The loops of the example, all pairs at once."""
    batch, length = second.shape
    row = list(np.broadcast_to(np.arange(length)[:, None], (length, batch)))
    differs = first.T[:-1, None] != second.T[None, :-1]
    for i in range(first.shape[1] - 1):
        above, row = row, [np.full(batch, i + 1)]
        for j in range(length - 1):
            row.append(np.minimum(np.minimum(above[j + 1], row[j]) + 1, above[j] + differs[i, j]))
    return {"distance": row[-1]}


def kalman(z: Array) -> dict[str, Array]:
    return filtering.numpy_loop(z)


def gru(weights: dict[str, Array], name: str, x: Array, h: Array) -> Array:
    entering, states = x @ weights[f"{name}.input.weight"] + weights[f"{name}.input.bias"], []
    for t in range(x.shape[1]):
        reset_x, update_x, new_x = np.split(entering[:, t], 3, axis=-1)
        mapped = h @ weights[f"{name}.hidden.weight"] + weights[f"{name}.hidden.bias"]
        reset_h, update_h, new_h = np.split(mapped, 3, axis=-1)
        reset, update = sigmoid(reset_x + reset_h), sigmoid(update_x + update_h)
        h = (1 - update) * np.tanh(new_x + reset * new_h) + update * h
        states.append(h)
    return np.stack(states, 1)


def translator(source: Array, target: Array, weights: dict[str, Array]) -> dict[str, Array]:
    """That it learns has no peer here: its way back by hand is nobody's idea of NumPy."""
    losses = []
    for sentence, words in zip(source, target):
        zero = np.zeros((len(sentence), len(weights["encoder.hidden.weight"])), np.float32)
        states = gru(weights, "encoder", weights["read.weight"][sentence], zero)
        before = np.pad(words[:, :-1], ((0, 0), (1, 0)))
        h = gru(weights, "decoder", weights["written.weight"][before], states[:, -1])
        found = softmax(h @ states.swapaxes(1, 2)) @ states
        p = softmax(np.concatenate([h, found], -1) @ weights["said.weight"] + weights["said.bias"])
        losses.append(-np.log(np.take_along_axis(p, words[..., None], -1)).mean())
    return {"loss": np.array(losses, np.float32)}


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


MODELS = (rnn, lstm, lstm_bptt, state_space, wave, value_iteration, edit_distance, kalman)
PEERS = {each.__name__: each for each in (*MODELS, translator)}


def prepare(name: str, inputs: dict[str, Array], sizes: dict[str, int]) -> Any:
    """A call without arguments."""
    return lambda: PEERS[name](**inputs, **sizes)
