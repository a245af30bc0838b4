"""The same by hand in PyTorch: an eager loop that acts, then one update (as in CleanRL)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from tempo_torch.memory import measured_peak
from torch import nn

from benchmarks.harness import Session
from benchmarks.ppo.settings import Settings, noise, weights


class Peer:
    """All iterations, with what they are given."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.settings, self.weights, self.device = settings, weights(settings), torch.device(session.device)
        self.noise = {name: session.resident(array) for name, array in noise(settings).items()}

    def train(self) -> list[list[float]]:
        """Losses, rewards and norms of the gradients, of all iterations."""
        with self.device:
            return train(self.settings, self.weights, self.noise)

    def peak_bytes(self) -> int:
        return measured_peak(self.train, self.device)


def mlp(settings: Settings, weights: dict[str, Any], name: str, outputs: int) -> nn.Sequential:
    sizes, layers = (*settings.widths, outputs), []
    for at, (given, made) in enumerate(pairwise(sizes)):
        linear = nn.Linear(given, made)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weights[f"{name}.{at}.weight"]).T)
            linear.bias.copy_(torch.tensor(weights[f"{name}.{at}.bias"]))
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def train(settings: Settings, weights: dict[str, Any], noise: dict[str, Any]) -> list[list[float]]:
    """The losses, mean rewards and norms of the gradients of all iterations."""
    policy, value = mlp(settings, weights, "policy", settings.actions), mlp(settings, weights, "value", 1)
    learned = [*policy.parameters(), *value.parameters()]
    adam = torch.optim.Adam(learned, lr=settings.rate)
    observation, gumbel = noise["first"], noise["gumbel"]
    count = settings.environments * settings.steps
    found: list[list[float]] = [[], [], []]
    seen = torch.zeros((settings.steps, settings.environments, settings.observation))
    action = torch.zeros((settings.steps, settings.environments), dtype=torch.long)
    reward, estimate, old, advantage = (torch.zeros((settings.steps, settings.environments)) for _ in range(4))
    for i in range(settings.iterations):
        for t in range(settings.steps):
            with torch.no_grad():
                logits, estimate[t] = policy(observation), value(observation)[:, 0]
                action[t] = (logits + gumbel[i, t]).argmax(-1)
                old[t] = torch.log_softmax(logits, -1).gather(-1, action[t][:, None])[:, 0]
            seen[t] = observation
            observation = 0.9 * observation + 0.1 * action[t].float()[:, None]
            reward[t] = observation.mean(-1)
        with torch.no_grad():
            later, following = torch.zeros(settings.environments), value(observation)[:, 0]
            for t in reversed(range(settings.steps)):
                delta = reward[t] + settings.gamma * following - estimate[t]
                advantage[t] = later = delta + settings.gamma * settings.decay * later
                following = estimate[t]
            returns = advantage + estimate
            scaled = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        log_p = torch.log_softmax(policy(seen), -1)
        ratio = (log_p.gather(-1, action[..., None])[..., 0] - old).exp()
        gain = torch.minimum(ratio * scaled, ratio.clip(1 - settings.clip, 1 + settings.clip) * scaled).sum()
        error = ((value(seen)[..., 0] - returns) ** 2).sum()
        entropy = -(log_p.exp() * log_p).sum()
        loss = (-gain + settings.value_weight * error - settings.entropy_weight * entropy) / count
        adam.zero_grad()
        loss.backward()
        adam.step()
        norm = torch.nn.utils.get_total_norm([each.grad for each in learned if each.grad is not None])
        for series, each in zip(found, (loss, reward.mean(), norm), strict=True):
            series.append(each.item())
    return found
