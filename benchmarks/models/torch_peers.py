"""The models as one writes them in PyTorch: cells called in a loop."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.models.translator import RATE
from examples import kalman as constants
from examples.value_iteration import GAMMA
from examples.wave import COURANT

Tensor = torch.Tensor
MOTION, SEEN, DRIFT, NOISE = (
    torch.from_numpy(array) for array in (constants.MOTION, constants.SEEN, constants.DRIFT, constants.NOISE)
)


def rnn(x: Tensor, wx: Tensor, wh: Tensor, bias: Tensor) -> dict[str, Tensor]:
    h, entering, states = x.new_zeros(len(x), len(wh)), x @ wx + bias, []
    for t in range(x.shape[1]):
        h = torch.tanh(entering[:, t] + h @ wh)
        states.append(h)
    return {"h": torch.stack(states, 1)}


def lstm(x: Tensor, wx: Tensor, wh: Tensor, bias: Tensor) -> dict[str, Tensor]:
    h = c = x.new_zeros(len(x), len(wh))
    entering, states = x @ wx + bias, []
    for t in range(x.shape[1]):
        enter, forget, new, leave = (entering[:, t] + h @ wh).chunk(4, -1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
        h = torch.sigmoid(leave) * torch.tanh(c)
        states.append(h)
    return {"h": torch.stack(states, 1)}


def lstm_bptt(x: Tensor, target: Tensor, wx: Tensor, wh: Tensor, bias: Tensor) -> dict[str, Tensor]:
    weights = [each.detach().requires_grad_() for each in (wx, wh, bias)]
    loss = ((lstm(x, *weights)["h"] - target) ** 2).mean(-1).sum()
    return {"loss": loss.detach(), **dict(zip(("wx", "wh", "bias"), torch.autograd.grad(loss, weights)))}


def state_space(u: Tensor, a: Tensor, w_in: Tensor, w_out: Tensor) -> dict[str, Tensor]:
    h, y = u.new_zeros(len(u), *a.shape), []
    for t in range(u.shape[1]):
        h = a * h + u[:, t, :, None] * w_in
        y.append((h * w_out).sum(-1))
    return {"y": torch.stack(y, 1)}


def wave(start: Tensor, t: int) -> dict[str, Tensor]:
    first = torch.zeros_like(start)
    first[1:-1, 1:-1] = start[1:-1, 1:-1]
    before, now = first, first
    energy = [(first**2).sum()] * 2
    for _ in range(2, t):
        inner = now[1:-1, 1:-1]
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        following = torch.zeros_like(now)
        following[1:-1, 1:-1] = 2 * inner - before[1:-1, 1:-1] + COURANT**2 * (around - 4 * inner)
        before, now = now, following
        energy.append((now**2).sum())
    return {"first": first, "last": now, "energy": torch.stack(energy)}


def value_iteration(reward: Tensor, p: Tensor, k: int) -> dict[str, Tensor]:
    value, residual = p.new_zeros(len(p)), []
    for _ in range(k):
        q = reward + GAMMA * (p @ value)
        better = q.amax(-1)
        residual.append((better - value).abs().amax())
        value = better
    return {"residual": torch.stack(residual), "value": value, "policy": q.argmax(-1)}


def edit_distance(first: Tensor, second: Tensor) -> dict[str, Tensor]:
    batch, length = second.shape
    row = list(torch.arange(length, dtype=torch.int32)[:, None].expand(length, batch))
    differs = first.T[:-1, None] != second.T[None, :-1]
    for i in range(first.shape[1] - 1):
        above, row = row, [torch.full((batch,), i + 1, dtype=torch.int32)]
        for j in range(length - 1):
            row.append(torch.minimum(torch.minimum(above[j + 1], row[j]) + 1, above[j] + differs[i, j]))
    return {"distance": row[-1]}


def kalman(z: Tensor) -> dict[str, Tensor]:
    mean, covariance = z.new_zeros(len(z), 4), 10 * torch.eye(4)
    means, deviations = [], []
    for t in range(z.shape[1]):
        gain = covariance @ SEEN.T @ torch.linalg.inv(SEEN @ covariance @ SEEN.T + NOISE)
        filtered = mean + (z[:, t] - mean @ SEEN.T) @ gain.T
        remaining = covariance - gain @ SEEN @ covariance
        means.append(filtered)
        deviations.append(remaining[0, 0].sqrt())
        mean, covariance = filtered @ MOTION.T, MOTION @ remaining @ MOTION.T + DRIFT
    return {"filtered": torch.stack(means, 1), "deviation": torch.stack(deviations)}


def gru(weights: dict[str, Tensor], name: str, x: Tensor, h: Tensor) -> Tensor:
    entering, states = x @ weights[f"{name}.input.weight"] + weights[f"{name}.input.bias"], []
    for t in range(x.shape[1]):
        reset_x, update_x, new_x = entering[:, t].chunk(3, -1)
        mapped = torch.addmm(weights[f"{name}.hidden.bias"], h, weights[f"{name}.hidden.weight"])
        reset_h, update_h, new_h = mapped.chunk(3, -1)
        reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
        h = (1 - update) * torch.tanh(new_x + reset * new_h) + update * h
        states.append(h)
    return torch.stack(states, 1)


def translation_loss(weights: dict[str, Tensor], source: Tensor, target: Tensor) -> Tensor:
    """Of one batch."""
    source, target = source.long(), target.long()
    zero = torch.zeros(len(source), len(weights["encoder.hidden.weight"]))
    states = gru(weights, "encoder", weights["read.weight"][source], zero)
    before = torch.nn.functional.pad(target[:, :-1], (1, 0))
    h = gru(weights, "decoder", weights["written.weight"][before], states[:, -1])
    found = torch.softmax(h @ states.transpose(1, 2), -1) @ states
    logits = torch.cat([h, found], -1) @ weights["said.weight"] + weights["said.bias"]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def translator(source: Tensor, target: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"loss": torch.stack([translation_loss(weights, *batch) for batch in zip(source, target)])}


def translator_training(source: Tensor, target: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = {name: each.clone().requires_grad_() for name, each in weights.items()}
    adam, losses = torch.optim.Adam(weights.values(), lr=RATE), []
    for batch in zip(source, target):
        adam.zero_grad()
        loss = translation_loss(weights, *batch)
        loss.backward()
        adam.step()
        losses.append(loss.detach())
    return {"loss": torch.stack(losses)}


MODELS = (rnn, lstm, lstm_bptt, state_space, wave, value_iteration, edit_distance, kalman)
PEERS = {each.__name__: each for each in (*MODELS, translator, translator_training)}
LEARN = ("lstm_bptt", "translator_training")


def prepare(name: str, inputs: dict[str, Any], sizes: dict[str, int]) -> Any:
    """A call without arguments; inputs are the library's arrays."""

    def run() -> dict[str, Tensor]:
        with torch.inference_mode(name not in LEARN):
            return PEERS[name](**inputs, **sizes)

    return run
