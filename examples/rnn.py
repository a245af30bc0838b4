"""An Elman network that learns to repeat what it heard some steps ago, by backpropagation through time.

    h[t] = tanh(x[t] @ wx + h[t - 1] @ wh + bias)        w[i + 1] = w[i] - rate * tp.grad(loss, w)[i]

Training is part of the program: iterations are a dim `i`, and a weight is what the step before made of it. `--check`
trains the same network in PyTorch and compares the losses.

    python examples/rnn.py --check --plot out/rnn.png
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

DELAY = 3
RATE = 0.5


def rnn(
    x: tp.RecurrentTensor,
    wx: tp.RecurrentTensor,
    wh: tp.RecurrentTensor,
    bias: tp.RecurrentTensor,
    dims: tuple[tp.Dim, ...],
) -> tp.RecurrentTensor:
    """The states, over `dims`; the last of them is time."""
    t = dims[-1]
    before = tp.recurrent("before", shape=bias.shape, dims=dims)
    h = tp.tanh(x @ wx + bias + before @ wh)
    before[t == 0] = 0
    before[..., t + 1] = h
    return h


def weights(hidden: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"wx": (1, hidden), "wh": (hidden, hidden), "bias": (hidden,), "out": (hidden,)}
    return {name: draw.normal(0, hidden**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def training(initial: Mapping[str, np.ndarray]) -> tp.Program:
    with tp.Program("rnn") as program:
        i, b, t = tp.dims("i b t")  # iterations, sequences, steps
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        x = tp.random.bernoulli(0.5, (1,), dims=(i, b, t)).astype(tp.float32)
        logit = rnn(x, w["wx"], w["wh"], w["bias"], dims=(i, b, t)) @ w["out"]
        heard = x[i, b, t - DELAY].spatial[0]
        wrong = tp.log1p(tp.exp(-tp.abs(logit))) + tp.relu(logit) - heard * logit  # cross entropy
        loss = wrong[i, :, DELAY : t.size].mean()
        for name, gradient in tp.grad(loss, w).items():
            w[name][i + 1] = w[name] - RATE * gradient
        tp.output("x", x)
        tp.output("loss", loss)
        tp.output("logit", logit[-1, 0])
    return program


def torch_loop(initial: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The peer: the losses of the same training in PyTorch, on the same sequences."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in initial.items()}
    losses = []
    for sequences in torch.tensor(x):
        h, logits = torch.zeros(len(sequences), len(w["bias"])), []
        for t in range(sequences.shape[1]):
            h = torch.tanh(sequences[:, t] @ w["wx"] + h @ w["wh"] + w["bias"])
            logits.append(h @ w["out"])
        heard = sequences[:, :-DELAY, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(torch.stack(logits[DELAY:], 1), heard)
        losses.append(loss.item())
        for each, gradient in zip(w.values(), torch.autograd.grad(loss, list(w.values()))):
            each.data -= RATE * gradient
    return np.array(losses)


def plot(path: Path, found: Mapping[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained")
    above.plot(found["loss"])
    above.set(title="RNN: cross entropy", xlabel="iteration i", ylabel="loss")
    below.step(np.arange(DELAY, len(found["logit"])), found["x"][-1, 0, :-DELAY, 0], color="0.6", label="heard")
    below.plot(1 / (1 + np.exp(-found["logit"])), "o", markersize=3, label="said")
    below.set(title=f"what was heard {DELAY} steps ago, and what is said, after training", xlabel="step t")
    below.legend(loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="sequences of an iteration")
    parser.add_argument("--steps", type=int, default=24, help="of a sequence")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to the same training in PyTorch")
    parser.add_argument("--plot", type=Path, help="write a picture of the losses and of a sequence")
    options = parser.parse_args(arguments)

    initial = weights(options.hidden, options.seed)
    sizes = {"i": options.iterations, "b": options.batch, "t": options.steps}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(training(initial), backend=options.backend, sizes=sizes, **lies)
    start = time.perf_counter()
    outputs = run(seed=options.seed)
    found = {name: np.asarray(outputs[name]) for name in ("x", "loss", "logit")}
    seconds = time.perf_counter() - start
    print(f"{options.iterations} iterations in {seconds:.2f} s: loss {found['loss'][0]:.3f} to {found['loss'][-1]:.3f}")
    on_mesh.tell(options, run)
    if options.check:
        start = time.perf_counter()
        expected = torch_loop(initial, found["x"])
        print(f"PyTorch: {time.perf_counter() - start:.2f} s")
        np.testing.assert_allclose(found["loss"][:20], expected[:20], rtol=1e-3)
        np.testing.assert_allclose(found["loss"][-20:].mean(), expected[-20:].mean(), rtol=0.2, atol=0.02)
        print("equal to PyTorch: the first 20 losses to 1e-3, the last 20 on average")
    if options.plot:
        plot(options.plot, found)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
