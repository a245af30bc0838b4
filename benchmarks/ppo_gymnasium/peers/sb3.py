"""stable-baselines3's PPO, on its own vectorised environments."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from serve import Round, serve
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env


def prepare(settings: dict[str, Any]) -> Round:
    torch.set_num_threads(settings["threads"])
    environments = make_vec_env("CartPole-v1", n_envs=settings["environments"], seed=0)
    model = PPO(
        "MlpPolicy",
        environments,
        n_steps=settings["steps"],
        batch_size=settings["environments"] * settings["steps"] // settings["minibatches"],
        n_epochs=settings["epochs"],
        learning_rate=settings["rate"],
        gamma=settings["gamma"],
        gae_lambda=settings["decay"],
        clip_range=settings["clip"],
        vf_coef=settings["value_weight"],
        ent_coef=settings["entropy_weight"],
        max_grad_norm=settings["max_norm"],
        policy_kwargs={"net_arch": [settings["width"]] * 2, "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=0,
    )
    points = settings["environments"] * settings["steps"] * settings["iterations"]

    def train() -> tuple[int, float]:
        before = model._n_updates
        model.learn(points, reset_num_timesteps=False)
        episodes = [each["r"] for each in model.ep_info_buffer]
        # What it counts are epochs.
        return (model._n_updates - before) * settings["minibatches"], sum(episodes) / len(episodes)

    return train


serve(f"stable-baselines3 {version('stable-baselines3')}", prepare)
