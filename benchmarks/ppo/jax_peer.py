"""The same by hand in JAX: acting, learning and all iterations in one `jit` (as in PureJaxRL)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tempo_jax.executables import needs

from benchmarks.harness import Session
from benchmarks.ppo.settings import Settings, noise, weights

Tree = dict[str, Any]


class Peer:
    """All iterations, with what they are given."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.jitted = jitted(settings)
        self.given = tuple(
            {name: session.resident(array) for name, array in arrays.items()}
            for arrays in (weights(settings), noise(settings))
        )

    def train(self) -> list[np.ndarray]:
        """Losses, rewards and norms of the gradients, of all iterations."""
        return [np.asarray(each) for each in self.jitted(*self.given)]

    def peak_bytes(self) -> int:
        """What XLA needs beyond the arguments."""
        return sum(needs(self.jitted, self.given))


def jitted(settings: Settings) -> Any:
    """`(weights, noise) -> (losses, rewards, norms)`, jitted."""
    depth, count = settings.layers + 1, settings.environments * settings.steps

    def network(weights: Tree, name: str, x: Any) -> Any:
        for at in range(depth):
            x = x @ weights[f"{name}.{at}.weight"] + weights[f"{name}.{at}.bias"]
            x = jnp.tanh(x) if at < depth - 1 else x
        return x

    def log_prob_of(logits: Any, action: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]

    def iteration(carry: tuple[Any, ...], gumbel: Any) -> tuple[Any, Any]:
        weights, mean, square, step, observation = carry

        def act(observation: Any, noise: Any) -> tuple[Any, Any]:
            logits = network(weights, "policy", observation)
            value = network(weights, "value", observation)[..., 0]
            action = jnp.argmax(logits + noise, -1)
            following = 0.9 * observation + 0.1 * action.astype(jnp.float32)[:, None]
            return following, (observation, action, following.mean(-1), value, log_prob_of(logits, action))

        following, (seen, action, reward, value, old) = lax.scan(act, observation, gumbel)
        last = network(weights, "value", following)[..., 0]

        def backward(carry: tuple[Any, Any], point: tuple[Any, Any]) -> tuple[Any, Any]:
            advantage, later = carry
            reward, value = point
            advantage = reward + settings.gamma * later - value + settings.gamma * settings.decay * advantage
            return (advantage, value), advantage

        start = (jnp.zeros_like(last), last)
        _, advantage = lax.scan(backward, start, (reward, value), reverse=True)
        returns = advantage + value
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

        def loss_of(weights: Tree) -> Any:
            logits = network(weights, "policy", seen)
            estimate = network(weights, "value", seen)[..., 0]
            log_p = jax.nn.log_softmax(logits)
            ratio = jnp.exp(jnp.take_along_axis(log_p, action[..., None], -1)[..., 0] - old)
            clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
            gain = jnp.minimum(ratio * scaled, clipped * scaled).sum()
            error = ((estimate - returns) ** 2).sum()
            entropy = -(jnp.exp(log_p) * log_p).sum()
            return (-gain + settings.value_weight * error - settings.entropy_weight * entropy) / count

        loss, gradient = jax.value_and_grad(loss_of)(weights)
        norm = jnp.sqrt(sum((each**2).sum() for each in jax.tree.leaves(gradient)))
        step = step + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradient)

        def updated(w: Any, m: Any, v: Any) -> Any:
            return w - settings.rate * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)

        weights = jax.tree.map(updated, weights, mean, square)
        return (weights, mean, square, step, following), (loss, reward.mean(), norm)

    @jax.jit
    def train(weights: Tree, noise: Tree) -> tuple[Any, Any, Any]:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        carry = (weights, zeros, zeros, jnp.float32(0), noise["first"])
        _, found = lax.scan(iteration, carry, noise["gumbel"])
        return found

    return train
