"""Is the plan true: what `run.memory` says beforehand, and what a run is measured to hold beside what it is given.

NumPy's allocator is asked (`tracemalloc`), PyTorch's tensors are counted as operators make them, and JAX's live arrays
are added to what XLA says that it needs for itself. Of the second run each: the first makes what is made once. Both
leave out inputs and constants.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.models.workloads import of_bptt, workloads
from benchmarks.n_step_memory import SEQUENTIAL, all_returns, inputs, reinforce
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings, noise, weights


@dataclass(frozen=True)
class Case:
    program: tp.Program
    inputs: Mapping[str, np.ndarray]
    sizes: Mapping[str, int] = field(default_factory=dict)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    options: tp.Options = field(default_factory=tp.Options)


def recurrence(steps: int, batch: int = 32, width: int = 320) -> Case:
    """A plain recurrence and its gradient."""
    with tp.Program("recurrence") as program:
        t = tp.dim("t", steps)
        w = tp.input("w", (width, width), ())
        h = tp.recurrent("h", (batch, width), (t,))
        h[0] = tp.ones((batch, width)) * 0.1
        h[t + 1] = tp.tanh(h @ w)
        tp.output("gradient", tp.grad((h[-1] ** 2).sum(), {"w": w})["w"])
    w_data = np.random.default_rng(0).normal(0, width**-0.5, (width, width))
    return Case(program, {"w": w_data.astype(np.float32)})


def lstm_bptt(steps: int) -> Case:
    made = of_bptt(32, steps, 64)
    return Case(made.program, made.inputs)


def of_ppo(environments: int, steps: int) -> Case:
    settings = Settings(environments=environments, steps=steps)
    return Case(ppo(settings), noise(settings), state=weights(settings))


def returns(name: str, steps: int, **options: Any) -> Case:
    return Case(reinforce(all_returns(8)[name], steps), inputs(steps), **options)


def cases(quick: bool) -> dict[str, Callable[[], Case]]:
    steps = 128 if quick else 1_000
    found: dict[str, Callable[[], Case]] = {
        f"recurrence and gradient, {steps} steps": lambda: recurrence(steps),
        f"LSTM BPTT, {steps} steps, batch 32, width 64": lambda: lstm_bptt(steps),
        "PPO, 256 environments, 128 steps": lambda: of_ppo(64 if quick else 256, 128),
        "REINFORCE, Monte Carlo returns, 200 steps": lambda: returns("Monte Carlo", 200),
        "REINFORCE, 8-step returns, 200 steps, step by step": lambda: returns("8-step", 200, options=SEQUENTIAL),
    }
    for name, make in workloads(quick).items():
        found[name] = lambda make=make: _of_workload(make())  # type: ignore[misc]
    return found


def _of_workload(made: Any) -> Case:
    return Case(made.program, made.inputs, made.sizes, made.weights)


def measure(session: Session) -> None:
    for name, make in cases(session.quick).items():
        if session.options.only in name:
            measure_one(session, name, make())
        gc.collect()


def measure_one(session: Session, name: str, case: Case) -> None:
    backend = session.backend_class()().with_device(session.device)
    run = tp.compile(case.program, backend, options=case.options)
    given = {name: session.resident(array) for name, array in case.inputs.items()}
    state = {name: session.resident(array) for name, array in case.state.items()}
    call: dict[str, Any] = {"sizes": case.sizes, **({"state": state} if state else {}), **given}

    def work() -> None:
        session.ready(run(**call))

    work()
    measured = backend.measured_peak(work)
    memory = run.memory
    planned = memory.peak_bytes - memory.given_bytes
    session.add(name, "planned", "MiB", planned / 2**20)
    session.add(name, "measured", "MiB", measured / 2**20)
    session.add(name, "planned / measured", "x", planned / measured)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="cases with this in their name")


BENCHMARK = Benchmark(
    measure,
    "Memory, planned and measured",
    repeats=1,
    quick_repeats=1,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.unit in ("MiB", "x"),
)
