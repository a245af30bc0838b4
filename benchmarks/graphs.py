"""Loops as CUDA graphs against the same loops operator by operator: a small recurrence, decoding, and PPO.

Per step of the loop, with what the host does for it: `host` is the time until a call returns, before the device is
waited for. Results are compared first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.attention.benchmark import CONFIGURATIONS
from benchmarks.attention.program import Config, decoder, sizes
from benchmarks.device_loop import WIDTH, recurrence
from benchmarks.harness import Benchmark, Session, close, to_host
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings, noise, weights

GOAL = 15.0
"""Microseconds of the host, for a step."""


def cases(session: Session) -> Iterator[tuple[str, tp.Program, dict[str, int], dict[str, Any], int]]:
    """A name, a program, its sizes, what a run of it is given, and its steps."""
    steps = 1_000 if session.quick else 10_000
    draw = np.random.default_rng(0)
    w, start = draw.normal(0, 0.1, (WIDTH, WIDTH)), draw.normal(0, 1, WIDTH)
    given = {name: session.resident(each.astype(np.float32)) for name, each in (("w", w), ("start", start))}
    yield f"{steps} steps of tanh(h @ w)", recurrence(), {"t": steps}, given, steps
    config, length = Config(**CONFIGURATIONS["small" if session.quick else "medium"]), 256 if session.quick else 1024
    decoding = {name: session.resident(array) for name, array in config.weights().items()}
    yield (
        f"decoding of {length} tokens, {config.layers} layers",
        decoder(config),
        dict(sizes(config, length)),
        {"start": config.start(), **decoding},
        length,
    )
    settings = Settings(environments=32 if session.quick else 512, iterations=4)
    noises = {name: session.resident(array) for name, array in noise(settings).items()}
    state = {name: session.resident(array) for name, array in weights(settings).items()}
    yield f"PPO, {settings}", ppo(settings), {}, {"state": state, **noises}, settings.iterations * settings.steps


def measure(session: Session) -> None:
    backend = session.backend_class()
    kinds = {"graphs": backend(session.device), "one by one": backend(session.device, graphs=False)}
    for case, program, sizes_, given, steps in cases(session):
        runs: dict[str, Callable[[], Any]] = {}
        results: dict[str, dict[str, Any]] = {}
        for name, each in kinds.items():
            run = tp.compile(program, each, sizes=sizes_)
            runs[name] = partial(_ready, session, run, given)
            for _ in range(3):  # arrays lie where they did the time before, and what is recorded is there
                results[name] = {key: to_host(value) for key, value in runs[name]().items()}
            spent = []
            for _ in range(session.repeats):
                begun = time.perf_counter()
                run(**given)
                spent.append((time.perf_counter() - begun) / steps * 1e6)
                session.ready({})
            session.add(case, f"{name}, host", "us/step", *spent, goal=GOAL if name == "graphs" else None)
        close(2e-3, 2e-4)(results["graphs"], results["one by one"])
        timings = session.time(case, runs)
        for name, timing in timings.items():
            session.add(case, name, "us/step", *(seconds / steps * 1e6 for seconds in timing.seconds))


def _ready(session: Session, run: tp.Executable, given: dict[str, Any]) -> Any:
    return session.ready(run(**given))


BENCHMARK = Benchmark(
    measure,
    "Loops as CUDA graphs",
    repeats=5,
    quick_repeats=3,
    backends=("torch",),
    devices=("cuda",),
    docs=lambda row: row.unit == "us/step",
)
