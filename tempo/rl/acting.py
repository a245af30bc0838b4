"""Acting: environments that can be traced, as their dynamics are equations, and what policies choose actions from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tempo as tp
from tempo import dtypes
from tempo.errors import user_location

Tensor = tp.RecurrentTensor


class Environment(Protocol):
    """Dynamics of `shape` environments at once. `actions` is a number of choices, or the shape of continuous ones."""

    observation: tuple[int, ...]
    actions: int | tuple[int, ...]
    longest: int
    """An episode is cut after so many steps."""

    def reset(self, shape: tuple[int, ...], dims: Any) -> Tensor:
        """States at the start of episodes, drawn at every point of `dims`."""

    def observe(self, state: Tensor) -> Tensor:
        """What the policy sees: `shape + observation`."""

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next state, the reward, and whether the episode ends there (not because it was cut)."""


@dataclass(frozen=True)
class Trajectory:
    """What acting gave, at every point of the dims; arrays have the batch of environments in front.

    `terminated`: the episode ended; `truncated`: it was cut; a new one starts at the next point after either.
    `following` is what the step led to, before a new episode replaced it. `real` is false where nothing was done but
    to start the next episode (Gymnasium's `AutoresetMode.NEXT_STEP`): such a point has no reward, its action counted
    for nothing, and it belongs in no loss.
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    following: Tensor
    length: Tensor
    """Steps of the episode so far, this one included; int32."""
    real: Tensor

    @property
    def done(self) -> Tensor:
        return self.terminated | self.truncated


def rollout(
    environment: Environment,
    policy: Callable[[Tensor], Tensor],
    dims: Sequence[tp.Dim],
    batch: int | tp.Dim,
    name: str = "environment",
) -> Trajectory:
    """`batch` environments at every point of `dims`, in lexicographic order; episodes go on across all of them.

    `policy` gives an action `(batch,)` int32, or `(batch, *actions)`, for observations `(batch, *observation)`.
    Environments may be the points of a dim, `batch=n`: then tensors have it in their domain, and no axis for it; so
    `shard={"n": "data"}` has the environments on many devices. Draws of a policy have that dim, too. Raises
    `DTypeError` and `ShapeError` where actions are not the environment's, `InputError` for what is no number of
    environments, and for environments that are not traced.
    """
    over, shape = ((batch,), ()) if isinstance(batch, tp.Dim) else ((), (batch,))
    if not over:
        check_batch(batch)
    if hasattr(environment, "rollout"):
        raise tp.InputError(
            f"{type(environment).__name__} is not traced: its steps are calls",
            location=user_location(),
            hint="write environment.rollout(policy, dims)",
        )
    domain = tuple(each for each in dims[0].program.dims if each.name in {dim.name for dim in (*over, *dims)})
    age = tp.recurrent(f"{name}.age", shape, domain, dtype=tp.int32)
    first = environment.reset(shape, dims=over)
    state = tp.recurrent(f"{name}.state", first.shape, domain, dtype=first.dtype)
    observation = environment.observe(state)
    action = policy(observation)
    check_actions(action, environment.actions, shape)
    after, reward, terminated = environment.step(state, action)
    length = age + 1
    truncated = (length >= environment.longest) & ~terminated
    done = terminated | truncated
    fresh = environment.reset(shape, dims=domain)
    ended = done.reshape(*shape, *(1 for _ in first.shape[len(shape) :]))
    define(state, dims, first, tp.where(ended, fresh, after))
    define(age, dims, 0, tp.where(done, 0, length))
    following = environment.observe(after)
    real = tp.ones_like(done)
    return Trajectory(observation, action, reward, terminated, truncated, following, length, real)


def define(tensor: Tensor, dims: Sequence[tp.Dim], first: Any, following: Tensor) -> None:
    """Define a tensor by its value at the first point of `dims` and, at the others, what `following` is before."""
    names = {dim.name for dim in dims}
    tensor[tuple(0 if dim.name in names else dim for dim in tensor.domain)] = first
    tp.optim.define_next(tensor, dims, following)


def check_batch(batch: Any) -> None:
    """Raises `InputError` where `batch` is no number of environments."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise tp.InputError(f"batch={batch!r} is no number of environments", location=user_location())


def check_actions(action: tp.RecurrentTensor, actions: int | tuple[int, ...], batch: tuple[int, ...]) -> None:
    """Raises `DTypeError` or `ShapeError` where `action` is not what environments of shape `batch` take.

    `actions` is a number of choices, which are integers of that shape, or the shape of continuous ones.
    """
    if not isinstance(action, tp.RecurrentTensor):
        raise tp.ShapeError(f"the policy gives a {type(action).__name__}, no tensor", location=user_location())
    chooses = isinstance(actions, int)
    takes = f"one of {actions} actions, an integer" if chooses else f"actions of shape {actions}, floating"
    if dtypes.is_float(action.dtype) == chooses:
        policy = "Categorical(logits)" if chooses else "Normal(mean, log_std)"
        raise tp.DTypeError(
            f"the policy gives actions of {action.dtype}; each environment takes {takes}",
            location=user_location(),
            hint=f"choose them by tp.rl.{policy}.sample()",
        )
    wanted = batch if isinstance(actions, int) else (*batch, *actions)
    if action.shape != wanted:
        many = f"{batch[0]} environments take" if batch else "an environment takes"
        raise tp.ShapeError(
            f"the policy gives actions of shape {action.shape}; {many} {wanted}: {takes} for each",
            location=user_location(),
        )


@dataclass(frozen=True)
class CartPole:
    """Balance a pole on a cart: 1 for every step. State and observation: position, speed, angle, its speed.

    Source: Barto, Sutton and Anderson 1983; constants and integration as in Gymnasium's `CartPole-v1`.
    """

    longest: int = 500
    observation: tuple[int, ...] = (4,)
    actions: int = 2

    def reset(self, shape: tuple[int, ...], dims: Any) -> Tensor:
        return tp.random.uniform((*shape, 4), -0.05, 0.05, dims=dims)

    def observe(self, state: Tensor) -> Tensor:
        return state

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gravity, pole, total, half, force, seconds = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
        x, speed, angle, turning = (state.spatial[..., at] for at in range(4))
        push = tp.where(action == 1, force, -force)
        cosine, sine = tp.cos(angle), tp.sin(angle)
        pushed = (push + pole * half * turning * turning * sine) / total
        turn = (gravity * sine - cosine * pushed) / (half * (4.0 / 3.0 - pole * cosine * cosine / total))
        gain = pushed - pole * half * turn * cosine / total
        moved = [x + seconds * speed, speed + seconds * gain, angle + seconds * turning, turning + seconds * turn]
        fallen = (tp.abs(moved[0]) > 2.4) | (tp.abs(moved[2]) > 12 * 2 * math.pi / 360)
        return tp.stack(moved, axis=-1), tp.ones_like(x), fallen


@dataclass(frozen=True)
class Pendulum:
    """Swing a pendulum up with a torque in [-2, 2]: minus the squared distance from standing still upright.

    State: angle and its speed; observation: cosine, sine, speed. As Gymnasium's `Pendulum-v1`.
    """

    longest: int = 200
    observation: tuple[int, ...] = (3,)
    actions: tuple[int, ...] = (1,)

    def reset(self, shape: tuple[int, ...], dims: Any) -> Tensor:
        unit = tp.random.uniform((*shape, 2), -1.0, 1.0, dims=dims)
        return unit * tp.constant([math.pi, 1.0], dtype=tp.float32)

    def observe(self, state: Tensor) -> Tensor:
        angle, turning = (state.spatial[..., at] for at in range(2))
        return tp.stack([tp.cos(angle), tp.sin(angle), turning], axis=-1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, turning = (state.spatial[..., at] for at in range(2))
        torque = tp.clip(action.spatial[..., 0], -2.0, 2.0)
        upright = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = upright * upright + 0.1 * turning * turning + 0.001 * torque * torque
        turned = tp.clip(turning + (15.0 * tp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        moved = tp.stack([angle + turned * 0.05, turned], axis=-1)
        return moved, -cost, tp.zeros_like(cost, dtype=tp.bool_)


@dataclass(frozen=True)
class Trivial:
    """Nothing but shapes: observations of any shape that drift with the action, for measurements of scaling."""

    observation: tuple[int, ...] = (3, 4, 4)
    actions: int = 2
    longest: int = 1 << 30

    def reset(self, shape: tuple[int, ...], dims: Any) -> Tensor:
        return tp.random.uniform((*shape, *self.observation), -1.0, 1.0, dims=dims)

    def observe(self, state: Tensor) -> Tensor:
        return state

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        drift = action.astype(state.dtype).reshape(*action.shape, *(1 for _ in self.observation))
        moved = 0.9 * state + 0.1 * drift
        reward = moved.mean(axis=tuple(range(len(action.shape), len(moved.shape))))
        return moved, reward, tp.zeros_like(reward, dtype=tp.bool_)


# Distributions of actions.


@dataclass(frozen=True)
class Categorical:
    """One of n actions; `logits` (..., n), actions (...) int32."""

    logits: tp.RecurrentTensor

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the logits' domain."""
        return tp.random.categorical(self.logits, dims=dims)

    def mode(self) -> tp.RecurrentTensor:
        """The likeliest action."""
        return self.logits.argmax(axis=-1)

    def log_prob(self, action: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """Log-probability of `action`, shape (...).

        Raises `DTypeError` where it is no integer, `ShapeError` where it has fewer axes than there are choices.
        """
        _check(action, self.logits, "Categorical", chooses=True)
        chosen = tp.one_hot(action, self.logits.shape[-1], dtype=self.logits.dtype)
        return (chosen * tp.log_softmax(self.logits, axis=-1)).sum(axis=-1)

    def entropy(self) -> tp.RecurrentTensor:
        """In nats, shape (...)."""
        log_p = tp.log_softmax(self.logits, axis=-1)
        return -(tp.exp(log_p) * log_p).sum(axis=-1)


@dataclass(frozen=True)
class EpsilonGreedy:
    """The action of the greatest value, and with probability `epsilon` any; `values` (..., n), actions (...) int32."""

    values: tp.RecurrentTensor
    epsilon: tp.RecurrentTensor | float

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the values' domain."""
        domain = self.values.domain if dims is None else dims
        shape, count = self.values.shape[:-1], self.values.shape[-1]
        explores = tp.random.uniform(shape, dims=domain) < self.epsilon
        any_action = tp.random.categorical(tp.zeros((*shape, count)), dims=domain)
        return tp.where(explores, any_action, self.mode())

    def mode(self) -> tp.RecurrentTensor:
        """The action of the greatest value."""
        return self.values.argmax(axis=-1)


@dataclass(frozen=True)
class Normal:
    """Independent normals; `mean` (..., n), `log_std` broadcast against it, actions (..., n)."""

    mean: tp.RecurrentTensor
    log_std: tp.RecurrentTensor

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the parameters' domain."""
        domain = (self.mean + self.log_std).domain if dims is None else dims
        noise = tp.random.normal(self.mean.shape, dims=domain, dtype=self.mean.dtype)
        return self.mean + tp.exp(self.log_std) * noise

    def mode(self) -> tp.RecurrentTensor:
        """The likeliest action."""
        return self.mean

    def log_prob(self, action: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """Log-density of `action`, summed over the last axis; shape (...).

        Raises `DTypeError` where it is not floating, `ShapeError` where its last axis is not that of the mean.
        """
        _check(action, self.mean, "Normal", chooses=False)
        scaled = (action - self.mean) * tp.exp(-self.log_std)
        density = -0.5 * scaled * scaled - self.log_std - 0.5 * math.log(2 * math.pi)
        return density.sum(axis=-1)

    def entropy(self) -> tp.RecurrentTensor:
        """In nats, summed over the last axis; shape (...)."""
        each = self.log_std + 0.5 * (1 + math.log(2 * math.pi))
        return (each + 0 * self.mean).sum(axis=-1)


def _check(action: tp.RecurrentTensor, parameter: tp.RecurrentTensor, name: str, chooses: bool) -> None:
    """That the action is of the distribution's space: what broadcasts may still be something else."""
    if dtypes.is_float(action.dtype) == chooses:
        kind = "integers" if chooses else "floating"
        raise tp.DTypeError(f"an action of {action.dtype}; those of a {name} are {kind}", location=user_location())
    wanted = parameter.shape[:-1] if chooses else parameter.shape
    if len(action.shape) < len(wanted) or (not chooses and action.shape[-1] != wanted[-1]):
        message = f"an action of shape {action.shape}; those of this {name} have {wanted}"
        raise tp.ShapeError(message, location=user_location())
