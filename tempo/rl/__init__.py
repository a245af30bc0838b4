"""Reinforcement learning, written in the language: environments, policies' distributions, returns, replay.

Environments that can be traced (`CartPole`, `Pendulum`, `Trivial`) run inside the compiled program; those of Gymnasium
are called on the host (`GymnasiumEnvs`), those of gymnax are traced by JAX (`GymnaxEnvs`). All give a `Trajectory`.
"""

from tempo.rl.acting import (
    CartPole,
    Categorical,
    Environment,
    EpsilonGreedy,
    Normal,
    Pendulum,
    Trajectory,
    Trivial,
    rollout,
)
from tempo.rl.called import GymnasiumEnvs, GymnaxEnvs
from tempo.rl.curves import learning_curve
from tempo.rl.replay import replay, target
from tempo.rl.returns import gae, monte_carlo, n_step, td_zero, v_trace

__all__ = [
    "CartPole",
    "Categorical",
    "Environment",
    "EpsilonGreedy",
    "GymnasiumEnvs",
    "GymnaxEnvs",
    "Normal",
    "Pendulum",
    "Trajectory",
    "Trivial",
    "gae",
    "learning_curve",
    "monte_carlo",
    "n_step",
    "replay",
    "rollout",
    "target",
    "td_zero",
    "v_trace",
]
