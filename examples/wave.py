"""A stencil over space and time: the wave equation on a plate whose edge is held still.

    u[t + 1] - 2 u[t] + u[t - 1] = courant^2 * (sum of the four neighbours - 4 u[t])

Rows and columns are dims as time is; the edge is a case of the definition. `--check` runs the same thing as a NumPy
loop.

    python examples/wave.py --check --plot out/wave.png
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

COURANT = 0.5


def wave() -> tp.Program:
    with tp.Program("wave") as program:
        t, y, x = tp.dims("t y x")
        start = tp.input("start", shape=(), dims=(y, x))
        u = tp.recurrent("u", shape=(), dims=(t, y, x))
        now, before = u[t - 1, y, x], u[t - 2, y, x]
        around = u[t - 1, y - 1, x] + u[t - 1, y + 1, x] + u[t - 1, y, x - 1] + u[t - 1, y, x + 1]

        u[(y == 0) | (y == y.size - 1) | (x == 0) | (x == x.size - 1)] = 0
        u[t < 2] = start  # the plate starts at rest
        u[t, y, x] = 2 * now - before + COURANT**2 * (around - 4 * now)
        tp.output("first", u[0])
        tp.output("last", u[-1])
        tp.output("energy", (u[t, 0 : y.size, 0 : x.size] ** 2).sum())
    return program


def bump(size: int) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size] / (size - 1)
    return np.exp(-200 * ((y - 0.35) ** 2 + (x - 0.4) ** 2)).astype(np.float32)


def numpy_loop(start: np.ndarray, steps: int) -> dict[str, np.ndarray]:
    """The peer: what one writes without Tempo."""
    first = np.zeros_like(start)
    first[1:-1, 1:-1] = start[1:-1, 1:-1]
    before, now = first, first
    energy = [(first**2).sum()] * min(2, steps)
    for _ in range(2, steps):
        following = np.zeros_like(now)
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        inner = now[1:-1, 1:-1]
        following[1:-1, 1:-1] = 2 * inner - before[1:-1, 1:-1] + np.float32(COURANT**2) * (around - 4 * inner)
        before, now = now, following
        energy.append((now**2).sum())
    return {"first": first, "last": now, "energy": np.array(energy)}


def plot(path: Path, found: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    limit = np.abs(found["last"]).max()
    left.imshow(found["first"], cmap="RdBu", vmin=-1, vmax=1)
    middle.imshow(found["last"], cmap="RdBu", vmin=-limit, vmax=limit)
    right.plot(found["energy"])
    left.set(title="u at the start")
    middle.set(title=f"u after {len(found['energy'])} steps")
    right.set(title="sum of squares", xlabel="step t")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--size", type=int, default=64, help="rows and columns of the plate")
    parser.add_argument("--check", action="store_true", help="compare to a NumPy loop")
    parser.add_argument("--plot", type=Path, help="write a picture of the plate")
    options = parser.parse_args(arguments)

    lies = on_mesh.arguments(options, shard={"y": "data"})
    run = tp.compile(wave(), backend=options.backend, **lies)
    start = time.perf_counter()
    outputs = run(start=bump(options.size), sizes={"t": options.steps})
    seconds = time.perf_counter() - start
    found = {name: np.asarray(outputs[name]) for name in ("first", "last", "energy")}
    print(f"{options.steps} steps of a plate of {options.size} x {options.size} in {seconds:.3f} s")
    print(f"sum of squares: {found['energy'][0]:.4f} at the start, {found['energy'][-1]:.4f} at the end")
    on_mesh.tell(options, run)
    if options.check:
        for name, expected in numpy_loop(bump(options.size), options.steps).items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-5, err_msg=name)
        print("equal to the NumPy loop to 1e-3")
    if options.plot:
        plot(options.plot, found)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
