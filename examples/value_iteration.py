"""Value iteration: what each state of a maze is worth, swept until nothing changes.

    v[k + 1, s] = max over actions of (reward[s] + gamma * sum over next states n of p[s, action, n] * v[k, n])

The sweeps end when one moves no value by more than `--tolerance`, or after `--sweeps`. `--check` runs the same thing as
a NumPy loop and compares the way that the policy goes.

    python examples/value_iteration.py --tolerance 1e-4 --check --plot out/value_iteration.png
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

GAMMA = 0.95
SLIP = 0.1  # how often a move goes to either side of where it should
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


def value_iteration(actions: int, tolerance: float | None = None) -> tp.Program:
    """Values and policy of the last sweep; with a tolerance, of every sweep until one moves no value by more."""
    with tp.Program("value_iteration") as program:
        k, s = tp.dims("k s")  # sweeps, states
        reward = tp.input("reward", shape=(actions,), dims=(s,))
        p = tp.input("p", shape=(actions, s.size), dims=(s,))
        v = tp.recurrent("v", shape=(), dims=(k, s))
        q = reward + GAMMA * (p @ v[k, :])
        better = q.max(axis=-1)
        v[0, s] = 0
        v[k + 1, s] = better
        residual = tp.abs(better - v)[k, :].max()
        value, policy = better, q.argmax(axis=-1)
        if tolerance is None:
            value, policy = value[-1], policy[-1]
        else:
            tp.stop_when(k, residual <= tolerance)
        tp.output("residual", residual)
        tp.output("value", value)
        tp.output("policy", policy)
    return program


def maze(size: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Its walls, and the program's inputs. The goal is the last cell: there one stays, and earns 1 a move."""
    draw = np.random.default_rng(seed)
    wall = draw.random((size, size)) < 0.25
    wall[0, 0] = wall[-1, -1] = False
    cells, goal = size * size, size * size - 1
    p = np.zeros((cells, len(MOVES), cells), np.float32)
    for cell in range(cells):
        for action in range(len(MOVES)):
            for turn, chance in ((0, 1 - 2 * SLIP), (1, SLIP), (-1, SLIP)):
                y, x = np.divmod(cell, size) + MOVES[(action + turn) % len(MOVES)]
                blocked = cell == goal or not (0 <= y < size and 0 <= x < size) or wall[y, x]
                p[cell, action, cell if blocked else y * size + x] += chance
    reward = np.zeros((cells, len(MOVES)), np.float32)
    reward[goal] = 1
    return wall, {"reward": reward, "p": p}


def numpy_loop(reward: np.ndarray, p: np.ndarray, sweeps: int, tolerance: float) -> dict[str, np.ndarray]:
    """The peer: what one writes without Tempo."""
    value, residual = np.zeros(len(p), np.float32), []
    for _ in range(sweeps):
        q = reward + np.float32(GAMMA) * (p @ value)
        residual.append(np.abs(q.max(axis=-1) - value).max())
        value = q.max(axis=-1)
        if residual[-1] <= tolerance:
            break
    return {"residual": np.array(residual), "value": value, "q": q}


def plot(path: Path, wall: np.ndarray, found: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    image = left.imshow(np.where(wall, np.nan, found["value"].reshape(wall.shape)))
    figure.colorbar(image, ax=left, label="value")
    moves = MOVES[found["policy"]].reshape(*wall.shape, 2) * ~wall[..., None]
    left.quiver(moves[..., 1], -moves[..., 0], color="white")
    left.set(title="value, and the policy's moves")
    right.semilogy(found["residual"])
    right.set(title="largest change of a value in a sweep", xlabel="sweep k")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--size", type=int, default=12, help="rows and columns of the maze")
    parser.add_argument("--sweeps", type=int, default=200, help="at most")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to a NumPy loop")
    parser.add_argument("--plot", type=Path, help="write a picture of the maze")
    options = parser.parse_args(arguments)

    wall, given = maze(options.size, options.seed)
    program = value_iteration(len(MOVES), options.tolerance)
    lies = on_mesh.arguments(options, shard={"s": "data"})
    run = tp.compile(program, backend=options.backend, sizes={"k": options.sweeps}, **lies)
    start = time.perf_counter()
    outputs = run(**given)
    seconds = time.perf_counter() - start
    found = {name: np.asarray(outputs[name])[-1] for name in ("value", "policy")}
    found["residual"] = np.asarray(outputs["residual"])
    last, sweeps = found["residual"][-1], outputs.sizes["k"]
    print(f"{sweeps} sweeps over {wall.size} states in {seconds:.3f} s; the last moved {last:.1e}")
    print(f"the start is worth {found['value'][0]:.3f}, the goal {found['value'][-1]:.3f}")
    on_mesh.tell(options, run)
    if options.check:
        expected = numpy_loop(**given, sweeps=options.sweeps, tolerance=options.tolerance)
        assert len(expected["residual"]) == sweeps, f"the NumPy loop took {len(expected['residual'])} sweeps"
        np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-4)
        np.testing.assert_allclose(found["residual"], expected["residual"], rtol=1e-2, atol=1e-5)
        chosen = np.take_along_axis(expected["q"], found["policy"][:, None], axis=1)[:, 0]
        np.testing.assert_allclose(chosen, expected["value"], rtol=1e-4, err_msg="policy")
        print("equal to the NumPy loop to 1e-4, and the policy chooses best actions")
    if options.plot:
        plot(options.plot, wall, found)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
