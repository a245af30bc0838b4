"""Is the plan true: what `run.memory` says beforehand, and what a run is measured to hold beside what it is given.

NumPy's allocator is asked (`tracemalloc`), PyTorch's tensors are counted as operators make them, and JAX's live arrays
are added to what XLA says that it needs for itself. Of the second run each, from the state that the first has ended
with: the first makes what is made once. Both leave out inputs and constants.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.attention.program import Config, decoder
from benchmarks.attention.program import sizes as decoding_sizes
from benchmarks.harness import Benchmark, Session, to_host
from benchmarks.models.workloads import Workload, of_bptt, workloads
from benchmarks.n_step_memory import SEQUENTIAL, all_returns, inputs, reinforce
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings, noise, weights
from examples import dqn as dqn_example
from examples import ppo as ppo_example


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


def decoding(length: int, window: int | None, layers: int = 4) -> Case:
    config = Config(window=window, layers=layers)
    return Case(decoder(config), {"start": config.start(), **config.weights()}, decoding_sizes(config, length))


def example_ppo(iterations: int) -> Case:
    settings = ppo_example.Settings(iterations=iterations)
    return Case(ppo_example.trainer(tp.rl.CartPole(), settings), {}, ppo_example.sizes(settings))


def example_dqn(steps: int) -> Case:
    return Case(dqn_example.trainer(tp.rl.CartPole(), dqn_example.Settings(steps=steps)), {})


def cases(quick: bool) -> dict[str, Callable[[], Case]]:
    steps = 128 if quick else 1_000
    found: dict[str, Callable[[], Case]] = {
        f"recurrence and gradient, {steps} steps": lambda: recurrence(steps),
        f"LSTM BPTT, {steps} steps, batch 32, width 64": lambda: lstm_bptt(steps),
        "PPO, 256 environments, 128 steps": lambda: of_ppo(64 if quick else 256, 128),
        "REINFORCE, Monte Carlo returns, 200 steps": lambda: returns("Monte Carlo", 200),
        "REINFORCE, 8-step returns, 200 steps, step by step": lambda: returns("8-step", 200, options=SEQUENTIAL),
    }
    length = 64 if quick else 1_024
    for window in (None, 16 if quick else 128):
        kind = "causal" if window is None else f"the last {window}"
        found[f"decoding {length} tokens, {kind}"] = partial(decoding, length, window)
    found["the example of PPO, 2 iterations"] = lambda: example_ppo(2)
    found["the example of DQN, 200 steps"] = lambda: example_dqn(200)
    for name, make in workloads(quick).items():
        found[name] = partial(_of_workload, make)
    return found


def _of_workload(make: Callable[[], Workload]) -> Case:
    made = make()
    return Case(made.program, made.inputs, made.sizes, made.weights)


def measure(session: Session) -> None:
    for name, make in cases(session.quick).items():
        if session.options.only in name:
            measure_one(session, name, make())
        gc.collect()


def call_of(case: Case, resident: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """The arguments of a run. `resident` puts an array where the backend computes."""
    given = {name: resident(array) for name, array in case.inputs.items()}
    state = {name: resident(array) for name, array in case.state.items()}
    return {"sizes": case.sizes, **({"state": state} if state else {}), **given}


def planned_and_measured(backend: Any, case: Case, resident: Callable[[np.ndarray], Any]) -> tuple[int, int]:
    """The bytes of a run beside what it is given."""
    run = tp.compile(case.program, backend, options=case.options)
    found = measured(backend, run, call_of(case, resident))
    return run.memory.peak_bytes - run.memory.given_bytes, found


def measured(backend: Any, run: tp.Executable, call: dict[str, Any]) -> int:
    """The bytes of a run beside what it is given, from the state that a run before it has ended with."""
    if trained := dict(run(**call).state):
        call = {**call, "state": trained}  # the evaluator makes initial values, beside the executable
    gc.collect()
    found: int = backend.measured_peak(lambda: to_host(next(iter(run(**call).values()))))
    return found


def measure_one(session: Session, name: str, case: Case) -> None:
    backend = session.backend_class()().with_device(session.device)
    planned, found = planned_and_measured(backend, case, session.resident)
    session.add(name, "planned", "MiB", planned / 2**20)
    session.add(name, "measured", "MiB", found / 2**20)
    session.add(name, "planned / measured", "x", planned / found)


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
