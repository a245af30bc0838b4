"""What is measured: full-batch PPO with one update an iteration, in an environment that only has shapes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Settings:
    environments: int = 32
    steps: int = 250
    iterations: int = 4
    layers: int = 2
    width: int = 64
    observation: int = 48  # 3 x 4 x 4
    actions: int = 2
    gamma: float = 0.99
    decay: float = 0.95
    clip: float = 0.2
    rate: float = 3e-4
    entropy_weight: float = 0.01
    value_weight: float = 0.5

    def __str__(self) -> str:
        return f"{self.environments} environments x {self.steps} steps, {self.layers} layers of {self.width}"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.observation, *([self.width] * self.layers))


def weights(settings: Settings, seed: int = 0) -> dict[str, np.ndarray]:
    """Of both networks, by the names that `tempo.nn` gives them."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, outputs in (("policy", settings.actions), ("value", 1)):
        sizes = (*settings.widths, outputs)
        for at, (given, made) in enumerate(pairwise(sizes)):
            found[f"{name}.{at}.weight"] = draw.normal(0, given**-0.5, (given, made)).astype(np.float32)
            found[f"{name}.{at}.bias"] = np.zeros(made, np.float32)
    return found


def noise(settings: Settings, seed: int = 1) -> dict[str, np.ndarray]:
    """Gumbel noise for every choice, and the first observations: given to everyone alike."""
    draw = np.random.default_rng(seed)
    shape = (settings.iterations, settings.steps, settings.environments, settings.actions)
    return {
        "gumbel": draw.gumbel(size=shape).astype(np.float32),
        "first": draw.uniform(-1, 1, (settings.environments, settings.observation)).astype(np.float32),
    }
