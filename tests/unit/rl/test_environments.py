"""Traced environments against Gymnasium's, and rollouts over several dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp

gymnasium = pytest.importorskip("gymnasium")
BATCH = 3


def single_steps(environment: Any, states: np.ndarray, actions: np.ndarray) -> dict[str, np.ndarray]:
    """One step from each state, by the traced environment."""
    with tp.Program() as program:
        k = tp.dim("k")
        state = tp.input("start", states.shape[1:], (k,))
        action = tp.input(
            "action", actions.shape[1:], (k,), dtype=tp.int32 if actions.dtype.kind == "i" else tp.float32
        )
        after, reward, terminated = environment.step(state, action)
        for name, tensor in {"after": after, "reward": reward, "terminated": terminated}.items():
            tp.output(name, tensor)
        tp.output("observation", environment.observe(after))
    return dict(tp.compile(program)(start=states, action=actions))


def test_cartpole_is_gymnasiums() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    draw = np.random.default_rng(0)
    states = draw.uniform(-1, 1, (50, 4)).astype(np.float32) * np.array([2.5, 2, 0.22, 2], np.float32)
    actions = draw.integers(0, 2, 50).astype(np.int32)
    found = single_steps(tp.rl.CartPole(), states, actions)
    for at in range(50):
        env.reset(seed=0)
        env.state = states[at].astype(np.float64)
        observation, reward, terminated, *_ = env.step(int(actions[at]))
        np.testing.assert_allclose(found["observation"][at], observation, rtol=1e-4, atol=1e-5)
        assert (float(found["reward"]), found["terminated"][at]) == (reward, terminated)
    assert found["terminated"].any()
    assert not found["terminated"].all()


def test_pendulum_is_gymnasiums() -> None:
    env = gymnasium.make("Pendulum-v1").unwrapped
    draw = np.random.default_rng(0)
    states = draw.uniform(-1, 1, (50, 2)).astype(np.float32) * np.array([7, 8], np.float32)
    actions = draw.uniform(-3, 3, (50, 1)).astype(np.float32)
    found = single_steps(tp.rl.Pendulum(), states, actions)
    for at in range(50):
        env.reset(seed=0)
        env.state = states[at].astype(np.float64)
        observation, reward, *_ = env.step(actions[at])
        np.testing.assert_allclose(found["observation"][at], observation, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["reward"][at], reward, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [1, 2])
def test_episodes_end_are_cut_and_go_on_across_dims(dims: int) -> None:
    """The same actions as a loop over Gymnasium's single steps, from the draws that the run made."""
    with tp.Program() as program:
        over = tp.dims("i t")[:dims] if dims == 2 else (tp.dim("t"),)
        trajectory = tp.rl.rollout(
            tp.rl.CartPole(longest=9), lambda seen: (seen.spatial[:, 2] > 0).astype(tp.int32), over, BATCH
        )
        for name in ("observation", "action", "terminated", "truncated", "following", "length"):
            tp.output(name, getattr(trajectory, name))
    out = tp.compile(program)(sizes={"i": 4, "t": 10} if dims == 2 else {"t": 40}, seed=1)
    flat = {name: np.asarray(array).reshape(40, *array.shape[dims:]) for name, array in out.items()}
    done = flat["terminated"] | flat["truncated"]
    assert flat["truncated"].any()
    length = np.zeros(BATCH, int)
    for at in range(40):
        length += 1
        np.testing.assert_array_equal(flat["length"][at], length)
        np.testing.assert_array_equal(flat["truncated"][at], (length == 9) & ~flat["terminated"][at])
        length[done[at]] = 0
    stays = ~done[:-1]
    np.testing.assert_array_equal(flat["observation"][1:][stays], flat["following"][:-1][stays])
    assert (np.abs(flat["observation"][1:][~stays]) <= 0.05).all()


class TestGymnasiumEnvs:
    @staticmethod
    def program(envs: tp.rl.GymnasiumEnvs) -> tp.Program:
        with tp.Program() as program:
            i, t = tp.dims("i t")
            trajectory = envs.rollout(lambda seen: (seen.spatial[:, 2] > 0).astype(tp.int32), (i, t))
            for name in ("observation", "reward", "terminated", "truncated", "following", "length", "real"):
                tp.output(name, getattr(trajectory, name))
        return program

    def test_is_the_loop_that_one_writes(self) -> None:
        run = tp.compile(self.program(tp.rl.GymnasiumEnvs("CartPole-v1", BATCH, seed=5)))
        for _ in range(2):  # every run starts with the same reset
            out = run(sizes={"i": 3, "t": 20})
            mode = gymnasium.vector.AutoresetMode.SAME_STEP
            envs = gymnasium.make_vec("CartPole-v1", BATCH, "sync", vector_kwargs={"autoreset_mode": mode})
            observation, _ = envs.reset(seed=5)
            for at in range(60):
                i, t = divmod(at, 20)
                np.testing.assert_array_equal(out["observation"][i, t], observation)
                observation, reward, terminated, truncated, _ = envs.step((observation[:, 2] > 0).astype(int))
                np.testing.assert_array_equal(out["reward"][i, t], reward)
                np.testing.assert_array_equal(out["terminated"][i, t], terminated)
            assert out["terminated"].any()

    def test_following_is_what_ended_the_episode(self) -> None:
        out = tp.compile(self.program(tp.rl.GymnasiumEnvs("CartPole-v1", BATCH)))(sizes={"i": 1, "t": 60})
        fallen = np.asarray(out["following"])[out["terminated"]]
        assert len(fallen)
        assert ((np.abs(fallen[:, 0]) > 2.4) | (np.abs(fallen[:, 2]) > 0.2094)).all()

    def test_disabled_resets_where_an_episode_ended(self) -> None:
        """The same numbers as of an environment that does it itself."""
        found = []
        for mode in ("SAME_STEP", "DISABLED"):
            options = {"autoreset_mode": gymnasium.vector.AutoresetMode[mode]}
            envs = tp.rl.GymnasiumEnvs("CartPole-v1", BATCH, seed=5, vector_kwargs=options)
            assert envs.mode == mode
            found.append(tp.compile(self.program(envs))(sizes={"i": 2, "t": 40}))
        assert found[0]["terminated"].any()
        for name, array in found[0].items():
            np.testing.assert_array_equal(array, found[1][name], err_msg=name)

    @pytest.mark.parametrize("how", ["sync", "vector_entry_point"])
    def test_next_step_marks_the_points_that_only_begin_an_episode(self, how: str) -> None:
        ready = gymnasium.make_vec("CartPole-v1", BATCH, how)
        out = tp.compile(self.program(tp.rl.GymnasiumEnvs(ready, seed=5)))(sizes={"i": 3, "t": 20})
        flat = {name: np.asarray(array).reshape(60, *array.shape[2:]) for name, array in out.items()}
        again = gymnasium.make_vec("CartPole-v1", BATCH, how)
        observation, _ = again.reset(seed=5)
        length, ended = np.zeros(BATCH, int), np.zeros(BATCH, bool)
        for at in range(60):
            np.testing.assert_array_equal(flat["observation"][at], observation)
            observation, reward, terminated, truncated, _ = again.step((observation[:, 2] > 0).astype(int))
            length += ~ended
            np.testing.assert_array_equal(flat["real"][at], ~ended)
            np.testing.assert_array_equal(flat["length"][at], length)
            np.testing.assert_array_equal(flat["following"][at], observation)
            np.testing.assert_array_equal(flat["reward"][at], reward)
            assert not reward[ended].any()
            ended = terminated | truncated
            length[ended] = 0
        assert not flat["real"].all()

    @pytest.mark.parametrize("mode", [None, "something else"])
    def test_an_unknown_autoreset_mode_is_refused(self, mode: object) -> None:
        envs = gymnasium.make_vec("CartPole-v1", 2, "sync")
        envs.metadata = {**envs.metadata, "autoreset_mode": mode}
        with pytest.raises(tp.UnsupportedError, match=f"AutoresetMode {mode!r}"):
            tp.rl.GymnasiumEnvs(envs)

    def test_pendulum_takes_continuous_actions_and_is_cut(self) -> None:
        envs = tp.rl.GymnasiumEnvs("Pendulum-v1", 2)
        assert (envs.observation, envs.actions) == ((3,), (1,))
        with tp.Program() as program:
            t = tp.dim("t")
            trajectory = envs.rollout(lambda seen: seen.spatial[:, 1:2] * -2.0, (t,))
            tp.output("truncated", trajectory.truncated)
            tp.output("done", trajectory.done)
            tp.output("following", trajectory.following)
            tp.output("observation", trajectory.observation)
        out = tp.compile(program)(sizes={"t": 210})
        np.testing.assert_array_equal(np.flatnonzero(out["truncated"][:, 0]), [199])
        np.testing.assert_array_equal(out["truncated"], out["done"])
        assert (out["following"][199] != out["observation"][200]).any()
        np.testing.assert_array_equal(out["following"][:199], out["observation"][1:200])

    def test_lunar_lander_lands_on_eight_numbers(self) -> None:
        pytest.importorskip("Box2D")
        envs = tp.rl.GymnasiumEnvs("LunarLander-v3", 2)
        assert (envs.observation, envs.actions) == ((8,), 4)
        with tp.Program() as program:
            t = tp.dim("t", 150)
            trajectory = envs.rollout(lambda seen: (seen.spatial[:, 1] * 0).astype(tp.int32), (t,))
            tp.output("terminated", trajectory.terminated)
        assert tp.compile(program)()["terminated"].any()  # who does nothing crashes

    def test_spaces_that_no_policy_fits_are_refused(self) -> None:
        envs = gymnasium.make_vec("FrozenLake-v1", 2, "sync")
        with pytest.raises(tp.UnsupportedError, match=r"observations of the space Discrete\(16\)"):
            tp.rl.GymnasiumEnvs(envs)

    def test_a_policy_that_does_not_fit_is_refused(self) -> None:
        envs = tp.rl.GymnasiumEnvs("CartPole-v1", 2)
        with tp.Program(), pytest.raises(tp.ShapeError, match=r"\(2, 4\); 2 environments take \(2,\)"):
            envs.rollout(lambda seen: seen.astype(tp.int32), (tp.dim("t"),))

    def test_a_policy_that_looks_at_nothing_still_begins_with_a_reset(self) -> None:
        envs = tp.rl.GymnasiumEnvs("CartPole-v1", 2)
        with tp.Program() as program:
            t = tp.dim("t", 5)
            seen = envs.rollout(lambda _: tp.random.bernoulli(0.5, (2,), dims=(t,)).astype(tp.int32), (t,))
            tp.output("length", seen.length)
        for _ in range(2):
            assert tp.compile(program)()["length"][:, 0].tolist() == [1, 2, 3, 4, 5]

    def test_an_environment_that_raises_stops_the_run_with_the_point(self) -> None:
        envs = tp.rl.GymnasiumEnvs("CartPole-v1", 2)
        step, calls = envs.envs.step, []

        def failing(action: np.ndarray) -> Any:
            calls.append(action)
            if len(calls) == 8:
                raise RuntimeError("the simulator went away")
            return step(action)

        envs.envs.step = failing
        run = tp.compile(self.program(envs))
        with pytest.raises(tp.HostCallError, match=r"at i = 1, t = 2 failed: RuntimeError: the simulator went away"):
            run(sizes={"i": 2, "t": 5})
        assert run(sizes={"i": 2, "t": 5})["reward"].shape == (2, 5, 2)
