"""Deep Q-learning: acting, a replay buffer and a target network, with an update at every step, as one declaration.

The replay buffer is a read of the past at random points, `seen[t - 1249:t + 1]` at indices that were drawn; what is
kept of acting follows from that. The environment is traced into the program (CartPole's equations), or the real one of
Gymnasium, called from it. What is learned plays at the end in a second program, which takes the trained weights as its
state.

    python examples/dqn.py --backend jax --seeds 3 --plot out/dqn.png
    python examples/dqn.py --backend torch --gymnasium

Source: Mnih et al. 2015; the choice of the next action by the network that learns is van Hasselt et al. 2016.
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
    """Of CartPole-v1; at every one of `steps` all environments act once, and the network learns from one batch."""

    environments: int = 8
    steps: int = 12_500
    capacity: int = 10_000
    batch: int = 64
    start: int = 1_000
    """Nothing is learned before so many transitions were seen."""
    every: int = 60
    """Steps between copies of the network to the target network."""
    width: int = 64
    gamma: float = 0.99
    rate: float = 1e-3
    last_rate: float = 1e-4
    explore: float = 0.3
    """The part of the steps over which random actions become rare."""
    epsilon: float = 0.05
    max_norm: float = 10.0


def network(settings: Settings, observation: int, actions: int, dims: Any) -> tp.nn.MLP:
    """The values of all actions in a state."""
    width = settings.width
    return tp.nn.MLP((observation, width, width, actions), name="values", activation=tp.relu, dims=dims)


def act(environment: Any, values: tp.nn.MLP, epsilon: Any, t: tp.Dim, batch: int) -> tp.rl.Trajectory:
    def choose(observation: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.rl.EpsilonGreedy(values(observation), epsilon).sample(dims=(t,))

    if isinstance(environment, tp.rl.GymnasiumEnvs):
        return environment.rollout(choose, (t,))
    return tp.rl.rollout(environment, choose, (t,), batch)


def of_actions(values: tp.RecurrentTensor, action: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """The value of each row's action: (rows, actions) and (rows) to (rows)."""
    return (values * tp.one_hot(action, values.shape[-1])).sum(axis=-1)


def huber(error: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Half the square of errors below 1, from there on a line."""
    size = tp.abs(error)
    return tp.where(size < 1.0, 0.5 * error * error, size - 0.5)


def loss(
    values: tp.nn.MLP, target: tp.nn.MLP, batch: dict[str, tp.RecurrentTensor], settings: Settings
) -> tp.RecurrentTensor:
    """Of a batch of transitions: arrays (batch, ...).

    Values are weighted means of what is to come, so no more than the greatest reward. Errors of sums would lie on
    Huber's line, where all count alike, and the few transitions that end an episode would be outvoted.
    """
    best = values(batch["following"]).argmax(axis=-1)
    going_on = tp.where(batch["terminated"], 0.0, of_actions(target(batch["following"]), best))
    goal = tp.stop_gradient((1 - settings.gamma) * batch["reward"] + settings.gamma * going_on)
    return huber(of_actions(values(batch["observation"]), batch["action"]) - goal).mean()


def trainer(environment: Any, settings: Settings) -> tp.Program:
    with tp.Program("dqn") as program:
        t = tp.dim("t", settings.steps)
        values = network(settings, environment.observation[0], environment.actions, (t,))
        explored = tp.optim.linear(1.0, settings.epsilon, round(settings.explore * settings.steps))
        seen = act(environment, values, explored(tp.as_tensor(t)), t, settings.environments)

        kept = ("observation", "action", "reward", "terminated", "following")
        batch = tp.rl.replay({name: getattr(seen, name) for name in kept}, t, settings.capacity, settings.batch)
        objective = loss(values, tp.rl.target(values, t, every=settings.every), batch, settings)
        learned = values.parameters()
        gradients = tp.optim.clip_by_global_norm(tp.grad(objective, learned), settings.max_norm)
        waits = t * settings.environments < settings.start
        gradients = {name: tp.cases((waits, tp.zeros(g.shape)), g) for name, g in gradients.items()}
        rate = tp.optim.linear(settings.rate, settings.last_rate, settings.steps)
        tp.optim.Adam(rate, dim=t).apply(learned, gradients)

        tp.output("reward", seen.reward)
        tp.output("done", seen.done)
    return program


def player(environment: Any, settings: Settings, steps: int) -> tp.Program:
    """Acts with trained weights, always as has the greatest value."""
    with tp.Program("play") as program:
        t = tp.dim("t", steps)
        values = network(settings, environment.observation[0], environment.actions, ())
        seen = tp.rl.rollout(environment, lambda x: values(x).argmax(axis=-1), (t,), batch=16)
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
    axes.axhline(22, color="grey", linestyle=":", label="actions at random")
    axes.set(title="DQN on CartPole-v1", xlabel="environment steps", ylabel="mean return of the last 100 episodes")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--gymnasium", action="store_true", help="Gymnasium's environment instead of the traced one")
    parser.add_argument("--seeds", type=int, default=1, help="train so many times")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="of every environment")
    parser.add_argument("--plot", type=Path, help="write a picture of the learning curves")
    options = parser.parse_args(arguments)
    on_mesh.refuse(options, "each step learns from what was drawn out of all environments, so no dim can lie along it")
    settings = Settings(steps=options.steps)
    environment: Any = tp.rl.CartPole()
    if options.gymnasium:
        environment = tp.rl.GymnasiumEnvs("CartPole-v1", settings.environments)
    start = time.perf_counter()
    run = tp.compile(trainer(environment, settings), options.backend)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    curves = {}
    for seed in range(options.seeds):
        if options.gymnasium:
            environment.seed = seed
        start = time.perf_counter()
        trained = run(seed=seed, progress=sys.stderr.isatty())
        curve = tp.rl.learning_curve(trained["reward"], trained["done"])
        seconds = time.perf_counter() - start
        curves[f"seed {seed}"] = curve
        print(
            f"seed {seed}: {settings.steps * settings.environments} steps in {seconds:.1f} s; "
            f"mean return {curve[1][min(99, len(curve[1]) - 1)]:.0f} of the first 100 episodes, "
            f"{curve[1][-1]:.0f} of the last"
        )
    play = tp.compile(player(tp.rl.CartPole(), settings, 1000), options.backend)
    played = play(state=trained.state, seed=1)
    lengths = np.asarray(played["length"])[np.asarray(played["done"])]
    print(f"the trained network plays {len(lengths)} episodes: mean return {lengths.mean():.0f}")
    if options.plot:
        plot(options.plot, curves)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
