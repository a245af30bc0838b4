"""Profiles: what one costs the runs that it is of.

Loops of matrix products and sums of small and of large arrays, and training by the examples, each called as often as
takes some seconds: inside of a profile, and without one, in turn. What the end of the block takes, which writes the
trace, is a figure of its own, and so is what the first profile of an executable takes where it is compiled once more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import examples.lstm
import examples.ppo
import tempo as tp
from benchmarks.harness import Benchmark, Session

WITHIN = 1.1
Run = Callable[[], Any]


def chain(width: int) -> tp.Program:
    """A recurrence of five operators on matrices."""
    with tp.Program(f"chain_{width}") as program:
        t = tp.dim("t")
        w = tp.input("w", (width, width))
        h = tp.recurrent("h", (width, width), (t,))
        h[0] = tp.ones((width, width))
        mixed = h[t - 1] @ w
        h[t] = tp.tanh(mixed * 0.5 + mixed.sum(axis=0))
        tp.output("h", h[t.size - 1])
    return program


def chained(session: Session, width: int, steps: int) -> tuple[tp.Executable, Run]:
    run = session.compile(chain(width), {"t": steps})
    w = session.resident(np.random.default_rng(0).normal(size=(width, width)).astype(np.float32) / width)
    return run, lambda: session.ready(run(w=w))


def lstm(session: Session, iterations: int) -> tuple[tp.Executable, Run]:
    run = session.compile(examples.lstm.training(examples.lstm.weights(64, 0)), {"i": iterations, "b": 16, "t": 20})
    return run, lambda: session.ready(run(seed=0))


def ppo(session: Session, iterations: int) -> tuple[tp.Executable, Run]:
    settings = examples.ppo.Settings(environments=64, iterations=iterations, epochs=4, minibatches=4, width=64)
    run = session.compile(examples.ppo.trainer(tp.rl.CartPole(), settings), examples.ppo.sizes(settings))
    return run, lambda: session.ready(run(seed=0))


def cases(session: Session) -> Iterator[tuple[str, tp.Executable, Run]]:
    quick = session.quick
    makes: dict[str, Callable[[], tuple[tp.Executable, Run]]] = {
        "operators on 8 x 8": lambda: chained(session, 8, 200 if quick else 20_000),
        "operators on 256 x 256": lambda: chained(session, 256, 50 if quick else 1_000),
        "LSTM": lambda: lstm(session, 2 if quick else 50),
        "PPO": lambda: ppo(session, 2 if quick else 100 if session.backend == "jax" else 4),
    }
    for name, make in makes.items():
        if session.options.only is None or session.options.only in name:
            yield name, *make()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, help="that calls take together; default: 3, quick: 0.05")
    parser.add_argument("--only", help="cases with this in their name")


def measure(session: Session) -> None:
    seconds = session.options.seconds or (0.05 if session.quick else 3.0)
    for case, run, call in cases(session):
        with tempfile.TemporaryDirectory(prefix="tempo-benchmark-") as folder:
            path = Path(folder, "trace.json")
            call()
            start = time.perf_counter()
            call()
            calls = max(1, round(seconds / (time.perf_counter() - start)))
            start = time.perf_counter()
            with run.profile(path):
                call()
            session.add(case, "the first profile, of 1 call", "s, first call", time.perf_counter() - start)
            costs(session, case, run, call, calls, path)


def costs(session: Session, case: str, run: tp.Executable, call: Run, calls: int, path: Path) -> None:
    without, inside, endings = [], [], []
    for _ in range(session.repeats):
        without.append(timed(call, calls))
        with run.profile(path):
            inside.append(timed(call, calls))
            start = time.perf_counter()
        endings.append(time.perf_counter() - start)
    session.add(case, "without a profile", "s", *(wall for wall, _ in without))
    ratios = [one / other for (one, _), (other, _) in zip(inside, without, strict=True)]
    session.add(case, "with a profile / without", "x", *ratios, goal=WITHIN)
    ratios = [one / other for (_, one), (_, other) in zip(inside, without, strict=True)]
    session.add(case, "with a profile / without, processor time", "x", *ratios)
    session.add(case, "the end of the block", "s", *endings)
    session.add(case, "the trace", "bytes", path.stat().st_size)


def timed(call: Run, calls: int) -> tuple[float, float]:
    """Seconds, and those of processors, which do not tell what else the machine does."""
    start, used = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return time.perf_counter() - start, time.process_time() - used


BENCHMARK = Benchmark(
    measure, title="Profiles", repeats=7, quick_repeats=1, backends=("numpy", "torch", "jax"), add_options=options
)
