"""What REINFORCE keeps of its observations: all with Monte Carlo returns, n + 1 with n-step returns, 2 with TD(0).

One line of the program differs. An iteration acts in an environment that only has shapes, and learns from every step;
run sequentially over the steps, learning follows acting n steps behind, and gradients add up. Losses are compared with
those of the same program that keeps everything, and measured bytes are told beside those of the memory plan.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close, to_host

ENVIRONMENTS, ACTIONS, WIDTH, ITERATIONS, GAMMA = 8, 2, 16, 2, 0.99
CHANNELS = 3 * 16 * 16
SEQUENTIAL = tp.Options(mapping={"t": "sequential"})
Returns = Callable[[tp.RecurrentTensor, tp.RecurrentTensor, tp.RecurrentTensor, tp.Dim], tp.RecurrentTensor]


def reinforce(returns: Returns, steps: int) -> tp.Program:
    with tp.Program("reinforce") as program:
        i, t = tp.dim("i", ITERATIONS), tp.dim("t", steps)
        policy = tp.nn.MLP((CHANNELS, WIDTH, ACTIONS), name="policy", dims=(i,))
        value = tp.nn.MLP((CHANNELS, WIDTH, 1), name="value", dims=(i,))
        gumbel = tp.input("gumbel", (ENVIRONMENTS, ACTIONS), (i, t))
        first = tp.input("first", (ENVIRONMENTS, CHANNELS), ())
        observation = tp.recurrent("observation", first.shape, (i, t))
        actions = tp.rl.Categorical(policy(observation))
        action = (tp.stop_gradient(actions.logits) + gumbel).argmax(axis=-1)
        following = 0.9 * observation + 0.1 * action.astype(tp.float32).reshape(ENVIRONMENTS, 1)
        observation[0, 0] = first
        tp.optim.define_next(observation, (i, t), following)
        reward = following.mean(axis=-1)
        estimate = value(observation).spatial[..., 0]
        target = tp.stop_gradient(returns(reward, estimate, reward > 0.9, t))
        gain = actions.log_prob(action) * (target - tp.stop_gradient(estimate))
        loss = ((estimate - target) ** 2 - gain).sum() / (ENVIRONMENTS * steps)
        learned = {**policy.parameters(), **value.parameters()}
        gradients = tp.grad(loss, learned)
        tp.optim.SGD(0.1).apply(learned, gradients)
        tp.output("loss", loss[i, :].sum())
        tp.output("norm", tp.optim.global_norm(gradients))
    return program


def all_returns(n: int) -> dict[str, Returns]:
    return {
        "Monte Carlo": lambda reward, value, done, t: tp.rl.monte_carlo(reward, done, t, GAMMA),
        f"{n}-step": lambda reward, value, done, t: tp.rl.n_step(reward, value, done, t, n, GAMMA),
        "TD(0)": lambda reward, value, done, t: tp.rl.td_zero(reward, value, done, t, GAMMA),
    }


def inputs(steps: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "gumbel": draw.gumbel(size=(ITERATIONS, steps, ENVIRONMENTS, ACTIONS)).astype(np.float32),
        "first": draw.uniform(-1, 1, (ENVIRONMENTS, CHANNELS)).astype(np.float32),
    }


def measure(session: Session) -> None:
    make = session.backend_class()
    for steps in (100, 200) if session.quick else (100, 200, 400):
        for name, returns in all_returns(session.options.n).items():
            measure_one(session, f"{name} returns, {steps} steps", reinforce(returns, steps), steps, make)


def measure_one(session: Session, case: str, program: tp.Program, steps: int, make: Callable[[], Any]) -> None:
    given = {name: session.resident(array) for name, array in inputs(steps).items()}
    runs = {}
    for name, options in (("step by step", SEQUENTIAL), ("as we choose", None)):
        backend = make().with_device(session.device)
        run = tp.compile(program, backend, options=options)
        observations = sum(each.bytes for each in run.memory.buffers if each.name == "observation")
        points = observations / (4 * ENVIRONMENTS * CHANNELS)
        session.add(case, f"observations kept, {name}", "points", points)
        session.add(case, f"planned peak, {name}", "MiB", run.memory.peak_bytes / 2**20)
        runs[name] = lambda run=run: [to_host(run(seed=0, **given)[name]) for name in ("loss", "norm")]
        runs[name]()  # what is made once is not of a run
        session.add(case, f"measured peak, {name}", "MiB", backend.measured_peak(runs[name]) / 2**20)
    close(1e-3, 1e-4)(*(run() for run in runs.values()))
    for name, timing in session.time(case, runs).items():
        session.add(case, f"{name}, an iteration", "ms", *(1e3 * seconds / ITERATIONS for seconds in timing.seconds))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n", type=int, default=8, help="steps of the n-step returns")


BENCHMARK = Benchmark(
    measure,
    "Memory of REINFORCE",
    repeats=5,
    quick_repeats=2,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.unit in ("points", "MiB"),
)
