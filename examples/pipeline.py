"""A transformer learns to sort digits, its layers given to the devices of a pipeline.

    h[m, l + 1] = block(h[m, l], w[l])        w[i + 1, l] = w[i, l] + Adam's step along tp.grad(loss, w)[i, l]

The block is written once, for every microbatch `m` and layer `l`. With `--mesh stage=4` each device has a quarter of
the layers, with their weights and Adam's moments, and hands on what it has made of one microbatch while it makes the
next: M microbatches go through S stages in M + S - 1 waves, in S - 1 of which a device waits (the bubble). The
sequences of a microbatch lie along `data`: `--mesh stage=2,data=2`. `--check` trains the same network in PyTorch and
compares the losses.

    python examples/pipeline.py --backend jax --mesh stage=4 --check --plot out/pipeline.png

Source: Huang et al. 2019, "GPipe", section 2; Vaswani et al. 2017, section 3.
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

DIGITS = 10
RATE = 3e-3
PIPELINE = tp.Pipeline("l", over="stage", microbatches="m")
SIZES = {
    "iterations": (300, "steps of training"),
    "layers": (8, "blocks of the transformer"),
    "microbatches": (8, "of an iteration"),
    "batch": (8, "sequences of a microbatch"),
    "length": (8, "digits of a sequence"),
    "width": (32, "of the residual stream"),
    "seed": (0, "of the weights and the sequences"),
}


def block(x: tp.RecurrentTensor, w: Mapping[str, tp.RecurrentTensor]) -> tp.RecurrentTensor:
    """Attention, then a network at each position: (length, width)."""
    normed = tp.rms_norm(x)
    query, key, value = (normed @ w[name] for name in ("query", "key", "value"))
    x = x + tp.softmax(query @ key.T * x.shape[-1] ** -0.5) @ value @ w["out"]
    return x + tp.relu(tp.rms_norm(x) @ w["up"]) @ w["down"]


def weights(layers: int, length: int, width: int, seed: int) -> dict[str, np.ndarray]:
    """Those of blocks have an axis of layers in front."""
    draw = np.random.default_rng(seed)
    square = dict.fromkeys(("query", "key", "value", "out"), (layers, width, width))
    of_blocks = {**square, "up": (layers, width, 2 * width), "down": (layers, 2 * width, width)}
    shapes = {"digit": (DIGITS, width), "position": (length, width), "head": (width, DIGITS), **of_blocks}
    made = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name in ("head", *of_blocks):
        made[name] *= shapes[name][-2] ** -0.5
    for name in ("out", "down"):  # so that many layers add up to no more than few
        made[name] *= layers**-0.5
    return made


def training(initial: Mapping[str, np.ndarray], iterations: int) -> tp.Program:
    with tp.Program("pipeline") as program:
        i, m, l, b = tp.dims("i m l b")  # iterations, microbatches, layers, sequences of a microbatch
        w = {}
        for name, array in initial.items():
            dims = (i, l) if array.ndim == 3 else (i,)
            w[name] = tp.parameter(name, array.shape[-2:], init=array, dims=dims)
        length, width = initial["position"].shape
        x = tp.floor(DIGITS * tp.random.uniform((length,), dims=(i, m, b))).astype(tp.int32)

        h = tp.recurrent("h", (length, width), dims=(i, m, l, b))  # in front of the block
        made = block(h, w)
        h[i, m, 0, b] = tp.take(w["digit"], x, axis=0) + w["position"]
        h[i, m, l + 1, b] = made

        logits, ordered = tp.rms_norm(made[i, m, -1, b]) @ w["head"], tp.sort(x)
        loss = tp.cross_entropy(logits, ordered)[i, :, :].mean()
        right = tp.argmax(logits, axis=-1) == ordered
        tp.optim.Adam(tp.optim.linear(RATE, 0.0, iterations), dim=i).minimize(loss, w)
        tp.output("x", x)
        tp.output("loss", loss)
        tp.output("right", right.astype(tp.float32)[i, :, :].mean())
    return program


def torch_loop(initial: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The peer: the losses of the same training in PyTorch, on the same sequences."""
    import torch
    from torch.nn import functional

    w = {name: torch.tensor(array, requires_grad=True) for name, array in initial.items()}
    adam, losses = torch.optim.Adam(w.values(), lr=RATE), []
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / len(x))
    layers, width = w["up"].shape[:2]

    def norm(h: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(h, (width,), eps=1e-6)

    for digits in torch.tensor(x).flatten(1, 2).long():  # all microbatches at once
        h = w["digit"][digits] + w["position"]
        for l in range(layers):
            query, key, value = (norm(h) @ w[name][l] for name in ("query", "key", "value"))
            h = h + torch.softmax(query @ key.mT * width**-0.5, -1) @ value @ w["out"][l]
            h = h + torch.relu(norm(h) @ w["up"][l]) @ w["down"][l]
        loss = functional.cross_entropy((norm(h) @ w["head"]).flatten(0, 1), digits.sort(-1).values.flatten())
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
        rate.step()
    return np.array(losses)


def schedule(stages: int, microbatches: int) -> np.ndarray:
    """The microbatch that each stage works on in each wave, there and back; NaN where it waits: (stages, waves)."""
    there = np.arange(stages + microbatches - 1) - np.arange(stages)[:, None]
    there = np.where((there >= 0) & (there < microbatches), there, np.nan)
    return np.concatenate([there, there[:, ::-1]], axis=1)


def plot(path: Path, losses: np.ndarray, stages: int, microbatches: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1 + (stages > 1), figsize=(9, 6), layout="constrained", squeeze=False)
    axes[0, 0].semilogy(losses)
    axes[0, 0].set(title="a transformer learns to sort digits", xlabel="iteration i", ylabel="cross entropy")
    if stages > 1:
        works, below = schedule(stages, microbatches), axes[1, 0]
        below.pcolormesh(works, cmap="viridis", vmax=1.4 * microbatches, edgecolors="white")
        for stage, wave in np.argwhere(~np.isnan(works)):
            number = f"{works[stage, wave]:.0f}"
            below.text(wave + 0.5, stage + 0.5, number, ha="center", va="center", color="white")
        waves = works.shape[1] // 2
        below.axvline(waves, color="tab:red")
        below.set(title=f"the microbatch that each stage works on: {waves} waves, and back for gradients; idle in "
                  f"{stages - 1} of {waves}", xlabel="wave", ylabel="stage", yticks=np.arange(stages) + 0.5,
                  yticklabels=range(stages))  # fmt: skip
        below.xaxis.get_major_locator().set_params(integer=True)
        below.invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    for name, (number, meaning) in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=number, help=meaning)
    parser.add_argument("--check", action="store_true", help="compare to the same training in PyTorch")
    parser.add_argument("--plot", type=Path, help="write a picture of the waves and of the losses")
    options = parser.parse_args(arguments)

    initial = weights(options.layers, options.length, options.width, options.seed)
    sizes = {"i": options.iterations, "m": options.microbatches, "l": options.layers, "b": options.batch}
    lies = on_mesh.arguments(options, shard={"b": "data"}, pipeline=PIPELINE)
    run = tp.compile(training(initial, options.iterations), options.backend, sizes=sizes, **lies)
    start = time.perf_counter()
    outputs = run(seed=options.seed)
    x, losses, right = (np.asarray(outputs[name]) for name in ("x", "loss", "right"))
    seconds = time.perf_counter() - start
    print(f"{options.iterations} iterations in {seconds:.2f} s: loss {losses[0]:.3f} to {losses[-10:].mean():.3f}, "
          f"{right[0]:.0%} to {right[-10:].mean():.0%} of the digits right")  # fmt: skip
    on_mesh.tell(options, run)
    if options.check:
        start = time.perf_counter()
        expected = torch_loop(initial, x)
        print(f"PyTorch: {time.perf_counter() - start:.2f} s")
        np.testing.assert_allclose(losses[:20], expected[:20], rtol=1e-3)
        np.testing.assert_allclose(losses[-20:].mean(), expected[-20:].mean(), rtol=0.5, atol=0.02)
        print("equal to PyTorch: the first 20 losses to 1e-3, the last 20 on average")
    if options.plot:
        stages = 1 if options.mesh is None else options.mesh.axes.get(PIPELINE.over, 1)
        plot(options.plot, losses, stages, options.microbatches)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
