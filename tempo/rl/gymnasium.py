"""Environments of Gymnasium, called on the host from the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tempo as tp
from tempo.errors import user_location
from tempo.rl.environments import Trajectory, check_actions, check_batch, define

Array = np.ndarray[Any, Any]
Tensor = tp.RecurrentTensor


class GymnasiumEnvs:
    """A vector environment of Gymnasium, `gymnasium.make_vec(name, num_envs=batch, **options)` or a ready one.

    What happens where an episode ends is what its metadata say, `AutoresetMode`. With SAME_STEP (what a name is made
    with) and DISABLED (environments whose episode ended are reset right after the step) every point of a fixed horizon
    is a step of the environment. With NEXT_STEP the point after the end only starts the next episode: there
    `Trajectory.real` is false. `seed` seeds the first reset of a run.

    Raises `UnsupportedError` for any other mode, and for spaces other than Box (observations), Box and Discrete
    (actions); `InputError` where there is no such vector environment.
    """

    def __init__(self, environment: Any, batch: int | None = None, *, seed: int = 0, **options: Any) -> None:
        import gymnasium
        from gymnasium.vector import AutoresetMode

        if isinstance(environment, str):
            environment = _made(environment, 1 if batch is None else batch, options)
        _check_vector(environment, batch)
        mode = environment.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
            raise tp.UnsupportedError(
                f"the environment's metadata say AutoresetMode {mode!r}, so it is not known where episodes begin",
                location=user_location(),
                hint="make it with vector_kwargs={'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP}",
            )
        self.mode: str = mode.name
        self.envs, self.seed = environment, seed
        space, actions = environment.single_observation_space, environment.single_action_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise _unsupported(f"observations of the space {space}: only Box is supported")
        self.batch: int = environment.num_envs
        self.observation: tuple[int, ...] = space.shape
        self.actions: int | tuple[int, ...]
        if isinstance(actions, gymnasium.spaces.Discrete):
            self.actions, self._first_action = int(actions.n), int(actions.start)
        elif isinstance(actions, gymnasium.spaces.Box):
            self.actions, self._first_action = actions.shape, 0
        else:
            raise _unsupported(f"actions of the space {actions}: only Discrete and Box are supported")

    def rollout(
        self, policy: Callable[[Tensor], Tensor], dims: Sequence[tp.Dim], name: str = "environment"
    ) -> Trajectory:
        """The environments at every point of `dims`, in lexicographic order; episodes go on across all of them.

        Every run starts with a reset. `policy` gives an action (batch,) int32, or (batch, *actions), for observations
        (batch, *observation).
        """
        shape = (self.batch, *self.observation)
        # Every step needs `begun`: a policy that looks at no observation would leave the reset out.
        first, begun = tp.host_call(self._reset, out=[(shape, tp.float32), ((), tp.bool_)], resource=self)
        observation = tp.recurrent(f"{name}.observation", shape, dims)
        action = policy(observation)
        check_actions(action, self.actions, self.batch)
        one, flag = ((self.batch,), tp.float32), ((self.batch,), tp.bool_)
        after, reward, terminated, truncated, following, length, real = tp.host_call(
            self._step,
            action,
            begun,
            out=[(shape, tp.float32), one, flag, flag, (shape, tp.float32), ((self.batch,), tp.int32), flag],
            ordered_by=tuple(dims),
            resource=self,
        )
        define(observation, dims, first, after)
        if self.mode != "NEXT_STEP":
            real = tp.ones_like(terminated)
        return Trajectory(observation, action, reward, terminated, truncated, following, length, real)

    def _reset(self) -> tuple[Array, bool]:
        observation, _ = self.envs.reset(seed=self.seed)
        self._length = np.zeros(self.batch, np.int32)
        self._ended = np.zeros(self.batch, np.bool_)
        return np.asarray(observation, np.float32), True

    def _step(self, action: Array, begun: Array) -> tuple[Array, ...]:
        del begun
        given = action + self._first_action if isinstance(self.actions, int) else action
        observation, reward, terminated, truncated, info = self.envs.step(given)
        done, real = terminated | truncated, np.ones(self.batch, np.bool_)
        if self.mode == "NEXT_STEP":
            real, self._ended = ~self._ended, done
        self._length += real
        length = self._length.copy()
        following = np.array(observation, np.float32)
        if self.mode == "SAME_STEP":
            for at in np.flatnonzero(done):
                following[at] = info["final_obs"][at]
        if self.mode == "DISABLED" and done.any():
            observation, _ = self.envs.reset(options={"reset_mask": done})
        self._length[done] = 0
        start = np.asarray(observation, np.float32)
        return start, reward.astype(np.float32), terminated, truncated, following, length, real


def _made(name: str, batch: Any, options: dict[str, Any]) -> Any:
    import gymnasium
    from gymnasium.vector import AutoresetMode

    check_batch(batch)
    defaults = {"vector_kwargs": {"autoreset_mode": AutoresetMode.SAME_STEP}, "vectorization_mode": "sync"}
    try:
        return gymnasium.make_vec(name, num_envs=batch, **{**defaults, **options})
    except Exception as error:
        message = f"Gymnasium cannot make {name!r}: {type(error).__name__}: {error}"
        raise tp.InputError(message, location=user_location()) from error


def _check_vector(environment: Any, batch: int | None) -> None:
    import gymnasium

    if not isinstance(environment, gymnasium.vector.VectorEnv):
        raise tp.InputError(
            f"{environment!r} is no vector environment of Gymnasium",
            location=user_location(),
            hint="give its name, or gymnasium.make_vec(name, num_envs)",
        )
    if batch not in (None, environment.num_envs):
        message = f"batch={batch!r} of a ready vector environment that has {environment.num_envs}"
        raise tp.InputError(message, location=user_location(), hint="leave batch= out")


def _unsupported(message: str) -> tp.UnsupportedError:
    return tp.UnsupportedError(message, location=user_location(), hint="wrap it so that its space is one of these")
