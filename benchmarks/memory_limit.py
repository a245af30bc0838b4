"""A limit of memory, and what it costs: planned and measured bytes, and time to the same program without a limit.

The parts are of the peak of the plan as it is, with what is given and returned. A goal is what a run may take longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close, to_host
from benchmarks.measure import ratios, timed
from benchmarks.memory import Case, call_of, decoding, lstm_bptt, of_ppo, recurrence

GOALS = {2: 1.3, 4: 1.5, 5: 2.0}
Arrays = Mapping[str, np.ndarray]


def cases(quick: bool, steps: int) -> dict[str, Callable[[], Case]]:
    steps = 128 if quick else steps
    return {
        f"recurrence and gradient, {steps} steps": partial(recurrence, steps),
        f"LSTM BPTT, {steps} steps, batch 32, width 64": partial(lstm_bptt, steps),
        "PPO, 256 environments, 128 steps": partial(of_ppo, 64 if quick else 256, 128),
        "decoding, 8 layers, the last 128": partial(decoding, 64 if quick else 1_024, 16 if quick else 128, 8),
    }


def measure(session: Session) -> None:
    for name, make in cases(session.quick, session.options.steps).items():
        if session.options.only in name:
            measure_one(session, name, make())


def measure_one(session: Session, name: str, case: Case) -> None:
    backend = session.backend_class()().with_device(session.device)
    call = call_of(case, session.resident)
    plain = tp.compile(case.program, backend, options=case.options)
    session.add(name, "compiling and the first call, as it is", "s", timed(lambda: arrays(plain, call)))
    peak = plain.memory.peak_bytes
    session.add(name, "planned peak, as it is", "MiB", peak / 2**20)
    runs = {"as it is": plain}
    for part in GOALS:
        try:
            made, first = limited(case, backend, call, peak // part)
        except tp.MemoryLimitError as error:
            print(f"  1/{part} of it: {error.message}")
            continue
        runs[f"1/{part}"] = made
        session.add(name, f"compiling and the first call, 1/{part}", "s", first)
        session.add(name, f"planned peak, 1/{part}", "MiB", made.memory.peak_bytes / 2**20)
        own = made.memory.peak_bytes - made.memory.given_bytes
        session.add(name, f"planned, inputs apart, 1/{part}", "MiB", own / 2**20)
        beside = backend.measured_peak(lambda made=made: arrays(made, call))
        session.add(name, f"measured, inputs apart, 1/{part}", "MiB", beside / 2**20)
        if moved := made.memory.traffic.evicted + made.memory.traffic.fetched:
            session.add(name, f"to the host pool and back, 1/{part}", "MiB", moved / 2**20)
    check({key: arrays(run, call) for key, run in runs.items()})
    times = session.time(name, {key: partial(arrays, run, call) for key, run in runs.items()})
    for part, goal in GOALS.items():
        if f"1/{part}" in times:
            session.add(name, f"time, 1/{part} / as it is", "x", *ratios(times, f"1/{part}", "as it is"), goal=goal)


def limited(case: Case, backend: Any, call: Mapping[str, Any], limit: int) -> tuple[tp.Executable, float]:
    """The program under the limit, with a pool on the host where there is no other way, and the seconds that it takes
    to be compiled and called once."""

    def made(offload: str | None) -> tuple[tp.Executable, float]:
        run = tp.compile(case.program, backend, options=case.options, memory_limit=limit, offload=offload)
        return run, timed(lambda: arrays(run, call))

    try:
        return made(None)
    except tp.MemoryLimitError:
        return made("host")


def arrays(run: tp.Executable, call: Mapping[str, Any]) -> Arrays:
    return {name: to_host(array) for name, array in run(**call).items()}


def check(results: Mapping[str, Arrays]) -> None:
    """All give what the plan as it is does."""
    wanted = results["as it is"]
    for found in results.values():
        for key, array in wanted.items():
            close(1e-2, 1e-2 * max(1e-6, float(np.abs(array).max(initial=0))))(found[key], array)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=1_000, help="of what goes back through time")
    parser.add_argument("--only", default="", help="cases with this in their name")


BENCHMARK = Benchmark(
    measure,
    "A limit of memory",
    repeats=5,
    quick_repeats=2,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.unit in ("MiB", "x"),
)
