"""A bidirectional RNN that tags: a number lies in a valley where a greater one stands before it, and one behind it.

    forward[t] = tanh(x[t] + forward[t - 1] @ U)        backward[t] = tanh(x[t] + backward[t + 1] @ V)
    tag[t] = softmax([forward[t], backward[t]] @ out)

Sequences of a batch have lengths of their own: `t` is a ragged dim, and `t.last` its last point. Whether rows are
masked or packed (`pack_padded_sequence`) is decided by cost, in each run. `--check` compares values and gradients
with PyTorch, sequence by sequence.

    python examples/dynamic/birnn.py --backend jax --check

Source: Schuster and Paliwal 1997, section II.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import on_mesh

RATE, VOCABULARY, TAGS = 0.01, 10, 2
Weights = Mapping[str, tp.RecurrentTensor]
Arrays = dict[str, np.ndarray]


def birnn(x: tp.RecurrentTensor, w: Weights, dims: tuple[tp.Dim, ...]) -> tp.RecurrentTensor:
    """The states of both directions, over `dims`; the last of them is time."""
    *rows, t = dims
    width = w["U"].shape[0]
    forward, backward = (tp.recurrent(name, (width,), dims) for name in ("forward", "backward"))
    of_forward, of_backward = tp.split(x @ w["W"], 2)
    forward[*rows, 0] = tp.tanh(of_forward)
    forward[*rows, t] = tp.tanh(of_forward + forward[*rows, t - 1] @ w["U"])
    backward[*rows, t.last] = tp.tanh(of_backward)
    backward[*rows, t] = tp.tanh(of_backward + backward[*rows, t + 1] @ w["V"])
    return tp.concatenate([forward, backward])


def tagger(w: Weights, dims: tuple[tp.Dim, ...]) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
    """The logits of each number of a batch, which is given, and their mean cross entropy."""
    b = tp.dim("b")
    t = tp.dim("t", lengths=tp.input("n", (), (b,), tp.int32))
    number, tag = (tp.input(name, (), (b, t), tp.int32) for name in ("number", "tag"))
    logits = birnn(w["embedding"].spatial[number], w, (*dims, b, t)) @ w["out"]
    return logits, tp.cross_entropy(logits, tag)[..., 0 : b.size, 0 : t.size].mean()


def training(initial: Arrays) -> tp.Program:
    """One step: each batch is a run, which begins with the state of the one before."""
    with tp.Program("birnn") as program:
        i = tp.dim("i", 2)  # before the step, and after it
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        _, loss = tagger(w, (i,))
        tp.optim.Adam(RATE).minimize(loss, w)
        tp.output("loss", loss[0])
    return program


def asking(initial: Arrays, learning: bool = True) -> tp.Program:
    """The logits, the loss and, where it is for learning, its gradients."""
    with tp.Program("ask") as program:
        w = {name: tp.parameter(name, array.shape, init=array) for name, array in initial.items()}
        logits, loss = tagger(w, ())
        for name, value in {"logits": logits, "loss": loss, **(tp.grad(loss, w) if learning else {})}.items():
            tp.output(name, value)
    return program


def weights(width: int, draw: np.random.Generator) -> Arrays:
    shapes = {
        "embedding": (VOCABULARY, width),
        "W": (width, 2 * width),
        "U": (width, width),
        "V": (width, width),
        "out": (2 * width, TAGS),
    }
    return {name: draw.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def sequences(rows: int, longest: int, draw: np.random.Generator) -> Arrays:
    """A batch. Nobody reads what stands behind the end of a sequence: here it is -1."""
    n = draw.integers(1, longest, rows, endpoint=True).astype(np.int32)
    number, tag = np.full((2, rows, n.max()), -1, np.int32)
    for row, length in enumerate(n):
        x = number[row, :length] = draw.integers(0, VOCABULARY, length)
        before, behind = np.maximum.accumulate(x), np.maximum.accumulate(x[::-1])[::-1]
        tag[row, :length] = (before > x) & (behind > x)
    return {"n": n, "number": number, "tag": tag}


def torch_values(w: Mapping[str, Any], batch: Arrays) -> dict[str, Any]:
    """The peer: logits and loss in PyTorch, a sequence after another."""
    import torch

    zero = torch.zeros(len(w["U"]))
    logits = []
    for number, length in zip(batch["number"], batch["n"]):
        x = w["embedding"][torch.tensor(number[:length]).long()] @ w["W"]
        states: dict[str, list[torch.Tensor]] = {"U": [], "V": []}
        for (name, made), inputs in zip(states.items(), (x.chunk(2, 1)[0], x.chunk(2, 1)[1].flip(0))):
            for each in inputs:
                made.append(torch.tanh(each + (made[-1] if made else zero) @ w[name]))
        logits.append(torch.cat([torch.stack(states["U"]), torch.stack(states["V"][::-1])], 1) @ w["out"])
    tags = torch.cat([torch.tensor(tag[:length]) for tag, length in zip(batch["tag"], batch["n"])]).long()
    loss = torch.nn.functional.cross_entropy(torch.cat(logits), tags)
    return {"logits": torch.nn.utils.rnn.pad_sequence(logits, batch_first=True), "loss": loss}


def torch_loop(weights: Arrays, batch: Arrays) -> Arrays:
    """Values and gradients."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    found = torch_values(w, batch)
    found |= zip(w, torch.autograd.grad(found["loss"], list(w.values())))
    return {name: each.detach().numpy() for name, each in found.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=64, help="sequences of a batch")
    parser.add_argument("--longest", type=int, default=20, help="the most numbers of a sequence")
    parser.add_argument("--width", type=int, default=32, help="of the state of a direction")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, sequence by sequence")
    options = parser.parse_args(arguments)

    draw = np.random.default_rng(options.seed)
    initial = weights(options.width, draw)
    buckets = tp.Options(buckets={"t": "pow2"})
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(training(initial), options.backend, options=buckets, **lies)
    state: Any = None
    losses: list[float] = []
    start = time.perf_counter()
    for _ in range(options.steps):
        outputs = run(**sequences(options.rows, options.longest, draw), state=state)
        state = outputs.state
        losses.append(float(outputs["loss"]))
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    on_mesh.tell(options, run)

    test = sequences(options.rows, options.longest, draw)
    ask = tp.compile(asking(initial), options.backend, options=buckets, **lies)
    found = {name: np.asarray(array) for name, array in ask(**test, state=state).items()}
    inside = np.arange(test["tag"].shape[1]) < test["n"][:, None]
    right = (found["logits"].argmax(2) == test["tag"])[inside]
    print(f"sequences of {test['n'].min()} to {test['n'].max()} numbers: {100 * right.mean():.1f} % of tags are right")
    one = zip(test["number"][0, : test["n"][0]], found["logits"][0].argmax(1))
    print("one of them, with its valleys: " + " ".join(f"[{number}]" if tag else str(number) for number, tag in one))
    if options.check:
        learned = {name: np.asarray(state[name]) for name in initial}
        wanted = torch_loop(learned, test)
        differences = {name: np.abs(found[name] - each).max() / np.abs(each).max() for name, each in wanted.items()}
        name = max(differences, key=lambda name: differences[name])
        assert differences[name] < 1e-4, differences
        print(f"equal to PyTorch: values and gradients; the greatest difference is {differences[name]:.1e}, of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
