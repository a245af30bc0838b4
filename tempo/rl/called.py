"""Environments of other libraries: of Gymnasium, called on the host, and of gymnax, traced by JAX into the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tempo as tp
from tempo.errors import user_location
from tempo.rl.acting import Trajectory, check_actions, check_batch, define
from tempo.rl.environment_state import restore, state_of

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
        self._length, self._ended = np.zeros(self.batch, np.int32), np.zeros(self.batch, np.bool_)
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

        Every run starts with a reset. `policy` gives an action `(batch,)` int32, or `(batch, *actions)`, for
        observations `(batch, *observation)`.
        """
        shape = (self.batch, *self.observation)
        # Every step needs `begun`: a policy that looks at no observation would leave the reset out.
        first, begun = tp.host_call(self._reset, out=[(shape, tp.float32), ((), tp.bool_)], resource=self)
        observation = tp.recurrent(f"{name}.observation", shape, dims)
        action = policy(observation)
        check_actions(action, self.actions, (self.batch,))
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

    def state_dict(self) -> dict[str, Any]:
        """Where the environments have come to, for a checkpoint (`tempo.rl.environment_state`).

        Raises `UnsupportedError` for environments that keep what nobody can write down.
        """
        return {"environments": state_of(self.envs), "length": self._length, "ended": self._ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore(self.envs, state["environments"])
        self._length, self._ended = state["length"], state["ended"]

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


class GymnaxEnvs:
    """`batch` environments of gymnax (1.0 or later), `gymnax.make(name, **options)` or a ready one with its `params`.

    They are calls of `tp.backend_call`, so acting and learning are one executable; it runs on the JAX backend alone.
    Where an episode ends the next one starts in the same step. Draws are keyed by the seed of the run.

    Raises `UnsupportedError` for spaces other than Box (observations), Box and Discrete (actions).
    """

    def __init__(self, environment: Any, batch: int = 1, *, params: Any = None, **options: Any) -> None:
        import gymnax
        import jax

        check_batch(batch)
        if isinstance(environment, str):
            environment, default = gymnax.make(environment, **options)
            params = default if params is None else params
        self.environment = environment
        self.params = environment.default_params if params is None else params
        self.batch = batch
        observation, *self._states = jax.eval_shape(self._reset, jax.ShapeDtypeStruct((batch, 2), "uint32"))
        _check_box(environment.observation_space(self.params), "observations")
        self.observation: tuple[int, ...] = observation.shape[1:]
        actions = environment.action_space(self.params)
        self.actions: int | tuple[int, ...]
        if hasattr(actions, "n"):
            self.actions, self._first_action = int(actions.n), int(getattr(actions, "start", 0))
        else:
            _check_box(actions, "actions")
            self.actions, self._first_action = tuple(actions.shape), 0

    def rollout(
        self, policy: Callable[[Tensor], Tensor], dims: Sequence[tp.Dim], name: str = "environment"
    ) -> Trajectory:
        """The environments at every point of `dims`, in lexicographic order; episodes go on across all of them.

        Every run starts with a reset. `policy` gives an action `(batch,)` int32, or `(batch, *actions)`, for
        observations `(batch, *observation)`.
        """
        kinds = [(each.shape, each.dtype.name) for each in self._states]
        shown = ((self.batch, *self.observation), tp.float32)
        one, flag = ((self.batch,), tp.float32), ((self.batch,), tp.bool_)
        seen, *first = tp.backend_call(
            self._reset, tp.random.bits((self.batch, 2), dims=()), out=[shown, *kinds], backend="jax"
        )
        observation = tp.recurrent(f"{name}.observation", shown[0], dims)
        age = tp.recurrent(f"{name}.age", (self.batch,), dims, dtype=tp.int32)
        states = [
            tp.recurrent(f"{name}.state{at}", shape, dims, dtype=dtype) for at, (shape, dtype) in enumerate(kinds)
        ]
        action = policy(observation)
        check_actions(action, self.actions, (self.batch,))
        keys = tp.random.bits((self.batch, 2), dims=tuple(dims))
        after, reward, terminated, truncated, following, *moved = tp.backend_call(
            self._step, keys, action, *states, out=[shown, one, flag, flag, shown, *kinds], backend="jax"
        )
        length = age + 1
        beginnings = [seen, tp.zeros((self.batch,), dtype=tp.int32), *first]
        ends = [after, tp.where(terminated | truncated, 0, length), *moved]
        for tensor, begins, goes_on in zip([observation, age, *states], beginnings, ends, strict=True):
            define(tensor, dims, begins, goes_on)
        real = tp.ones_like(terminated)
        return Trajectory(observation, action, reward, terminated, truncated, following, length, real)

    # Functions of JAX arrays.

    def _reset(self, keys: Any) -> tuple[Any, ...]:
        import jax

        observation, state = jax.vmap(lambda key: self.environment.reset(key, self.params))(keys)
        leaves, self._tree = jax.tree.flatten(state)
        return (observation.astype("float32"), *leaves)

    def _step(self, keys: Any, action: Any, *states: Any) -> tuple[Any, ...]:
        import jax

        given = action + self._first_action if isinstance(self.actions, int) else action
        state = jax.tree.unflatten(self._tree, states)
        observation, state, reward, terminated, truncated, info = jax.vmap(
            lambda key, state, action: self.environment.step(key, state, action, self.params)
        )(keys, state, given)
        following = info["final_observation"].astype("float32")
        leaves = jax.tree.leaves(state)
        return (observation.astype("float32"), reward.astype("float32"), terminated, truncated, following, *leaves)


def _check_box(space: Any, what: str) -> None:
    if not (hasattr(space, "low") and hasattr(space, "shape")):
        supported = f"only Box{' and Discrete' * (what == 'actions')}"
        raise tp.UnsupportedError(f"{what} of the space {space}: {supported}", location=user_location())
