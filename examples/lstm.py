"""An LSTM that learns to add two numbers out of a sequence, by backpropagation through time and Adam.

Each step brings a number in 0..1 and a mark; two steps are marked, and at the end the sum of their numbers is asked for
(the adding problem of Hochreiter and Schmidhuber, 1997). Always saying 1 has a mean squared error of 1/6. `--check`
trains the same network in PyTorch and compares the losses.

    python examples/lstm.py --check --plot out/lstm.png
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

RATE = 0.01


def lstm(
    x: tp.RecurrentTensor,
    wx: tp.RecurrentTensor,
    wh: tp.RecurrentTensor,
    bias: tp.RecurrentTensor,
    dims: tuple[tp.Dim, ...],
) -> tp.RecurrentTensor:
    """The states, over `dims`; the last of them is time. Gates stand in the weights as in, forget, new, out."""
    t, hidden = dims[-1], wh.shape[0]
    h = tp.recurrent("h", shape=(hidden,), dims=dims)  # before the step
    c = tp.recurrent("c", shape=(hidden,), dims=dims)
    enter, forget, new, leave = tp.split(x @ wx + bias + h @ wh, 4, axis=-1)
    cell = tp.sigmoid(forget) * c + tp.sigmoid(enter) * tp.tanh(new)
    out = tp.sigmoid(leave) * tp.tanh(cell)
    h[t == 0] = 0
    c[t == 0] = 0
    h[..., t + 1] = out
    c[..., t + 1] = cell
    return out


def weights(hidden: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"wx": (2, 4 * hidden), "wh": (hidden, 4 * hidden), "bias": (4 * hidden,), "out": (hidden,)}
    made = {name: draw.normal(0, hidden**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    made["bias"][hidden : 2 * hidden] = 1  # remember
    return made


def training(initial: Mapping[str, np.ndarray]) -> tp.Program:
    with tp.Program("lstm") as program:
        i, b, t = tp.dims("i b t")  # iterations, sequences, steps
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        number = tp.random.uniform((), dims=(i, b, t))
        early, late = (tp.random.uniform((), dims=(i, b)) for _ in range(2))
        half = t.size // 2
        is_early = t == tp.floor(early * half).astype(tp.int32)
        is_late = t == half + tp.floor(late * (t.size - half)).astype(tp.int32)
        mark = (is_early | is_late).astype(tp.float32)

        h = lstm(tp.stack([number, mark]), w["wx"], w["wh"], w["bias"], dims=(i, b, t))
        asked = (number * mark)[i, b, :].sum()
        loss = ((h[i, b, -1] @ w["out"] - asked) ** 2)[i, :].mean()
        tp.optim.Adam(RATE).minimize(loss, w)
        tp.output("x", tp.stack([number, mark]))
        tp.output("loss", loss)
    return program


def torch_loop(initial: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The peer: the losses of the same training in PyTorch, on the same sequences."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in initial.items()}
    adam, losses = torch.optim.Adam(w.values(), lr=RATE), []
    for sequences in torch.tensor(x):
        h = c = torch.zeros(len(sequences), len(w["out"]))
        for t in range(sequences.shape[1]):
            enter, forget, new, leave = (sequences[:, t] @ w["wx"] + h @ w["wh"] + w["bias"]).chunk(4, -1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(c)
        loss = ((h @ w["out"] - sequences.prod(-1).sum(-1)) ** 2).mean()
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return np.array(losses)


def plot(path: Path, losses: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.semilogy(losses)
    axes.axhline(1 / 6, color="0.6", linewidth=0.8, label="always 1")
    axes.set(title="LSTM: the adding problem", xlabel="iteration i", ylabel="mean squared error")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="sequences of an iteration")
    parser.add_argument("--steps", type=int, default=16, help="of a sequence")
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to the same training in PyTorch")
    parser.add_argument("--plot", type=Path, help="write a picture of the losses")
    options = parser.parse_args(arguments)

    initial = weights(options.hidden, options.seed)
    sizes = {"i": options.iterations, "b": options.batch, "t": options.steps}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(training(initial), backend=options.backend, sizes=sizes, **lies)
    start = time.perf_counter()
    outputs = run(seed=options.seed)
    x, losses = np.asarray(outputs["x"]), np.asarray(outputs["loss"])
    seconds = time.perf_counter() - start
    print(f"{options.iterations} iterations in {seconds:.2f} s: error {losses[0]:.3f} to {losses[-10:].mean():.3f}")
    on_mesh.tell(options, run)
    if options.check:
        start = time.perf_counter()
        expected = torch_loop(initial, x)
        print(f"PyTorch: {time.perf_counter() - start:.2f} s")
        np.testing.assert_allclose(losses[:20], expected[:20], rtol=1e-2)
        np.testing.assert_allclose(losses[-20:].mean(), expected[-20:].mean(), rtol=0.3, atol=0.02)
        print("equal to PyTorch: the first 20 losses to 1e-2, the last 20 on average")
    if options.plot:
        plot(options.plot, losses)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
