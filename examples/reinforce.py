"""REINFORCE with a learned baseline: the returns are one line, and what is kept of acting follows from it.

Run step by step (`--sequential`), Monte Carlo returns keep the observations of the whole trajectory, n-step returns
n + 1 of them, TD(0) two. Nothing else in the program differs. The environment is traced into the program (CartPole's
equations), or the real one of Gymnasium, called from it.

    python examples/reinforce.py --returns mc nstep td --backend jax --seeds 3 --plot out/reinforce.png
    python examples/reinforce.py --returns nstep --backend torch --gymnasium

Source: Williams 1992; Sutton and Barto 2018, sections 13.4 and 7.1.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh


@dataclass(frozen=True)
class Settings:
    """Of CartPole-v1; every one of `iterations` learns once from `environments * steps` points.

    The value is learned faster than the policy: TD(0) looks one step ahead and has the rest from the value, so what
    it learns is wrong for as long as the value is of an older policy.
    """

    environments: int = 16
    steps: int = 64
    iterations: int = 400
    width: int = 64
    n: int = 16
    gamma: float = 0.98
    rate: float = 1e-3
    value_rate: float = 2e-2
    max_norm: float = 0.5
    entropy_weight: float = 0.01


def act(environment: Any, policy: tp.nn.MLP, dims: tuple[tp.Dim, ...], batch: int | tp.Dim) -> tp.rl.Trajectory:
    drawn = (*dims, batch) if isinstance(batch, tp.Dim) else dims

    def choose(observation: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.rl.Categorical(policy(observation)).sample(dims=drawn)

    if isinstance(environment, tp.rl.GymnasiumEnvs):
        return environment.rollout(choose, dims)
    return tp.rl.rollout(environment, choose, dims, batch)


def trainer(environment: Any, settings: Settings, returns: str, as_dim: bool = False) -> tp.Program:
    """Environments are an axis, or the points of a dim, which may lie along a mesh."""
    with tp.Program("reinforce") as program:
        i, t = tp.dim("i", settings.iterations), tp.dim("t", settings.steps)
        batch = tp.dim("n", settings.environments) if as_dim else settings.environments
        (width, gamma), inputs = (settings.width, settings.gamma), environment.observation[0]
        policy = tp.nn.MLP((inputs, width, environment.actions), name="policy", dims=(i,))
        baseline = tp.nn.MLP((inputs, width, 1), name="value", dims=(i,))
        horizon = 1 / (1 - gamma)  # what rewards of 1 add up to: the network gives numbers near 1

        def value(observation: tp.RecurrentTensor) -> tp.RecurrentTensor:
            return horizon * baseline(observation).spatial[..., 0]

        seen = act(environment, policy, (i, t), batch)
        estimate = value(seen.observation)
        # An episode that was cut went on: its value stands for what would have come.
        going_on = value(seen.following)
        reward = seen.reward + gamma * tp.where(seen.truncated, going_on, 0.0)
        last = going_on.at(t=t.size - 1)
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
        error = (estimate - tp.stop_gradient(target)) / horizon
        for net, loss, rate in ((policy, -gain, settings.rate), (baseline, 0.5 * error * error, settings.value_rate)):
            objective = loss.sum() / (settings.environments * settings.steps)
            gradients = tp.optim.clip_by_global_norm(tp.grad(objective, net.parameters()), settings.max_norm)
            tp.optim.Adam(rate, dim=i, name=f"{net.name}_adam").apply(net, gradients)
        tp.output("reward", seen.reward)
        tp.output("done", seen.done)
    return program


LABELS = {"mc": "Monte Carlo", "nstep": "n-step", "td": "TD(0)"}


def plot(path: Path, curves: dict[str, list[tuple[np.ndarray, np.ndarray]]], title: str) -> None:
    """One colour for each kind of returns, a line for each seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for number, (returns, runs) in enumerate(curves.items()):
        for at, (steps, means) in enumerate(runs):
            axes.plot(steps, means, color=f"C{number}", alpha=0.7, label=LABELS[returns] if at == 0 else None)
    axes.axhline(22, color="grey", linestyle=":", label="actions at random")
    axes.set(title=title, xlabel="environment steps", ylabel="mean return of the last 100 episodes")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def train(returns: str, options: argparse.Namespace) -> list[tuple[np.ndarray, np.ndarray]]:
    """The learning curve of every seed."""
    settings = Settings(iterations=options.iterations, rate=options.rate)
    environment: Any = tp.rl.CartPole()
    if options.gymnasium:
        environment = tp.rl.GymnasiumEnvs("CartPole-v1", settings.environments)
    start = time.perf_counter()
    lies = on_mesh.arguments(options, shard={"n": "data"})
    plan = tp.Options(mapping={"t": "sequential"}) if options.sequential else None
    program = trainer(environment, settings, returns, as_dim=bool(lies))
    run = tp.compile(program, options.backend, options=plan, **lies)
    # In CartPole what is observed is the state, of all environments.
    observed = ("environment.state", "environment.observation")
    kept = sum(math.prod(each.shape) for each in run.memory.buffers if each.name in observed)
    points = kept // (settings.environments * environment.observation[0])
    compiled = time.perf_counter() - start
    print(f"{returns}: compiled in {compiled:.1f} s; keeps {points} of {settings.steps} steps")
    curves = []
    for seed in range(options.seeds):
        if options.gymnasium:
            environment.seed = seed
        start = time.perf_counter()
        trained = run(seed=seed)
        curves.append(tp.rl.learning_curve(trained["reward"], trained["done"]))
        (_, means), steps = curves[-1], settings.iterations * settings.steps * settings.environments
        print(
            f"{returns}, seed {seed}: {steps} steps in {time.perf_counter() - start:.1f} s; mean return "
            f"{means[min(99, len(means) - 1)]:.0f} of the first 100 episodes, {means[-1]:.0f} of the last"
        )
    on_mesh.tell(options, run)
    return curves


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--returns", nargs="+", choices=tuple(LABELS), default=["mc"], help="one kind or several")
    parser.add_argument("--gymnasium", action="store_true", help="Gymnasium's environment instead of the traced one")
    parser.add_argument("--iterations", type=int, default=Settings.iterations)
    parser.add_argument("--rate", type=float, default=Settings.rate, help="the policy's learning rate")
    parser.add_argument("--sequential", action="store_true", help="learn step by step, as the returns allow")
    parser.add_argument("--seeds", type=int, default=1, help="train so many times")
    parser.add_argument("--plot", type=Path, help="write a picture of the learning curves")
    options = parser.parse_args(arguments)
    if options.gymnasium:
        on_mesh.refuse(options, "environments that are one call are an axis of what it returns, no dim to lie along it")
    curves = {returns: train(returns, options) for returns in options.returns}
    if options.plot:
        plot(options.plot, curves, f"REINFORCE on CartPole-v1{' of Gymnasium' * options.gymnasium}")
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
