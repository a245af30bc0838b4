"""Proximal policy optimization: acting, advantages, epochs and minibatches as one declaration.

The environment is traced into the program (CartPole's equations), or the real one of Gymnasium, called from it. What is
learned plays at the end in a second program, which takes the trained weights as its state.

    python examples/ppo.py --backend jax --plot out/ppo.png
    python examples/ppo.py --backend torch --gymnasium
    python examples/ppo.py --backend jax --gymnax
    python examples/ppo.py --backend jax --checkpoint out/ppo   # and again, after it was interrupted

Source: Schulman et al. 2017; advantages of Schulman et al. 2016.
"""

from __future__ import annotations

import argparse
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
    """Of CartPole-v1; `environments * steps` points are learned from in each of `iterations`."""

    environments: int = 8
    steps: int = 32
    iterations: int = 390
    epochs: int = 20
    minibatches: int = 1
    width: int = 64
    gamma: float = 0.98
    decay: float = 0.8
    clip: float = 0.2
    rate: float = 1e-3
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    max_norm: float = 0.5


def networks(settings: Settings, observation: int, actions: int, dims: Any) -> tuple[tp.nn.MLP, tp.nn.MLP]:
    """A policy and a value function."""
    width, orthogonal = settings.width, tp.nn.init.orthogonal
    policy, value = (
        tp.nn.MLP((observation, width, width, outputs), name=name, dims=dims, weight_init=orthogonal(2**0.5),
                  last_init=orthogonal(last))
        for name, outputs, last in (("policy", actions, 0.01), ("value", 1, 1.0))
    )  # fmt: skip
    return policy, value


def act(environment: Any, policy: tp.nn.MLP, dims: tuple[tp.Dim, ...], batch: int | tp.Dim) -> tp.rl.Trajectory:
    drawn = (*dims, batch) if isinstance(batch, tp.Dim) else dims

    def choose(observation: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.rl.Categorical(policy(observation)).sample(dims=drawn)

    if isinstance(environment, (tp.rl.GymnasiumEnvs, tp.rl.GymnaxEnvs)):
        return environment.rollout(choose, dims)
    return tp.rl.rollout(environment, choose, dims, batch)


def loss(
    policy: tp.nn.MLP, value: tp.nn.MLP, batch: dict[str, tp.RecurrentTensor], settings: Settings
) -> tp.RecurrentTensor:
    """Of a batch of points: arrays (points, ...)."""
    actions = tp.rl.Categorical(policy(batch["observation"]))
    ratio = tp.exp(actions.log_prob(batch["action"]) - batch["log_prob"])
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = tp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    gain = tp.minimum(ratio * advantage, clipped * advantage).mean()
    error = value(batch["observation"]).spatial[..., 0] - batch["returns"]
    return -gain + settings.value_weight * (error * error).mean() - settings.entropy_weight * actions.entropy().mean()


def trainer(environment: Any, settings: Settings, as_dim: bool = False) -> tp.Program:
    """Environments are an axis, or the points of a dim, which may lie along a mesh.

    Then a minibatch has as many points of each of them, so that a device learns from those that it has.
    """
    with tp.Program("ppo") as program:
        i, e, m = tp.dims("i e m")  # iterations, epochs, minibatches
        t = tp.dim("t", settings.steps)
        apart = (tp.dim("n", settings.environments),) if as_dim else ()
        policy, value = networks(settings, environment.observation[0], environment.actions, (i, e, m))
        old_policy, old_value = policy.at(e=0, m=0), value.at(e=0, m=0)

        seen = act(environment, old_policy, (i, t), apart[0] if apart else settings.environments)
        estimate = old_value(seen.observation).spatial[..., 0]
        # An episode that was cut went on: its value stands for what would have come.
        going_on = old_value(seen.following).spatial[..., 0]
        reward = seen.reward + settings.gamma * tp.where(seen.truncated, going_on, 0.0)
        last = going_on.at(t=t.size - 1)
        advantage = tp.rl.gae(reward, estimate, seen.done, t, settings.gamma, settings.decay, last)
        points = {
            "observation": seen.observation,
            "action": seen.action,
            "log_prob": tp.rl.Categorical(old_policy(seen.observation)).log_prob(seen.action),
            "advantage": advantage,
            "returns": advantage + estimate,
        }

        count = settings.steps if apart else settings.environments * settings.steps
        size = count // settings.minibatches
        order = tp.random.permutation(count, dims=(i, e, *apart)).spatial[m * size : (m + 1) * size]
        first = 0 if apart else 1  # the axes behind those of environments
        flat = {name: x.at(t=slice(None)).reshape(count, *x.shape[first:]) for name, x in points.items()}
        flat = {name: tp.stop_gradient(x.spatial[order]) for name, x in flat.items()}
        flat = {name: x.at(**{n.name: slice(None) for n in apart}) for name, x in flat.items()}
        adam = tp.optim.Adam(
            tp.optim.linear(settings.rate, 0.0, settings.iterations * settings.epochs * settings.minibatches),
            epsilon=1e-5,
            dim=(i, e, m),
        )
        learned = {**policy.parameters(), **value.parameters()}
        objective = loss(policy, value, flat, settings)
        gradients = tp.optim.clip_by_global_norm(tp.grad(objective, learned), settings.max_norm)
        adam.apply(learned, gradients)

        tp.output("loss", objective)
        tp.output("reward", seen.reward)
        tp.output("done", seen.done)
    return program


def player(environment: Any, settings: Settings, steps: int) -> tp.Program:
    """Acts with trained weights, always as is likeliest."""
    with tp.Program("play") as program:
        t = tp.dim("t", steps)
        policy, _ = networks(settings, environment.observation[0], environment.actions, ())
        seen = tp.rl.rollout(environment, lambda x: tp.rl.Categorical(policy(x)).mode(), (t,), batch=16)
        tp.output("length", seen.length)
        tp.output("done", seen.done)
    return program


def plot(path: Path, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for label, (steps, returns) in curves.items():
        axes.plot(steps, returns, label=label)
    axes.axhline(475, color="grey", linestyle=":", label="solved")
    axes.set(title="PPO on CartPole-v1", xlabel="environment steps", ylabel="mean return of the last 100 episodes")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--gymnasium", action="store_true", help="Gymnasium's environment instead of the traced one")
    parser.add_argument("--gymnax", action="store_true", help="that of gymnax, traced by JAX")
    parser.add_argument("--seeds", type=int, default=1, help="train so many times")
    parser.add_argument("--iterations", type=int, default=Settings.iterations)
    parser.add_argument("--plot", type=Path, help="write a picture of the learning curves")
    parser.add_argument("--save", type=Path, help="write what the last training ended with, for --load")
    parser.add_argument("--load", type=Path, help="begin with what another training ended with")
    parser.add_argument("--checkpoint", type=Path, help="a folder: what was interrupted goes on where it was")
    options = parser.parse_args(arguments)
    settings = Settings(iterations=options.iterations)
    if options.gymnasium or options.gymnax:
        on_mesh.refuse(options, "environments that are one call are an axis of what it returns, no dim to lie along it")
    lies = on_mesh.arguments(options, shard={"n": "data"})
    curves, start_from = {}, tp.load(options.load) if options.load else None
    for seed in range(options.seeds):
        environment: Any = tp.rl.CartPole()
        if options.gymnasium:
            environment = tp.rl.GymnasiumEnvs("CartPole-v1", settings.environments, seed=seed)
        if options.gymnax:
            environment = tp.rl.GymnaxEnvs("CartPole-v1", settings.environments)
        start = time.perf_counter()
        program = trainer(environment, settings, as_dim=bool(lies))
        run = tp.compile(program, options.backend, sizes=sizes(settings), **lies)
        compiled = time.perf_counter() - start
        start = time.perf_counter()
        kept: dict[str, Any] = {}
        if options.checkpoint:
            folder = options.checkpoint / f"seed-{seed}"
            kept = {"checkpoint": tp.Checkpoints(folder, along="i", every=10), "resume": True}
        trained = run(seed=seed, state=start_from, **kept)
        curve = tp.rl.learning_curve(trained["reward"], trained["done"])
        seconds = time.perf_counter() - start
        curves[f"seed {seed}"] = curve
        solved = np.flatnonzero(curve[1] >= 475)
        reached = f"475 after {curve[0][solved[0]]} steps" if len(solved) else f"{curve[1].max():.0f} at most"
        total = settings.iterations * settings.steps * settings.environments
        print(f"seed {seed}: {total} steps in {seconds:.1f} s, compiled in {compiled:.1f} s; mean return {reached}")
    on_mesh.tell(options, run)
    if options.save:
        tp.save(options.save, trained.state)
        print(f"parameters: {options.save}")
    play = tp.compile(player(tp.rl.CartPole(), settings, 1000), options.backend)
    played = play(state=trained.state, seed=1)
    lengths = np.asarray(played["length"])[np.asarray(played["done"])]
    print(f"the trained policy plays {len(lengths)} episodes: mean return {lengths.mean():.0f}")
    if options.plot:
        plot(options.plot, curves)
        print(f"picture: {options.plot}")
    return 0


def sizes(settings: Settings) -> dict[str, int]:
    return {"i": settings.iterations, "e": settings.epochs, "m": settings.minibatches}


if __name__ == "__main__":
    sys.exit(main())
