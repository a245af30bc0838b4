"""How well it was learned, from what runs gave: NumPy arrays in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def learning_curve(
    reward: npt.ArrayLike, done: npt.ArrayLike, last: int = 100
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Environment steps so far, and the mean return of the `last` episodes, at the end of every episode.

    `done` is (..., environments): all axes but the last are time, the outermost first, and episodes go on across them,
    as in a rollout. `reward` is of that shape or broadcasts to it. Raises ValueError where it does not.

    >>> learning_curve(1.0, np.array([[False], [True], [False], [True]]))
    (array([2, 4]), array([2., 2.]))
    """
    ends = np.asarray(done, bool)
    rewards = np.broadcast_to(np.asarray(reward, np.float64), ends.shape)
    environments = ends.shape[-1]
    rewards, ends = rewards.reshape(-1, environments), ends.reshape(-1, environments)
    at, which = np.nonzero(ends)
    returns = _sums_between(rewards, at, which)
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    upto = np.arange(1, len(returns) + 1)
    since = np.maximum(upto - last, 0)
    return (at + 1) * environments, (sums[upto] - sums[since]) / (upto - since)


def _sums_between(rewards: npt.NDArray[Any], at: npt.NDArray[Any], which: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What each episode gave: the sum since the one before it in the same environment."""
    total = np.cumsum(rewards, axis=0)[at, which]
    returns: npt.NDArray[Any] = np.copy(total)
    for environment in range(rewards.shape[1]):
        own = np.flatnonzero(which == environment)
        returns[own[1:]] -= total[own[:-1]]
    return returns
