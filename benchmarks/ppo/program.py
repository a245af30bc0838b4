"""The declaration that is compiled."""

from __future__ import annotations

import tempo as tp
from benchmarks.ppo.settings import Settings


def program(settings: Settings) -> tp.Program:
    environments, count = settings.environments, settings.environments * settings.steps
    with tp.Program("ppo") as made:
        i = tp.dim("i", settings.iterations)
        t = tp.dim("t", settings.steps)
        policy = tp.nn.MLP((*settings.widths, settings.actions), name="policy", dims=(i,))
        value = tp.nn.MLP((*settings.widths, 1), name="value", dims=(i,))
        gumbel = tp.input("gumbel", (environments, settings.actions), (i, t))
        first = tp.input("first", (environments, settings.observation), ())

        observation = tp.recurrent("observation", first.shape, (i, t))
        actions = tp.rl.Categorical(policy(observation))
        action = (tp.stop_gradient(actions.logits) + gumbel).argmax(axis=-1)
        following = 0.9 * observation + 0.1 * action.astype(tp.float32).reshape(environments, 1)
        reward = following.mean(axis=-1)
        observation[0, 0] = first
        tp.optim.define_next(observation, (i, t), following)

        seen = tp.stop_gradient(observation)
        actions, estimate = tp.rl.Categorical(policy(seen)), value(seen).spatial[..., 0]
        log_prob = actions.log_prob(action)
        done = tp.zeros((environments,), dtype=tp.bool_)
        last = value(tp.stop_gradient(following[i, -1])).spatial[..., 0]
        advantage = tp.stop_gradient(tp.rl.gae(reward, estimate, done, t, settings.gamma, settings.decay, last))
        returns = tp.stop_gradient(advantage + estimate)
        mean = advantage[i, :].mean()
        deviation = tp.sqrt(((advantage[i, :] - mean) * (advantage[i, :] - mean)).mean())
        scaled = (advantage - mean) / (deviation + 1e-8)

        ratio = tp.exp(log_prob - tp.stop_gradient(log_prob))
        clipped = tp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        gain = tp.minimum(ratio * scaled, clipped * scaled).sum()
        error = ((estimate - returns) * (estimate - returns)).sum()
        loss = (-gain + settings.value_weight * error - settings.entropy_weight * actions.entropy().sum()) / count
        learned = {**policy.parameters(), **value.parameters()}
        gradients = tp.grad(loss, learned)
        tp.optim.Adam(settings.rate).apply(learned, gradients)
        tp.output("loss", loss[i, :].sum())
        tp.output("reward", reward[i, :].mean())
        tp.output("norm", tp.optim.global_norm(gradients))  # so that the last iteration computes its gradients too
    return made
