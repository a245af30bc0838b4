"""A recurrence of many small steps on the NumPy backend against the same operators in a hand-written loop.

h[t + 1] = tanh(h @ w + x) with 64 floats: what is measured is the cost of a step, not of its arithmetic.
"""

from __future__ import annotations

import argparse

import numpy as np

import tempo as tp
from benchmarks.measure import in_turn, ratio, show

WIDTH = 64


def recurrence() -> tp.Program:
    with tp.Program("recurrence") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(WIDTH, WIDTH), dims=())
        x = tp.input("x", shape=(WIDTH,), dims=(t,))
        h = tp.recurrent("h", shape=(WIDTH,), dims=(t,))
        h[0] = tp.zeros((WIDTH,))
        h[t + 1] = tp.tanh(h @ w + x)
        tp.output("last", h[t.size - 1])
    return program


def plain_loop(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    h = np.zeros(WIDTH, np.float32)
    for t in range(len(x) - 1):
        h = np.tanh(h @ w + x[t])
    return h


def buffered_loop(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    h, z = np.zeros(WIDTH, np.float32), np.empty(WIDTH, np.float32)
    matmul, add, tanh = np.matmul, np.add, np.tanh
    for t in range(len(x) - 1):
        matmul(h, w, out=z)
        add(z, x[t], out=z)
        tanh(z, out=h)
    return h


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    w = draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
    x = draw.normal(0, 1, (options.steps, WIDTH)).astype(np.float32)
    run = tp.compile(recurrence(), backend="numpy", sizes={"t": options.steps})

    def tempo() -> np.ndarray:
        return np.asarray(run(w=w, x=x)["last"])

    runs = {"tempo": tempo, "plain": lambda: plain_loop(w, x), "buffered": lambda: buffered_loop(w, x)}
    for name, result in runs.items():
        np.testing.assert_allclose(result(), plain_loop(w, x), rtol=1e-4, atol=1e-5, err_msg=name)
    timings = in_turn(runs, options.repeats)
    show(f"{options.steps} steps of tanh(h @ w + x), {WIDTH} floats", timings)
    print(f"  {ratio(timings, 'tempo', 'plain')} (goal 1.2)\n  {ratio(timings, 'tempo', 'buffered')}")


if __name__ == "__main__":
    main()
