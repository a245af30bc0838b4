"""A rollout of Gymnasium's CartPole-v1 under an MLP policy, and its discounted returns.

The environment is the real package, called from the program; the policy, the sampling of actions and the returns are
equations over environments `b`, episodes `i` and time `t`. `--check` runs the same thing as a NumPy loop.

    python examples/cartpole_rollout.py --check --plot out/cartpole.png
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

GAMMA = 0.99
HIDDEN = 32


class CartPole:
    """`batch` environments; the k-th reset is seeded with `seed + k`."""

    def __init__(self, batch: int, seed: int) -> None:
        # An environment whose episode ends starts a new one in the same step, so every step is a real one.
        self.envs = gym.make_vec(
            "CartPole-v1",
            num_envs=batch,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
        assert self.envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        self.seed = seed

    def reset(self) -> np.ndarray:
        observation, _ = self.envs.reset(seed=self.seed)
        self.seed += 1
        return observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        observation, reward, terminated, truncated, _ = self.envs.step(action)
        return observation, reward.astype(np.float32), terminated | truncated


def weights(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "w1": draw.normal(0, 0.5, (4, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": draw.normal(0, 0.5, (HIDDEN, 2)).astype(np.float32),
        "b2": np.zeros(2, np.float32),
    }


def rollout(env: CartPole, initial: Mapping[str, np.ndarray]) -> tp.Program:
    with tp.Program("cartpole_rollout") as program:
        b, i, t = tp.dims("b i t")
        w1, b1, w2, b2 = (tp.parameter(name, array.shape, init=array) for name, array in initial.items())

        (first,) = tp.host_call(env.reset, out=[((4,), tp.float32)], ordered_by=(i,), batched=(b,), resource="env")
        observation = tp.recurrent("observation", shape=(4,), dims=(b, i, t))

        # The policy, and a sample from it (the largest of the logits with Gumbel noise).
        logits = tp.tanh(observation @ w1 + b1) @ w2 + b2
        noise = -tp.log(-tp.log(tp.random.uniform((2,), dims=(b, i, t))))
        action = (logits + noise).argmax(axis=-1)

        following, reward, done = tp.host_call(
            env.step,
            action,
            out=[((4,), tp.float32), ((), tp.float32), ((), tp.bool_)],
            ordered_by=(i, t),
            batched=(b,),
            resource="env",
        )
        observation[b, i, 0] = first
        observation[b, i, t + 1] = following

        # The return: the reward now, and the discounted return from the next step on, unless the episode ended.
        returns = tp.recurrent("returns", shape=(), dims=(b, i, t))
        returns[b, i, t.size - 1] = reward
        returns[b, i, t] = reward + GAMMA * returns[b, i, t + 1] * (1 - done.astype(tp.float32))

        for name, tensor in {"noise": noise, "action": action, "reward": reward, "done": done}.items():
            tp.output(name, tensor)
        tp.output("returns", returns)
    return program


def numpy_loop(env: CartPole, w: Mapping[str, np.ndarray], noise: np.ndarray) -> dict[str, np.ndarray]:
    """The peer: what one writes without Tempo."""
    batch, episodes, steps, _ = noise.shape
    action = np.zeros((batch, episodes, steps), np.int32)
    reward = np.zeros((batch, episodes, steps), np.float32)
    done = np.zeros((batch, episodes, steps), bool)
    for i in range(episodes):
        observation = env.reset()
        for t in range(steps):
            logits = np.tanh(observation @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
            action[:, i, t] = (logits + noise[:, i, t]).argmax(axis=-1)
            observation, reward[:, i, t], done[:, i, t] = env.step(action[:, i, t])
    returns = np.zeros_like(reward)
    returns[..., -1] = reward[..., -1]
    for t in reversed(range(steps - 1)):
        returns[..., t] = reward[..., t] + np.float32(GAMMA) * returns[..., t + 1] * (1 - done[..., t])
    return {"action": action, "reward": reward, "done": done, "returns": returns}


def check(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name in ("action", "reward", "done"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    np.testing.assert_allclose(found["returns"], expected["returns"], rtol=1e-5, err_msg="returns")


def plot(path: Path, found: Mapping[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), layout="constrained")
    for row in range(min(4, found["returns"].shape[0])):
        above.plot(found["returns"][row, 0], label=f"environment {row}")
    above.set(title="CartPole-v1: discounted returns after the first reset", xlabel="step t", ylabel="return")
    above.legend(loc="upper right")
    image = below.imshow(found["returns"][:, 0], aspect="auto", interpolation="nearest")
    below.set(xlabel="step t", ylabel="environment b")
    figure.colorbar(image, ax=below, label="return")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--batch", type=int, default=16, help="environments")
    parser.add_argument("--episodes", type=int, default=2, help="resets of all environments")
    parser.add_argument("--steps", type=int, default=200, help="steps after each reset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to a NumPy loop")
    parser.add_argument("--plot", type=Path, help="write a picture of the returns")
    options = parser.parse_args(arguments)

    initial = weights(options.seed)
    sizes = {"b": options.batch, "i": options.episodes, "t": options.steps}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(
        rollout(CartPole(options.batch, options.seed), initial), backend=options.backend, sizes=sizes, **lies
    )
    start = time.perf_counter()
    outputs = run(seed=options.seed)
    seconds = time.perf_counter() - start
    found = {name: np.asarray(outputs[name]) for name in ("noise", "action", "reward", "done", "returns")}

    frames = options.batch * options.episodes * options.steps
    print(f"CartPole-v1: {frames} environment steps in {seconds:.2f} s ({frames / seconds:.0f} per second)")
    print(f"episodes that ended: {found['done'].sum()}, mean return at t = 0: {found['returns'][:, :, 0].mean():.2f}")
    on_mesh.tell(options, run)
    if options.check:
        start = time.perf_counter()
        expected = numpy_loop(CartPole(options.batch, options.seed), initial, found["noise"])
        print(f"NumPy loop: {time.perf_counter() - start:.2f} s")
        check(found, expected)
        print("equal to the NumPy loop: actions, rewards and ends exactly, returns to 1e-5")
    if options.plot:
        plot(options.plot, found)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
