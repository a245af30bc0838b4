"""Environments and policies that do not fit, and environments that fail in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp

gymnasium = pytest.importorskip("gymnasium")
HERE = Path(__file__).name


def here(error: tp.TempoError, text: str) -> None:
    assert error.location is not None
    assert error.location.path.endswith(HERE)
    assert text in error.location.text


@pytest.fixture(params=["numpy", "jax", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param != "numpy":
        pytest.importorskip(f"tempo_{request.param}")
    return str(request.param)


def categorical(seen: tp.RecurrentTensor, dims: Any) -> tp.RecurrentTensor:
    return tp.rl.Categorical(tp.zeros((seen.shape[0], 2))).sample(dims=dims)


def normal(seen: tp.RecurrentTensor, dims: Any) -> tp.RecurrentTensor:
    return tp.rl.Normal(tp.zeros((seen.shape[0], 1)), tp.zeros((1,))).sample(dims=dims)


def flat(seen: tp.RecurrentTensor, dims: Any) -> tp.RecurrentTensor:
    return normal(seen, dims).spatial[..., 0]


def acted(environment: Any, policy: Callable[..., Any]) -> None:
    with tp.Program():
        t = tp.dim("t", 5)
        if isinstance(environment, tp.rl.GymnasiumEnvs):
            environment.rollout(lambda seen: policy(seen, (t,)), (t,))  # Gymnasium's
        else:
            tp.rl.rollout(environment, lambda seen: policy(seen, (t,)), (t,), 3)  # traced


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("name", "policy", "error", "message"),
    [
        ("Pendulum", categorical, tp.DTypeError, r"actions of int32; each environment takes actions of shape \(1,\)"),
        ("Pendulum", flat, tp.ShapeError, r"shape \(3,\); 3 environments take \(3, 1\)"),
        ("CartPole", normal, tp.DTypeError, r"actions of float32; each environment takes one of 2 actions"),
        ("CartPole", flat, tp.DTypeError, r"actions of float32; each environment takes one of 2 actions"),
    ],
)
def test_a_policy_for_another_space(
    traced: bool, name: str, policy: Callable[..., Any], error: type[tp.TempoError], message: str
) -> None:
    environment = getattr(tp.rl, name)() if traced else tp.rl.GymnasiumEnvs(f"{name}-v1", 3)
    with pytest.raises(error, match=message) as caught:
        acted(environment, policy)
    here(caught.value, "traced" if traced else "Gymnasium's")


def test_more_actions_than_there_are_stop_the_run_with_the_point() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 5)
        envs = tp.rl.GymnasiumEnvs("CartPole-v1", 2)
        seen = envs.rollout(lambda _: tp.where(t == 2, 7, 0) + tp.zeros((2,), dtype=tp.int32), (t,))
        tp.output("reward", seen.reward)
    with pytest.raises(tp.HostCallError, match="at t = 2 failed: .*7") as caught:
        tp.compile(program)()
    here(caught.value, "envs.rollout")


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda: tp.rl.Categorical(tp.zeros((3, 2))).log_prob(tp.zeros((3,))), tp.DTypeError, "integers"),
        (lambda: tp.rl.Normal(tp.zeros((3, 1)), tp.zeros((1,))).log_prob(tp.arange(3)), tp.DTypeError, "floating"),
        (lambda: tp.rl.Normal(tp.zeros((3, 1)), tp.zeros((1,))).log_prob(tp.zeros((3,))), tp.ShapeError, r"\(3, 1\)"),
        (lambda: tp.rl.Categorical(tp.zeros((3, 2))).log_prob(tp.as_tensor(1)), tp.ShapeError, r"have \(3,\)"),
    ],
)
def test_an_action_of_another_distribution(action: Callable[[], Any], error: type[tp.TempoError], message: str) -> None:
    with tp.Program(), pytest.raises(error, match=message) as caught:
        action()
    here(caught.value, "log_prob")


@pytest.mark.parametrize("batch", [0, -1, 1.5, "a", None, True])
def test_a_number_of_environments_is_a_positive_integer(batch: Any) -> None:
    with tp.Program():
        t = tp.dim("t", 5)
        with pytest.raises(tp.InputError, match="is no number of environments"):
            tp.rl.rollout(tp.rl.CartPole(), lambda seen: categorical(seen, (t,)), (t,), batch)
    if batch is not None:
        with pytest.raises(tp.InputError, match="is no number of environments") as caught:
            tp.rl.GymnasiumEnvs("CartPole-v1", batch)
        here(caught.value, "tp.rl.GymnasiumEnvs")


def with_mode(mode: Any) -> Any:
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    envs.metadata = {**envs.metadata, "autoreset_mode": mode}
    return envs


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tp.rl.GymnasiumEnvs(with_mode("sometimes")), tp.UnsupportedError, "AutoresetMode 'sometimes'"),
        (lambda: tp.rl.GymnasiumEnvs(with_mode(None)), tp.UnsupportedError, "AutoresetMode None"),
        (
            lambda: tp.rl.GymnasiumEnvs("CartPole-v1", 2, vector_kwargs={"autoreset_mode": "sometimes"}),
            tp.InputError,
            "cannot make 'CartPole-v1': .*sometimes",
        ),
        (lambda: tp.rl.GymnasiumEnvs("CartPol-v1", 2), tp.InputError, "cannot make 'CartPol-v1'"),
        (lambda: tp.rl.GymnasiumEnvs("FrozenLake-v1", 2), tp.UnsupportedError, "space Discrete.*only Box"),
        (lambda: tp.rl.GymnasiumEnvs(gymnasium.make("CartPole-v1")), tp.InputError, "no vector environment"),
        (lambda: tp.rl.GymnasiumEnvs(3), tp.InputError, "3 is no vector environment"),
        (lambda: tp.rl.GymnasiumEnvs(with_mode(None), 3), tp.InputError, "that has 2"),
    ],
)
def test_environments_that_cannot_be_driven(make: Callable[[], Any], error: type[tp.TempoError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make()
    here(caught.value, "tp.rl.GymnasiumEnvs")


def test_called_environments_are_not_traced() -> None:
    envs = tp.rl.GymnasiumEnvs("CartPole-v1", 2)
    with tp.Program():
        t = tp.dim("t", 5)
        with pytest.raises(tp.InputError, match="GymnasiumEnvs is not traced") as caught:
            tp.rl.rollout(envs, lambda seen: categorical(seen, (t,)), (t,), 2)
    here(caught.value, "tp.rl.rollout")


class Fragile(gymnasium.vector.VectorWrapper):
    """Fails at one step of its first run."""

    def __init__(self, envs: Any, breaks: int) -> None:
        super().__init__(envs)
        self.breaks, self.steps = breaks, 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        if self.steps == self.breaks:
            raise RuntimeError("the joint broke")
        return super().step(actions)


def learner(envs: Any) -> tp.Program:
    with tp.Program("learner") as program:
        i, t = tp.dim("i", 3), tp.dim("t", 5)
        policy = tp.nn.Linear(4, 2, name="policy", dims=(i,))
        environment = tp.rl.GymnasiumEnvs(envs)
        seen = environment.rollout(lambda seen: tp.rl.Categorical(policy(seen)).sample(dims=(i, t)), (i, t))
        gain = tp.rl.Categorical(policy(seen.observation)).log_prob(seen.action) * seen.reward
        tp.optim.SGD(0.1, dim=i).minimize(-gain[i, :].sum(), policy)
        tp.output("observation", seen.observation)
    return program


def test_a_run_stops_where_its_environment_fails_and_can_be_started_again(backend: str) -> None:
    def made() -> Any:
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        return gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})

    run = tp.compile(learner(Fragile(made(), breaks=8)), backend)
    with pytest.raises(tp.HostCallError, match="at i = 1, t = 2 failed: RuntimeError: the joint broke") as caught:
        run(seed=3)
    here(caught.value, "environment.rollout")
    assert isinstance(caught.value.__cause__, RuntimeError)
    again, whole = run(seed=3), tp.compile(learner(made()), backend)(seed=3)
    np.testing.assert_array_equal(np.asarray(again["observation"]), np.asarray(whole["observation"]))
    for name, value in whole.state.items():
        np.testing.assert_array_equal(np.asarray(again.state[name]), np.asarray(value))


def test_the_first_nan_of_an_environment_is_named(backend: str) -> None:
    class Broken(Fragile):
        def step(self, actions: Any) -> Any:
            self.steps += 1
            observation, *rest = super(Fragile, self).step(actions)
            return (np.where(self.steps == self.breaks, np.nan, observation), *rest)

    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    run = tp.compile(learner(Broken(envs, breaks=8)), backend, options=tp.Options(check_finite=True))
    with pytest.raises(tp.NotFiniteError, match="_step is NaN at i = 1, t = 2") as caught:
        run()
    here(caught.value, "environment.rollout")


@pytest.mark.parametrize(
    ("wrt", "message"),
    [
        (lambda i: tp.parameter("count", (), init=0, dims=(i,), dtype=tp.int32), "'count' is of int32"),
        (lambda i: {"a": tp.zeros((2,)), "b": tp.arange(3)}, "is of int32, which has no gradient"),
        (lambda i: tp.zeros((2,)) > 0, "is of bool, which has no gradient"),
    ],
)
def test_integers_have_no_gradient(wrt: Callable[[tp.Dim], Any], message: str) -> None:
    with tp.Program():
        i = tp.dim("i", 3)
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        with pytest.raises(tp.DTypeError, match=message) as caught:
            tp.grad(w * w, wrt(i))
        here(caught.value, "tp.grad(w * w")
        with pytest.raises(tp.DTypeError, match="the loss is of int32"):
            tp.grad(tp.as_tensor(i), w)
