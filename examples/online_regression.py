"""Linear regression over a sliding window, online: with every sample that comes the weights take a step.

    loss[t] = mean over the last samples s of (x[s] @ w[t] - y[s])^2        w[t + 1] = w[t] - rate * d loss[t] / d w[t]

The samples are a stream whose end nobody knows, of a truth that drifts. The window is all that is kept of them, however
many come. `--check` runs the same thing as a NumPy loop.

    python examples/online_regression.py --check --plot out/online_regression.png
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

RATE, NOISE, DRIFT = 0.5, 0.1, 0.005
CHUNK = 100  # samples between two looks at the error


def online_regression(window: int, inputs: int) -> tp.Program:
    """`error` is that of each sample before it was learned from."""
    with tp.Program("online_regression") as program:
        t = tp.dim("t")
        sample = tp.stream_input("sample", shape=(inputs + 1,), dims=(t,))  # x, and y behind it
        w = tp.parameter("w", shape=(inputs,), init=np.zeros(inputs, np.float32), dims=(t,))

        def error(samples: tp.RecurrentTensor) -> tp.RecurrentTensor:
            return samples.spatial[..., :inputs] @ w - samples.spatial[..., inputs]

        loss = (error(sample[tp.max(t - window + 1, 0) : t + 1]) ** 2).mean()
        w[t + 1] = w - RATE * tp.grad(loss, w)
        tp.output("error", error(sample) ** 2)
    return program


def samples(count: int, inputs: int, seed: int) -> Iterator[np.ndarray]:
    """Made as they are asked for: `y = x @ truth` and noise, where the truth walks at random."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=inputs)
    for _ in range(count):
        x = draw.normal(size=inputs) / np.sqrt(inputs)
        yield np.append(x, x @ truth + NOISE * draw.normal()).astype(np.float32)
        truth += DRIFT * draw.normal(size=inputs)


def learn(run: tp.Executable, given: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The mean error of each chunk, and the weights after the last sample that there was."""
    stream = run.stream("t", chunk=CHUNK, keep=False, sizes={"t": None}, sample=given)
    errors = [np.asarray(outputs["error"]).mean() for outputs in stream]
    return np.array(errors), np.asarray(stream.result.state["w"])


def numpy_loop(given: Iterable[np.ndarray], window: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """The peer: what one writes without Tempo."""
    w, after, recent, errors = np.zeros(inputs, np.float32), None, deque[np.ndarray](maxlen=window), []
    for sample in given:
        w = w if after is None else after
        recent.append(sample)
        errors.append((sample[:-1] @ w - sample[-1]) ** 2)
        x, y = np.array(recent)[:, :-1], np.array(recent)[:, -1]
        after = w - np.float32(RATE * 2 / len(recent)) * ((x @ w - y) @ x)
    return np.array([np.mean(errors[at : at + CHUNK]) for at in range(0, len(errors), CHUNK)]), w


def plot(path: Path, errors: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.semilogy(CHUNK * np.arange(1, len(errors) + 1), errors, label="before a sample is learned from")
    axes.axhline(NOISE**2, color="grey", linestyle=":", label="noise alone")
    axes.set(title="Regression over a sliding window, of a truth that drifts", xlabel="samples", ylabel="squared error")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--window", type=int, default=32, help="samples of one loss")
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to a NumPy loop")
    parser.add_argument("--plot", type=Path, help="write a picture of the error")
    options = parser.parse_args(arguments)
    on_mesh.refuse(options, "the weights of each sample wait for those of the one before, so no dim can lie along it")

    program = online_regression(options.window, options.inputs)
    for count in (1000, 4000):
        memory = tp.compile(program, options.backend, sizes={"t": count}).memory
        kept, held = memory["sample"].shape[0], memory.working_bytes
        print(f"of {count} samples it keeps {kept}, and holds {held} bytes beside the errors that it returns")
    run = tp.compile(program, options.backend)
    start = time.perf_counter()
    errors, w = learn(run, samples(options.samples, options.inputs, options.seed))
    print(f"{options.samples} samples in {time.perf_counter() - start:.3f} s")
    print(f"squared error {errors[0]:.3f} at first, {errors[-1]:.3f} at last; noise alone has {NOISE**2:.3f}")
    if options.check:
        given = samples(options.samples, options.inputs, options.seed)
        for found, expected in zip((errors, w), numpy_loop(given, options.window, options.inputs), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        print("equal to the NumPy loop to 1e-3")
    if options.plot:
        plot(options.plot, errors)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
