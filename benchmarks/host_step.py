"""What a step of a host loop costs beside its function, against the same loop written by hand.

A policy of one small matrix chooses an action, the host's function answers with an observation, a reward and whether it
is the end; actions and rewards are outputs. The function does next to nothing, and what it takes is subtracted. By hand
it is one jitted step on JAX, eager operators on PyTorch and NumPy, and lists of what comes back. CPU seconds are told
beside seconds, since a machine that others keep busy makes each step wait.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import ratios

GOAL = 50.0  # microseconds
Step = Callable[[Any], Any]


class Environment:
    """Observations that go round."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self.observations = draw.normal(0, 1, (64, 4)).astype(np.float32)
        self.count = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.float32, np.bool_]:
        self.count += 1
        return self.observations[self.count % 64], np.float32(1 + action), np.False_


def rollout(world: Environment) -> tp.Program:
    with tp.Program("rollout") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(4, 2), dims=())
        seen = tp.recurrent("seen", shape=(4,), dims=(t,))
        action = tp.tanh(seen @ w).argmax(axis=-1)
        results = [((4,), tp.float32), ((), tp.float32), ((), tp.bool)]
        following, reward, _ = tp.host_call(world.step, action, out=results, ordered_by=(t,))
        seen[0] = tp.zeros((4,))
        seen[t + 1] = following
        tp.output("action", action)
        tp.output("reward", reward)
    return program


def jax_step(w: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    matrix, step = jnp.asarray(w), jax.jit(lambda w, seen: jnp.argmax(jnp.tanh(seen @ w)))
    return lambda seen: np.asarray(step(matrix, seen))


def torch_step(w: np.ndarray) -> Step:
    import torch

    torch.set_num_threads(1)
    matrix = torch.from_numpy(w)
    return lambda seen: torch.argmax(torch.tanh(torch.from_numpy(seen) @ matrix)).numpy()


def numpy_step(w: np.ndarray) -> Step:
    return lambda seen: np.argmax(np.tanh(seen @ w))


STEPS = {"jax": jax_step, "torch": torch_step, "numpy": numpy_step}


def loop_by_hand(world: Environment, step: Step, steps: int) -> tuple[np.ndarray, np.ndarray]:
    seen = np.zeros(4, np.float32)
    actions, rewards = [], []
    for _ in range(steps):
        action = step(seen)
        seen, reward, _ = world.step(action)
        actions.append(action)
        rewards.append(reward)
    return np.stack(actions), np.stack(rewards)


def function_alone(world: Environment, steps: int) -> None:
    action = np.asarray(1, np.int32)
    for _ in range(steps):
        world.step(action)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="default: 10,000; quick 2,000")


def measure(session: Session) -> None:
    steps = session.options.steps or (2_000 if session.quick else 10_000)
    w = np.random.default_rng(1).normal(0, 1, (4, 2)).astype(np.float32)
    world = Environment()
    run = session.compile(rollout(world), {"t": steps})
    step = STEPS[session.backend](w)

    def tempo() -> tuple[np.ndarray, np.ndarray]:
        world.count = 0
        outputs = run(w=w)
        return np.asarray(outputs["action"]), np.asarray(outputs["reward"])

    def by_hand() -> tuple[np.ndarray, np.ndarray]:
        world.count = 0
        return loop_by_hand(world, step, steps)

    for mine, theirs in zip(tempo(), by_hand(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    runs = {"tempo": tempo, "by hand": by_hand, "function alone": lambda: function_alone(world, steps)}
    for unit, clock in (("s", time.perf_counter), ("CPU s", time.process_time)):
        case = f"{steps} steps with a host call, {unit}"
        timings = session.time(case, runs, clock=clock, unit=unit)
        for name in ("tempo", "by hand"):
            pairs = zip(timings[name].seconds, timings["function alone"].seconds, strict=True)
            beyond = [(whole - function) / steps * 1e6 for whole, function in pairs]
            goal = GOAL if name == "tempo" else None
            session.add(case, f"{name}, a step beyond the function", "us", *beyond, goal=goal)
        session.add(case, "tempo / by hand", "x", *ratios(timings, "tempo", "by hand"))


BENCHMARK = Benchmark(
    measure,
    "Steps of a host loop",
    repeats=11,
    quick_repeats=5,
    backends=("numpy", "jax", "torch"),
    add_options=options,
    docs=lambda row: row.unit in ("us", "x"),
)
