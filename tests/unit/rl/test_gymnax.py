"""Environments of gymnax, traced into the loop that JAX compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp

jax = pytest.importorskip("jax")
gymnax = pytest.importorskip("gymnax")
pytest.importorskip("tempo_jax")
BATCH = 3
NAMES = ("observation", "action", "reward", "terminated", "truncated", "following", "length")


def program(envs: tp.rl.GymnaxEnvs, policy: Any) -> tp.Program:
    with tp.Program() as made:
        trajectory = envs.rollout(policy, tp.dims("i t"))
        for name in NAMES:
            tp.output(name, getattr(trajectory, name))
    return made


def upright(seen: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return (seen.spatial[:, 2] > 0).astype(tp.int32)


@pytest.fixture(scope="module")
def cartpole() -> Any:
    return tp.compile(program(tp.rl.GymnaxEnvs("CartPole-v1", BATCH), upright), "jax")


@pytest.fixture(scope="module")
def acted(cartpole: Any) -> dict[str, np.ndarray]:
    """30 steps in two iterations, one after the other."""
    out = cartpole(sizes={"i": 2, "t": 30}, seed=3)
    return {name: np.asarray(array).reshape(60, *array.shape[2:]) for name, array in out.items()}


def test_every_step_is_gymnaxs(acted: dict[str, np.ndarray]) -> None:
    """What CartPole shows is its state."""
    env, params = gymnax.make("CartPole-v1")
    seen = acted["observation"].reshape(-1, 4)
    state = env.reset(jax.random.PRNGKey(0), params)[1].replace(
        x=seen[:, 0], x_dot=seen[:, 1], theta=seen[:, 2], theta_dot=seen[:, 3], time=np.zeros(len(seen), np.int32)
    )
    step = jax.vmap(lambda state, action: env.step_env(jax.random.PRNGKey(0), state, action, params))
    following, _, reward, terminated, _ = step(state, acted["action"].reshape(-1))
    np.testing.assert_allclose(acted["following"].reshape(-1, 4), following, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(acted["reward"].reshape(-1), reward)
    np.testing.assert_array_equal(acted["terminated"].reshape(-1), terminated)
    assert acted["terminated"].any()


def test_episodes_begin_anew_and_go_on_across_dims(acted: dict[str, np.ndarray]) -> None:
    done = acted["terminated"] | acted["truncated"]
    length = np.zeros(BATCH, int)
    for at in range(60):
        length += 1
        np.testing.assert_array_equal(acted["length"][at], length)
        length[done[at]] = 0
    stays = ~done[:-1]
    np.testing.assert_array_equal(acted["observation"][1:][stays], acted["following"][:-1][stays])
    assert (np.abs(acted["observation"][1:][~stays]) <= 0.05).all()
    assert len(np.unique(acted["observation"][0])) == BATCH * 4  # each has draws of its own


def test_acting_stays_in_the_compiled_loop(cartpole: Any) -> None:
    cartpole(sizes={"i": 2, "t": 30})
    assert "# host" not in cartpole.explain("all")
    items = cartpole.explain("all").split("# code")[1]
    assert "host_" not in items


def test_the_evaluator_gives_the_same(cartpole: Any, acted: dict[str, np.ndarray]) -> None:
    wanted = tp.compile(cartpole.program, "reference")(sizes={"i": 1, "t": 6}, seed=3)
    for name in NAMES:
        np.testing.assert_allclose(acted[name][:6], wanted[name][0], rtol=1e-5, atol=1e-6, err_msg=name)


def test_continuous_actions_and_cut_episodes() -> None:
    env, params = gymnax.make("Pendulum-v1")
    envs = tp.rl.GymnaxEnvs(env, 2, params=params.replace(max_steps_in_episode=7))
    assert (envs.observation, envs.actions) == ((3,), (1,))
    out = tp.compile(program(envs, lambda seen: seen.spatial[:, 1:2] * -2.0), "jax")(sizes={"i": 1, "t": 16})
    truncated = np.asarray(out["truncated"])[0, :, 0]
    np.testing.assert_array_equal(np.flatnonzero(truncated), [6, 13])
    assert not np.asarray(out["terminated"]).any()


def test_it_runs_on_jax_alone() -> None:
    made = program(tp.rl.GymnaxEnvs("CartPole-v1", BATCH), upright)
    with pytest.raises(tp.UnsupportedError, match="a function for the backend 'jax', not for 'numpy'"):
        tp.compile(made, "numpy")


def test_a_policy_that_does_not_fit_is_refused() -> None:
    envs = tp.rl.GymnaxEnvs("CartPole-v1", BATCH)
    with tp.Program(), pytest.raises(tp.ShapeError, match=r"\(3, 4\); 3 environments take \(3,\)"):
        envs.rollout(lambda seen: seen.astype(tp.int32), (tp.dim("t"),))
