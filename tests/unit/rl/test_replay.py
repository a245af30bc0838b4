"""Replay and target networks against loops in NumPy, and what acting at random is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp

STEPS, ROWS, BATCH, CAPACITY = 60, 3, 16, 12


@pytest.fixture(scope="module", params=["numpy", "reference"])
def drawn(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    """At every point, transitions that say where they are from."""
    with tp.Program() as program:
        t = tp.dim("t", STEPS)
        row = tp.as_tensor(tp.arange(ROWS))
        transitions = {
            "point": row * 0 + t,
            "row": row,
            "both": tp.stack([row + ROWS * t, row * 0 + t], axis=-1),
        }
        for name, tensor in tp.rl.replay(transitions, t, capacity=CAPACITY + 1, batch=BATCH).items():
            tp.output(name, tensor)
    found = tp.compile(program, request.param)(seed=3)
    return {name: np.asarray(array) for name, array in found.items()}


def everywhere(array: np.ndarray) -> np.ndarray:
    return np.broadcast_to(array, (STEPS, *array.shape[-1:]))


def test_all_tensors_are_read_at_the_same_places(drawn: dict[str, np.ndarray]) -> None:
    point, row = drawn["point"], everywhere(drawn["row"])
    assert drawn["both"].shape == (STEPS, BATCH, 2)
    np.testing.assert_array_equal(drawn["both"], np.stack([row + ROWS * point, point], axis=-1))


def test_what_is_drawn_is_within_the_capacity(drawn: dict[str, np.ndarray]) -> None:
    """Whole points are kept: of a capacity of 13 with 3 environments, 4."""
    ages = np.arange(STEPS)[:, None] - drawn["point"]
    assert ages.min() == 0
    assert ages.max() == CAPACITY // ROWS - 1
    assert (drawn["point"] >= 0).all()
    assert (drawn["point"][0] == 0).all()


def test_draws_are_uniform_and_new_at_every_point(drawn: dict[str, np.ndarray]) -> None:
    later = slice(CAPACITY // ROWS, None)
    ages = (np.arange(STEPS)[:, None] - drawn["point"])[later]
    counts = np.bincount(ages.ravel(), minlength=CAPACITY // ROWS)
    assert counts.min() > 0.75 * counts.mean()
    counts = np.bincount(drawn["row"].ravel(), minlength=ROWS)
    assert counts.min() > 0.75 * counts.mean()
    assert len({tuple(each) for each in ages}) == len(ages)


def test_nothing_is_learned_through_what_is_drawn() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 5)
        w = tp.parameter("w", (), init=1.0, dims=(t,))
        (past,) = tp.rl.replay({"x": w * tp.ones((2,))}, t, capacity=4, batch=3).values()
        tp.output("gradient", tp.grad((w * past).sum(), w))
    np.testing.assert_allclose(tp.compile(program)()["gradient"], 3.0)


def followed(**options: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """A weight that is t * t at t, and what follows it."""
    with tp.Program() as program:
        t = tp.dim("t", 11)
        net = tp.nn.MLP((1, 1, 1), name="net", weight_init=tp.nn.init.zeros, dims=(t,))
        weight = net.layers[0].weight
        weight[t + 1] = weight + (2 * t + 1)
        behind = tp.rl.target(net, t, **options)
        tp.output("behind", behind.layers[0].weight.reshape())
        tp.output("same", tp.abs(behind(tp.ones((1,))) - net(tp.ones((1,)))).sum())
        tp.output("gradient", tp.grad((behind.layers[0].weight * weight).sum(), weight).reshape())
    out = tp.compile(program)()
    return np.asarray(out["behind"]), {**out, "state": out.state}


def test_a_target_is_copied_now_and_then() -> None:
    behind, out = followed(every=4)
    np.testing.assert_array_equal(behind, (np.arange(11) // 4 * 4) ** 2)
    np.testing.assert_array_equal(out["gradient"], behind)  # the product's, but not through the target
    assert sorted(out["state"]) == [f"net.{layer}.{part}" for layer in (0, 1) for part in ("bias", "weight")]


def test_a_target_is_a_running_mean() -> None:
    behind, _ = followed(rate=0.25)
    wanted = [0.0]
    for t in range(1, 11):
        wanted.append(0.75 * wanted[-1] + 0.25 * t * t)
    np.testing.assert_allclose(behind, wanted, rtol=1e-6)


def test_actions_are_the_best_but_for_some() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 2000)
        values = tp.constant(np.array([[0.0, 2.0, 1.0, 1.0], [5.0, 2.0, 1.0, 3.0]], np.float32))
        acting = tp.rl.EpsilonGreedy(values, 0.4)
        tp.output("action", acting.sample(dims=(t,)))
        tp.output("mode", acting.mode())
        tp.output("best", tp.rl.EpsilonGreedy(values, 0.0).sample(dims=(t,)))
    out = tp.compile(program)(seed=1)
    assert out["mode"].tolist() == [1, 0]
    assert (out["best"] == out["mode"]).all()
    for action, best in zip(out["action"].T, (1, 0)):
        parts = np.bincount(action, minlength=4) / len(action)
        wanted = np.full(4, 0.1)
        wanted[best] = 0.7
        np.testing.assert_allclose(parts, wanted, atol=0.03)


def test_what_does_not_fit_is_refused() -> None:
    with tp.Program():
        t = tp.dim("t", 4)
        net = tp.nn.Linear(1, 1, name="net", dims=(t,))
        x, y = tp.input("x", (2,), (t,)), tp.input("y", (3,), (t,))
        with pytest.raises(tp.ShapeError, match=r"there are x \(2,\), y \(3,\)"):
            tp.rl.replay({"x": x, "y": y}, t, capacity=8, batch=2)
        with pytest.raises(tp.ShapeError, match="there are none"):
            tp.rl.replay({}, t, capacity=8, batch=2)
        with pytest.raises(tp.ShapeError, match="a capacity of 1 is less than the 2 transitions"):
            tp.rl.replay({"x": x}, t, capacity=1, batch=2)
        for options in ({}, {"every": 2, "rate": 0.5}):
            with pytest.raises(ValueError, match="one of every= and rate="):
                tp.rl.target(net, t, **options)
