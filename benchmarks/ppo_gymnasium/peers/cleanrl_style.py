"""A loop by hand in PyTorch over Gymnasium's vector environment, as CleanRL's `ppo.py`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from serve import Round, serve
from torch import nn
from torch.distributions import Categorical


def network(width: int, outputs: int, last: float) -> nn.Sequential:
    layers = [nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, last)):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Loop:
    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(0)
        self.settings, shape = settings, (settings["steps"], settings["environments"])
        self.envs = gymnasium.make_vec(
            "CartPole-v1",
            num_envs=shape[1],
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
        )
        self.policy, self.value = network(settings["width"], 2, 0.01), network(settings["width"], 1, 1.0)
        self.learned = [*self.policy.parameters(), *self.value.parameters()]
        self.adam = torch.optim.Adam(self.learned, lr=settings["rate"], eps=1e-5)
        self.seen = torch.zeros((*shape, 4))
        self.action = torch.zeros(shape, dtype=torch.long)
        self.reward, self.done, self.old, self.estimate, self.advantage = (torch.zeros(shape) for _ in range(5))
        self.observation = torch.tensor(self.envs.reset(seed=0)[0])
        self.length, self.returns = np.zeros(shape[1]), [0.0]

    @torch.no_grad()
    def act(self) -> None:
        for t in range(self.settings["steps"]):
            actions = Categorical(logits=self.policy(self.observation))
            self.seen[t], self.action[t] = self.observation, actions.sample()
            self.estimate[t], self.old[t] = self.value(self.observation)[:, 0], actions.log_prob(self.action[t])
            following, reward, terminated, truncated, info = self.envs.step(self.action[t].numpy())
            done = terminated | truncated
            self.reward[t], self.done[t] = torch.from_numpy(reward), torch.from_numpy(done)
            self.length += 1
            for at in np.flatnonzero(truncated & ~terminated):
                final = torch.tensor(info["final_obs"][at])
                self.reward[t, at] += self.settings["gamma"] * self.value(final)[0]
            self.returns.extend(self.length[done])
            self.length[done] = 0
            self.observation = torch.from_numpy(np.asarray(following, np.float32).copy())

    @torch.no_grad()
    def look_back(self) -> None:
        later, following = torch.zeros(self.settings["environments"]), self.value(self.observation)[:, 0]
        for t in reversed(range(self.settings["steps"])):
            going_on = 1 - self.done[t]
            delta = self.reward[t] + self.settings["gamma"] * following * going_on - self.estimate[t]
            self.advantage[t] = later = delta + self.settings["gamma"] * self.settings["decay"] * going_on * later
            following = self.estimate[t]

    def learn(self) -> int:
        count = self.action.numel()
        flat = [x.reshape(count, *x.shape[2:]) for x in (self.seen, self.action, self.old, self.advantage)]
        flat.append((self.advantage + self.estimate).reshape(count))
        updates = 0
        for _ in range(self.settings["epochs"]):
            for chosen in torch.randperm(count).chunk(self.settings["minibatches"]):
                self.update(*(each[chosen] for each in flat))
                updates += 1
        return updates

    def update(self, *batch: torch.Tensor) -> None:
        seen, action, old, advantage, returns = batch
        actions, clip = Categorical(logits=self.policy(seen)), self.settings["clip"]
        ratio = (actions.log_prob(action) - old).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clip(1 - clip, 1 + clip) * advantage).mean()
        error = ((self.value(seen)[:, 0] - returns) ** 2).mean()
        entropy = actions.entropy().mean()
        loss = -gain + self.settings["value_weight"] * error - self.settings["entropy_weight"] * entropy
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.learned, self.settings["max_norm"])
        self.adam.step()

    def train(self) -> tuple[int, float]:
        updates = 0
        for _ in range(self.settings["iterations"]):
            self.act()
            self.look_back()
            updates += self.learn()
        last = self.returns[-100:]
        return updates, float(sum(last)) / len(last)


def prepare(settings: dict[str, Any]) -> Round:
    return Loop(settings).train


serve("CleanRL-style loop", prepare)
