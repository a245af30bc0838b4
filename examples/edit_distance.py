"""Edit distance of pairs of sequences: dynamic programming over two dims.

    d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (first[i] != second[j]))

`--check` runs the textbook's loops.

    python examples/edit_distance.py --check --plot out/edit_distance.png
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

LETTERS = 4


def edit_distance() -> tp.Program:
    with tp.Program("edit_distance") as program:
        b, i, j = tp.dims("b i j")  # pairs, letters of the first and of the second and the end of each
        first = tp.input("first", shape=(), dims=(b, i), dtype=tp.int32)
        second = tp.input("second", shape=(), dims=(b, j), dtype=tp.int32)
        d = tp.recurrent("d", shape=(), dims=(b, i, j), dtype=tp.int32)
        d[b, 0, j] = j  # insert all
        d[b, i, 0] = i  # delete all
        d[b, i + 1, j + 1] = tp.minimum(tp.minimum(d[b, i, j + 1], d[b, i + 1, j]) + 1, d + (first != second))
        tp.output("distance", d[b, -1, -1])
    return program


def pairs(batch: int, length: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """How many letters of each pair were edited, and the pairs: the second is the first, edited, no longer."""
    draw = np.random.default_rng(seed)
    first = draw.integers(0, LETTERS, (batch, length)).astype(np.int32)
    edits = np.linspace(0, length, batch).astype(int)
    second = np.stack([edited(word, count, draw) for word, count in zip(first, edits)])
    end = np.full((batch, 1), -1, np.int32)
    return edits, {"first": np.hstack([first, end]), "second": np.hstack([second, end])}


def edited(word: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """`count` letters taken out, and as many put in elsewhere."""
    kept = np.delete(word, draw.choice(len(word), count, replace=False))
    return np.insert(kept, draw.integers(0, len(kept) + 1, count), draw.integers(0, LETTERS, count)).astype(np.int32)


def loops(first: np.ndarray, second: np.ndarray) -> int:
    """The peer: the distance of one pair."""
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first):
        above, row = row, [i + 1]
        for j, other in enumerate(second):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (letter != other)))
    return row[-1]


def plot(path: Path, edits: np.ndarray, distance: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(edits, distance, "o-", markersize=3)
    axes.plot(edits, np.minimum(2 * edits, distance.max()), linewidth=0.8, label="two edits for each letter")
    axes.set(title="Edit distance", xlabel="letters taken out and put in", ylabel="distance")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--batch", type=int, default=32, help="pairs")
    parser.add_argument("--length", type=int, default=60, help="letters of each sequence")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to the textbook's loops")
    parser.add_argument("--plot", type=Path, help="write a picture of distances")
    options = parser.parse_args(arguments)

    edits, given = pairs(options.batch, options.length, options.seed)
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(edit_distance(), backend=options.backend, **lies)
    start = time.perf_counter()
    distance = np.asarray(run(**given)["distance"])
    seconds = time.perf_counter() - start
    print(f"{options.batch} pairs of {options.length} letters in {seconds:.3f} s; distances {distance.tolist()}")
    on_mesh.tell(options, run)
    if options.check:
        expected = [loops(x[:-1], y[:-1]) for x, y in zip(given["first"].tolist(), given["second"].tolist())]
        np.testing.assert_array_equal(distance, expected)
        print("equal to the textbook's loops")
    if options.plot:
        plot(options.plot, edits, distance)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
