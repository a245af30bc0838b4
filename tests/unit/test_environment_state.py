"""What is kept of environments of Gymnasium, and what is refused."""

from __future__ import annotations

import enum
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.rl.environment_state import restore, state_of

gymnasium = pytest.importorskip("gymnasium")


class Phase(enum.Enum):
    FIRST = 1
    SECOND = 2


class Noise:
    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        self.value += 1
        return self.value


class Walk(gymnasium.Env):  # type: ignore[misc]
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **more: Any) -> None:
        self.state, self.phase, self.function = np.zeros(2, np.float32), Phase.FIRST, len
        self.same = self.state
        self.second: Any = None
        vars(self).update(more)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.second = self.np_random
        self.state[:] = self.np_random.normal(size=2)
        return self.state.copy(), {}

    def step(self, action: Any) -> Any:
        self.phase = Phase.SECOND if self.phase is Phase.FIRST else Phase.FIRST
        self.same += np.float32(self.second.normal()) * self.phase.value
        return self.state + np.float32(self.np_random.normal()), 1.0, False, False, {}


def vector(**more: Any) -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.wrappers.TimeLimit(Walk(**more), 50)] * 2)


def steps(environment: Any, count: int) -> np.ndarray:
    return np.stack([environment.step(np.zeros(2, int))[0] for _ in range(count)])


def test_environments_go_on_where_they_were() -> None:
    first, second = vector(), vector()
    first.reset(seed=3)
    steps(first, 4)
    state = deepcopy(state_of(first))
    wanted = steps(first, 5)
    restore(second, state)
    np.testing.assert_array_equal(steps(second, 5), wanted)


@pytest.mark.parametrize(
    "more",
    [{"noise": Noise()}, {"info": {"f": len, "count": 0}}, {"lock": object()}],
    ids=lambda more: next(iter(more)),
)
def test_what_cannot_be_kept_is_named(more: dict[str, Any]) -> None:
    with pytest.raises(tp.UnsupportedError, match=f"the state of a Walk cannot be kept: its {next(iter(more))} is a"):
        state_of(vector(**more))
