"""Returns and advantages over a dim of time: one changed line of a program, and another strategy of execution.

`reward`, `value` and `done` have one shape, at every point of `dim`. `done` says that the episode ended with that
step: nothing after it counts. `last` is the value of what follows the last point, 0 unless given.
"""

from __future__ import annotations

from typing import Any

import tempo as tp


def monte_carlo(
    reward: tp.RecurrentTensor, done: tp.RecurrentTensor, dim: tp.Dim, gamma: float, last: Any = None
) -> tp.RecurrentTensor:
    """`g[t] = r[t] + gamma * g[t + 1]`, up to the end of the episode or of the dim."""
    kept = gamma * _going_on(done, reward)
    g = tp.recurrent("monte_carlo", reward.shape, (reward + kept).domain, dtype=reward.dtype)
    g[True] = reward + kept * _after(g, dim, last)
    return g


def n_step(
    reward: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    done: tp.RecurrentTensor,
    dim: tp.Dim,
    n: int,
    gamma: float,
    last: Any = None,
) -> tp.RecurrentTensor:
    """`r[t] + ... + gamma**(n - 1) r[t + n - 1] + gamma**n v[t + n]`, cut at the end of the episode or of the dim.

    Source: Sutton and Barto 2018, equation 7.1.
    """
    window = {dim.name: slice(dim, tp.min(dim + n, dim.size))}
    rewards, ends = reward.at(**window), done.astype(reward.dtype).at(**window)
    length = tp.min(dim + n, dim.size) - dim
    base = tp.full((), gamma, dtype=reward.dtype)
    powers = (base ** tp.arange(length).astype(reward.dtype)).reshape(-1, *(1 for _ in reward.shape))
    ended_before = ends.cumsum(axis=0) - ends
    alive = (ended_before == 0).astype(reward.dtype)
    summed = (powers * alive * rewards).sum(axis=0)
    bootstrap = tp.cases((dim + n < dim.size, value.at(**{dim.name: dim + n})), _first(last, reward))
    survives = (ends.sum(axis=0) == 0).astype(reward.dtype)
    discount = base ** tp.as_tensor(length).astype(reward.dtype)
    return summed + discount * survives * bootstrap


def td_zero(
    reward: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    done: tp.RecurrentTensor,
    dim: tp.Dim,
    gamma: float,
    last: Any = None,
) -> tp.RecurrentTensor:
    """`r[t] + gamma * v[t + 1]`. Source: Sutton and Barto 2018, equation 6.2."""
    return reward + gamma * _going_on(done, reward) * _after(value, dim, last)


def gae(
    reward: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    done: tp.RecurrentTensor,
    dim: tp.Dim,
    gamma: float,
    decay: float,
    last: Any = None,
) -> tp.RecurrentTensor:
    """Advantages: `a[t] = delta[t] + gamma * decay * a[t + 1]` with `delta[t] = r[t] + gamma * v[t + 1] - v[t]`.

    Source: Schulman et al. 2016, equation 16.
    """
    going = _going_on(done, reward)
    delta = reward + gamma * going * _after(value, dim, last) - value
    advantage = tp.recurrent("gae", reward.shape, (delta + going).domain, dtype=reward.dtype)
    advantage[True] = delta + gamma * decay * going * _after(advantage, dim, None)
    return advantage


def v_trace(
    reward: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    done: tp.RecurrentTensor,
    log_ratio: tp.RecurrentTensor,
    dim: tp.Dim,
    gamma: float,
    clip: float = 1.0,
    last: Any = None,
) -> tp.RecurrentTensor:
    """Targets of the value under the policy that learns, from the actions of another: V-trace.

    `log_ratio` is the log-probability of the action under the policy that learns, less that under the one that acted.
    Source: Espeholt et al. 2018, equation 1, with both thresholds `clip`.
    """
    ratio = tp.minimum(tp.exp(log_ratio), clip)
    kept = gamma * _going_on(done, reward)
    delta = ratio * (reward + kept * _after(value, dim, last) - value)
    correction = tp.recurrent("v_trace", reward.shape, (delta + kept).domain, dtype=reward.dtype)
    correction[True] = delta + kept * ratio * _after(correction, dim, None)
    return value + correction


def _going_on(done: tp.RecurrentTensor, like: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return 1 - done.astype(like.dtype)


def _after(x: tp.RecurrentTensor, dim: tp.Dim, last: Any) -> tp.RecurrentTensor:
    """`x` one point later; `last` after the last point."""
    return tp.cases((dim < dim.size - 1, x.at(**{dim.name: dim + 1})), _first(last, x))


def _first(last: Any, like: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.zeros(like.shape, dtype=like.dtype) if last is None else last
