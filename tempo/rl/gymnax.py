"""Environments of gymnax: functions of JAX arrays, traced into the compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tempo as tp
from tempo.errors import user_location
from tempo.rl.environments import Trajectory, check_actions, check_batch, define

Tensor = tp.RecurrentTensor


class GymnaxEnvs:
    """`batch` environments of gymnax (1.0 or later), `gymnax.make(name, **options)` or a ready one with its `params`.

    They are `tp.backend_call`s, so acting and learning are one executable; it runs on the JAX backend alone. Where an
    episode ends the next one starts in the same step. Draws are keyed by the seed of the run.

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
        keys = jax.ShapeDtypeStruct((batch, 2), "uint32")
        observation, state = jax.eval_shape(self._reset_all, keys)
        self._states, self._tree = jax.tree.flatten(state)
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

        Every run starts with a reset. `policy` gives an action (batch,) int32, or (batch, *actions), for observations
        (batch, *observation).
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
        check_actions(action, self.actions, self.batch)
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

    def _reset_all(self, keys: Any) -> tuple[Any, Any]:
        import jax

        found: tuple[Any, Any] = jax.vmap(lambda key: self.environment.reset(key, self.params))(keys)
        return found

    def _reset(self, keys: Any) -> tuple[Any, ...]:
        import jax

        observation, state = self._reset_all(keys)
        return (observation.astype("float32"), *jax.tree.leaves(state))

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
