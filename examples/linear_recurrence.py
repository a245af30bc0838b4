"""A state space model: channels of diagonal linear recurrences, as in S4D and its successors.

    h[t] = a * h[t - 1] + w_in * u[t]        y[t] = sum over states of w_out * h[t]

Each channel is a filter with `states` poles. `--check` compares with the convolution that the same filter is.

    python examples/linear_recurrence.py --check --plot out/linear_recurrence.png
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


def state_space(channels: int, states: int) -> tp.Program:
    with tp.Program("state_space") as program:
        b, t = tp.dims("b t")  # sequences, steps
        u = tp.input("u", shape=(channels,), dims=(b, t))
        a, w_in, w_out = (tp.input(name, shape=(channels, states), dims=()) for name in ("a", "w_in", "w_out"))

        drive = u.spatial[:, None] * w_in
        h = tp.recurrent("h", shape=(channels, states), dims=(b, t))
        h[b, 0] = drive
        h[b, t + 1] = a * h + drive[b, t + 1]
        tp.output("y", (h * w_out).sum(axis=-1))
    return program


def inputs(batch: int, steps: int, channels: int, states: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    halved_after = np.geomspace(2, 256, channels * states).reshape(states, channels).T  # steps until half is forgotten
    return {
        "u": draw.normal(0, 1, (batch, steps, channels)).astype(np.float32),
        "a": (0.5 ** (1 / halved_after)).astype(np.float32),
        "w_in": draw.normal(0, states**-0.5, (channels, states)).astype(np.float32),
        "w_out": draw.normal(0, states**-0.5, (channels, states)).astype(np.float32),
    }


def convolution(u: np.ndarray, a: np.ndarray, w_in: np.ndarray, w_out: np.ndarray) -> np.ndarray:
    """The peer: y[t] is the sum over s of k[s] * u[t - s], where k[s] is the sum over states of w_out * a**s * w_in."""
    steps = u.shape[1]
    powers = a.astype(np.float64)[None] ** np.arange(steps)[:, None, None]
    kernel = (powers * (w_in * w_out)).sum(axis=-1)
    spectrum = np.fft.rfft(u, 2 * steps, axis=1) * np.fft.rfft(kernel, 2 * steps, axis=0)
    return np.fft.irfft(spectrum, axis=1)[:, :steps].astype(np.float32)


def plot(path: Path, given: Mapping[str, np.ndarray], y: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    for channel in range(min(4, y.shape[-1])):
        above.plot(given["u"][0, :, channel], linewidth=0.8)
        below.plot(y[0, :, channel], label=f"channel {channel}")
    above.set(title="State space model: the inputs of a sequence, and what the filters make of them", ylabel="u")
    below.set(xlabel="step t", ylabel="y")
    below.legend(loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--states", type=int, default=8, help="of each channel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare with the convolution")
    parser.add_argument("--plot", type=Path, help="write a picture of inputs and outputs")
    options = parser.parse_args(arguments)

    given = inputs(options.batch, options.steps, options.channels, options.states, options.seed)
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(state_space(options.channels, options.states), backend=options.backend, **lies)
    start = time.perf_counter()
    y = np.asarray(run(**given)["y"])
    seconds = time.perf_counter() - start
    print(f"{options.batch} sequences of {options.steps} steps in {seconds:.3f} s; root mean square {y.std():.3f}")
    on_mesh.tell(options, run)
    if options.check:
        np.testing.assert_allclose(y, convolution(**given), rtol=1e-3, atol=1e-4)
        print("equal to the convolution to 1e-3")
    if options.plot:
        plot(options.plot, given, y)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
