"""TorchRL's PPO, put together as its own example does: a collector, GAE, `ClipPPOLoss`, minibatches from a buffer.

The environments are stepped in turn in one process and reset by TorchRL, which is its fastest way for CartPole.
"""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

import gymnasium
import torch
from serve import Round, serve
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

warnings.simplefilter("ignore")


def network(width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))


def make_environments(count: int) -> TransformedEnv:
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * count, autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED
    )
    return TransformedEnv(GymWrapper(envs, categorical_action_encoding=True), RewardSum())


def prepare(settings: dict[str, Any]) -> Round:
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(0)
    actor = ProbabilisticActor(
        TensorDictModule(network(settings["width"], 2), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(settings["width"], 1), in_keys=["observation"])
    points = settings["environments"] * settings["steps"]
    collector = Collector(
        make_environments(settings["environments"]), actor, frames_per_batch=points, total_frames=-1, device="cpu"
    )
    batches = TensorDictReplayBuffer(
        storage=LazyTensorStorage(points),
        sampler=SamplerWithoutReplacement(),
        batch_size=points // settings["minibatches"],
    )
    advantages = GAE(gamma=settings["gamma"], lmbda=settings["decay"], value_network=critic, average_gae=False)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=settings["clip"],
        loss_critic_type="l2",
        entropy_coeff=settings["entropy_weight"],
        critic_coeff=settings["value_weight"],
        normalize_advantage=True,
    )
    adam = torch.optim.Adam(loss.parameters(), lr=settings["rate"], eps=1e-5)
    collected = iter(collector)
    last: list[float] = []

    def learn(data: Any) -> int:
        updates = 0
        with torch.no_grad():
            data = advantages(data)
        batches.extend(data.reshape(-1))
        for _ in range(settings["epochs"]):
            for _ in range(settings["minibatches"]):
                found = loss(batches.sample())
                (found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]).backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), settings["max_norm"])
                adam.step()
                adam.zero_grad()
                updates += 1
        return updates

    def train() -> tuple[int, float]:
        updates = 0
        for _ in range(settings["iterations"]):
            data = next(collected)
            last.extend(data["next", "episode_reward"][data["next", "done"]].tolist())
            updates += learn(data)
        episodes = last[-100:]
        return updates, sum(episodes) / max(1, len(episodes))

    return train


serve(f"TorchRL {version('torchrl')}", prepare)
