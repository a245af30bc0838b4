"""A Kalman filter: objects that move in the plane, followed through noisy sightings.

The filter's covariance does not depend on what is seen: its equations have no object dim, so it is computed once for
all objects, though nobody says so here. `--check` runs the same thing as a NumPy loop.

    python examples/kalman.py --check --plot out/kalman.png
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

STEP, PUSH, BLUR = 0.1, 0.5, 0.3  # seconds a step; deviations of the acceleration and of a sighting
MOTION = np.kron(np.array([[1, STEP], [0, 1]]), np.eye(2)).astype(np.float32)  # of (x, y, velocity x, velocity y)
SEEN = np.eye(2, 4, dtype=np.float32)
_GAIN = np.kron(np.array([[STEP**2 / 2], [STEP]]), np.eye(2))
DRIFT = (PUSH**2 * _GAIN @ _GAIN.T).astype(np.float32)
NOISE = (BLUR**2 * np.eye(2)).astype(np.float32)


def kalman_filter() -> tp.Program:
    with tp.Program("kalman") as program:
        b, t = tp.dims("b t")  # objects, steps
        z = tp.input("z", shape=(2,), dims=(b, t))
        motion, seen, drift, noise = (tp.constant(array) for array in (MOTION, SEEN, DRIFT, NOISE))

        # What is believed of a step before it is seen: a mean, and a covariance.
        mean = tp.recurrent("mean", shape=(4,), dims=(b, t))
        covariance = tp.recurrent("covariance", shape=(4, 4), dims=(t,))
        gain = covariance @ seen.T @ inverse(seen @ covariance @ seen.T + noise)
        filtered = mean + gain @ (z - seen @ mean)
        remaining = covariance - gain @ seen @ covariance

        mean[b, 0] = tp.zeros((4,))
        covariance[0] = 10 * tp.constant(np.eye(4, dtype=np.float32))
        mean[b, t + 1] = motion @ filtered
        covariance[t + 1] = motion @ remaining @ motion.T + drift
        tp.output("filtered", filtered)
        tp.output("deviation", tp.sqrt(remaining.spatial[0, 0]))
    return program


def inverse(m: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Of a 2 x 2 matrix."""
    a, b, c, d = (m.spatial[row, column] for row in range(2) for column in range(2))
    return tp.stack([tp.stack([d, -b]), tp.stack([-c, a])]) / (a * d - b * c)


def sightings(objects: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the objects were, and where they were seen."""
    draw = np.random.default_rng(seed)
    state = draw.normal(0, 1, (objects, 4))
    truth = np.empty((objects, steps, 2))
    for t in range(steps):
        truth[:, t] = state[:, :2]
        state = state @ MOTION.T + draw.normal(0, PUSH, (objects, 2)) @ _GAIN.T
    return truth, (truth + draw.normal(0, BLUR, truth.shape)).astype(np.float32)


def numpy_loop(z: np.ndarray) -> dict[str, np.ndarray]:
    """The peer: what one writes without Tempo."""
    objects, steps, _ = z.shape
    mean, covariance = np.zeros((objects, 4), np.float32), 10 * np.eye(4, dtype=np.float32)
    filtered, deviation = np.empty((objects, steps, 4), np.float32), np.empty(steps, np.float32)
    for t in range(steps):
        gain = covariance @ SEEN.T @ np.linalg.inv(SEEN @ covariance @ SEEN.T + NOISE)
        filtered[:, t] = mean + (z[:, t] - mean @ SEEN.T) @ gain.T
        remaining = covariance - gain @ SEEN @ covariance
        deviation[t] = np.sqrt(remaining[0, 0])
        mean, covariance = filtered[:, t] @ MOTION.T, MOTION @ remaining @ MOTION.T + DRIFT
    return {"filtered": filtered, "deviation": deviation}


def plot(path: Path, truth: np.ndarray, z: np.ndarray, filtered: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    axes.plot(*z[0].T, ".", color="0.7", label="seen")
    axes.plot(*truth[0].T, label="true")
    axes.plot(*filtered[0, :, :2].T, label="filtered")
    axes.set(title="Kalman filter: the way of one object", xlabel="x", ylabel="y", aspect="equal")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--objects", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to a NumPy loop")
    parser.add_argument("--plot", type=Path, help="write a picture of one object's way")
    options = parser.parse_args(arguments)

    truth, z = sightings(options.objects, options.steps, options.seed)
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(kalman_filter(), backend=options.backend, **lies)
    start = time.perf_counter()
    outputs = run(z=z)
    seconds = time.perf_counter() - start
    filtered, deviation = np.asarray(outputs["filtered"]), np.asarray(outputs["deviation"])
    error, before = (np.sqrt(((where - truth)[:, 50:] ** 2).mean()) for where in (filtered[..., :2], z))
    print(f"{options.objects} objects, {options.steps} steps in {seconds:.3f} s")
    print(f"error of a coordinate: {before:.3f} seen, {error:.3f} filtered, {deviation[-1]:.3f} by its own account")
    on_mesh.tell(options, run)
    if options.check:
        expected = numpy_loop(z)
        np.testing.assert_allclose(filtered, expected["filtered"], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(deviation, expected["deviation"], rtol=1e-3)
        print("equal to the NumPy loop to 1e-3")
    if options.plot:
        plot(options.plot, truth, z, filtered)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
