"""REINFORCE with a learned baseline: the returns are one line, and what is kept of acting follows from it.

Run step by step (`--sequential`), Monte Carlo returns keep the observations of the whole trajectory, n-step returns
n + 1 of them, TD(0) two. Nothing else in the program differs.

    python examples/reinforce.py --returns nstep --backend jax --plot out/reinforce.png

Source: Williams 1992; Sutton and Barto 2018, sections 13.4 and 7.1.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tempo as tp


@dataclass(frozen=True)
class Settings:
    """Of CartPole-v1; every one of `iterations` learns once from `environments * steps` points."""

    environments: int = 16
    steps: int = 64
    iterations: int = 400
    width: int = 64
    n: int = 16
    gamma: float = 0.98
    rate: float = 5e-3
    max_norm: float = 0.5
    entropy_weight: float = 0.1


def trainer(environment: tp.rl.Environment, settings: Settings, returns: str) -> tp.Program:
    with tp.Program("reinforce") as program:
        i, t = tp.dim("i", settings.iterations), tp.dim("t", settings.steps)
        (width, gamma), inputs = (settings.width, settings.gamma), environment.observation[0]
        policy = tp.nn.MLP((inputs, width, environment.actions), name="policy", dims=(i,))
        value = tp.nn.MLP((inputs, width, 1), name="value", dims=(i,))
        seen = tp.rl.rollout(
            environment,
            lambda observation: tp.rl.Categorical(policy(observation)).sample(dims=(i, t)),
            (i, t),
            settings.environments,
        )
        estimate = value(seen.observation).spatial[..., 0]
        # An episode that was cut went on: its value stands for what would have come.
        going_on = value(seen.following).spatial[..., 0]
        reward = seen.reward + gamma * tp.where(seen.truncated, going_on, 0.0)
        last = going_on[i, -1]
        match returns:  # the one line that differs
            case "mc":
                target = tp.rl.monte_carlo(reward, seen.done, t, gamma, last)
            case "nstep":
                target = tp.rl.n_step(reward, estimate, seen.done, t, settings.n, gamma, last)
            case "td":
                target = tp.rl.td_zero(reward, estimate, seen.done, t, gamma, last)
            case _:
                raise ValueError(f"returns {returns!r}; there are mc, nstep, td")
        advantage = tp.stop_gradient(target - estimate)
        actions = tp.rl.Categorical(policy(seen.observation))
        gain = actions.log_prob(seen.action) * advantage + settings.entropy_weight * actions.entropy()
        error = estimate - tp.stop_gradient(target)
        objective = (0.5 * error * error - gain).sum() / (settings.environments * settings.steps)
        learned = {**policy.parameters(), **value.parameters()}
        gradients = tp.optim.clip_by_global_norm(tp.grad(objective, learned), settings.max_norm)
        tp.optim.Adam(settings.rate, dim=i).apply(learned, gradients)
        tp.output("reward", seen.reward)
        tp.output("done", seen.done)
    return program


def plot(path: Path, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for label, (steps, returns) in curves.items():
        axes.plot(steps, returns, label=label)
    axes.axhline(22, color="grey", linestyle=":", label="actions at random")
    axes.set(
        title="REINFORCE on CartPole-v1", xlabel="environment steps", ylabel="mean return of the last 100 episodes"
    )
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--returns", choices=("mc", "nstep", "td"), default="mc")
    parser.add_argument("--iterations", type=int, default=Settings.iterations)
    parser.add_argument("--rate", type=float, default=Settings.rate, help="the learning rate")
    parser.add_argument("--sequential", action="store_true", help="learn step by step, as the returns allow")
    parser.add_argument("--seeds", type=int, default=1, help="train so many times")
    parser.add_argument("--plot", type=Path, help="write a picture of the learning curves")
    options = parser.parse_args(arguments)
    settings = Settings(iterations=options.iterations, rate=options.rate)
    start = time.perf_counter()
    plan = tp.Options(mapping={"t": "sequential"}) if options.sequential else None
    run = tp.compile(trainer(tp.rl.CartPole(), settings, options.returns), options.backend, options=plan)
    # In CartPole what is observed is the state: float32, of all environments.
    kept = sum(each.bytes for each in run.memory.buffers if each.name == "environment.state")
    points = kept // (4 * settings.environments * tp.rl.CartPole.observation[0])
    print(f"compiled in {time.perf_counter() - start:.1f} s; keeps {points} of {settings.steps} steps")
    curves = {}
    for seed in range(options.seeds):
        start = time.perf_counter()
        trained = run(seed=seed)
        curve = tp.rl.learning_curve(trained["reward"], trained["done"])
        curves[f"{options.returns}, seed {seed}"] = curve
        steps = settings.iterations * settings.steps * settings.environments
        print(
            f"{options.returns}, seed {seed}: {steps} steps in {time.perf_counter() - start:.1f} s; mean return "
            f"{curve[1][min(99, len(curve[1]) - 1)]:.0f} of the first 100 episodes, {curve[1][-1]:.0f} of the last"
        )
    if options.plot:
        plot(options.plot, curves)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
