"""A recurrence of many small steps on the NumPy backend against the same operators in a hand-written loop.

h[t + 1] = tanh(h @ w + x) with 64 floats: what is measured is the cost of a step, not of its arithmetic.
"""

from __future__ import annotations

import argparse

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close

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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100_000)


def measure(session: Session) -> None:
    steps = session.options.steps
    draw = np.random.default_rng(0)
    w = draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
    x = draw.normal(0, 1, (steps, WIDTH)).astype(np.float32)
    run = session.compile(recurrence(), {"t": steps})
    session.compare(
        f"{steps} steps of tanh(h @ w + x), {WIDTH} floats",
        lambda: np.asarray(run(w=w, x=x)["last"]),
        {"plain": lambda: plain_loop(w, x), "buffered": lambda: buffered_loop(w, x)},
        close(1e-4, 1e-5),
        goals={"plain": 1.2},
    )


BENCHMARK = Benchmark(
    measure, "A loop of small steps, NumPy", repeats=7, quick_repeats=3, backends=("numpy",), add_options=options
)
