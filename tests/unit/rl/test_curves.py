"""Returns of episodes that cross the axes of time, against a loop over the steps."""

import numpy as np
import pytest

import tempo as tp


def test_episodes_go_on_across_the_axes_of_time():
    draw = np.random.default_rng(0)
    reward, done = draw.normal(size=(3, 7, 4)), draw.random((3, 7, 4)) < 0.2
    steps, expected = [], []
    returns = np.zeros(4)
    for step, (rewards, ends) in enumerate(zip(reward.reshape(21, 4), done.reshape(21, 4), strict=True)):
        returns += rewards
        for environment in np.flatnonzero(ends):
            steps.append((step + 1) * 4)
            expected.append(returns[environment])
            returns[environment] = 0
    at, means = tp.rl.learning_curve(reward, done, last=5)
    np.testing.assert_array_equal(at, steps)
    np.testing.assert_allclose(means, [np.mean(expected[max(0, n - 5) : n]) for n in range(1, len(expected) + 1)])


def test_a_reward_that_is_always_the_same():
    at, means = tp.rl.learning_curve(np.float32(1), [[0, 1], [1, 0], [1, 1]])
    assert at.tolist() == [2, 4, 6, 6]
    assert means.tolist() == [1, 1.5, 4 / 3, 1.5]


def test_no_episode_has_ended():
    at, means = tp.rl.learning_curve(1.0, np.zeros((4, 2), bool))
    assert len(at) == len(means) == 0


def test_rewards_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="broadcast"):
        tp.rl.learning_curve(np.ones((4, 3)), np.zeros((4, 2)))
