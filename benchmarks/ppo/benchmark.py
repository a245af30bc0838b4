"""An iteration of PPO, traced environment and all, against the same written by hand: in one `jit` on JAX, as an eager
loop on PyTorch. All are given the same noise; losses, rewards and norms of gradients are compared first, step by step.

Goals on JAX: 1.10 of the peer's time and of its memory. On PyTorch: no slower.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close, to_host
from benchmarks.ppo.program import program
from benchmarks.ppo.settings import Settings, noise, weights

GOALS = {"jax": 1.1, "torch": 1.0}
SWEEPS: dict[str, tuple[int, ...]] = {
    "environments": (32, 128, 512),
    "layers": (1, 4, 16),
    "steps": (50, 1000),
    "width": (16, 256),
}


def cases(session: Session) -> Iterator[Settings]:
    """The standard settings with one of them changed at a time."""
    for sweep in session.options.sweep:
        values = session.options.values or (SWEEPS[sweep][:1] if session.quick else SWEEPS[sweep])
        for value in values:
            yield replace(Settings(iterations=2 if session.quick else 4), **{sweep: value})


def tempo_run(session: Session, settings: Settings, case: str) -> tuple[Callable[[], Any], Any]:
    """A run of all iterations, and the backend that it uses."""
    backend = session.backend_class()().with_device(session.device)
    start = time.perf_counter()
    declared = program(settings)
    traced = time.perf_counter()
    run = tp.compile(declared, backend)
    session.add(case, "tempo, trace and compile", "s, compile", time.perf_counter() - start, goal=2.0)
    session.add(case, "of which trace", "s, compile", traced - start)
    state = {name: session.resident(array) for name, array in weights(settings).items()}
    given = {name: session.resident(array) for name, array in noise(settings).items()}

    def train() -> list[np.ndarray]:
        found = run(state=state, **given)
        return [to_host(found[name]) for name in ("loss", "reward", "norm")]

    return train, backend


def measure(session: Session) -> None:
    for settings in cases(session):
        case = str(settings)
        train, backend = tempo_run(session, settings, case)
        peer = import_module(f"benchmarks.ppo.{session.backend}_peer").Peer(session, settings)
        timings = session.compare(
            case, train, {"by hand": peer.train}, close(2e-3, 2e-4), goals={"by hand": GOALS[session.backend]}
        )
        for name, timing in timings.items():
            each = [1e3 * seconds / settings.iterations for seconds in timing.seconds]
            session.add(case, f"{name}, an iteration", "ms", *each)
        mine, theirs = backend.measured_peak(train) / 2**20, peer.peak_bytes() / 2**20
        session.add(case, "tempo", "MiB, peak", mine)
        session.add(case, "by hand", "MiB, peak", theirs)
        session.add(case, "tempo / by hand, memory", "x", mine / theirs, goal=1.1)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sweep", nargs="+", choices=list(SWEEPS), default=list(SWEEPS), help="what is varied")
    parser.add_argument("--values", nargs="+", type=int, help="of what is varied")


BENCHMARK = Benchmark(
    measure,
    "PPO, its environment traced",
    repeats=7,
    quick_repeats=3,
    backends=("jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
)
