"""Family 6, returns and advantages: sums over the future as recurrences that run backward, and as slices."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, assert_same

GAMMA, LAMBDA = 0.98, 0.95


def rewards(steps: int) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    return random.uniform(-1, 1, (2, steps)).astype(np.float32), random.uniform(-1, 1, (2, steps)).astype(np.float32)


def discounted(r: Array, gamma: float) -> Array:
    """In float64: `G[t] = r[t] + gamma * G[t + 1]`."""
    total = r.astype(np.float64)
    for t in reversed(range(r.shape[1] - 1)):
        total[:, t] += gamma * total[:, t + 1]
    return total


def differences(r: Array, v: Array) -> Array:
    ahead = np.concatenate([v[:, 1:], np.zeros_like(v[:, :1])], axis=1)
    return r.astype(np.float64) + GAMMA * ahead - v


def returns_program() -> tp.Program:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        r, v = tp.input("r", (), (b, t)), tp.input("v", (), (b, t))
        last = t.size - 1
        g = tp.recurrent("g", (), (b, t))
        g[b, last] = r
        g[b, t - 1] = r[b, t - 1] + GAMMA * g
        delta = r - v + tp.cases((t < last, GAMMA * v[b, t + 1]), 0.0)
        advantage = tp.recurrent("advantage", (), (b, t))
        advantage[b, last] = delta
        advantage[b, t - 1] = delta[b, t - 1] + GAMMA * LAMBDA * advantage
        tp.output("monte_carlo", g)
        tp.output("advantage", advantage)
        tp.output("start", g[b, 0])
    return program


@pytest.mark.parametrize("steps", [1, 11])
def test_monte_carlo_and_generalised_advantages(target: Target, steps: int) -> None:
    r, v = rewards(steps)
    expected = {
        "monte_carlo": discounted(r, GAMMA),
        "advantage": discounted(differences(r, v), GAMMA * LAMBDA),
        "start": discounted(r, GAMMA)[:, 0],
    }
    target.agrees(returns_program(), expected, r=r, v=v, tolerance=4)


@pytest.mark.parametrize("steps", [1, 13])
def test_returns_of_n_steps(target: Target, steps: int) -> None:
    """`sum of gamma**k * r[t + k]` for k below n, then the value, in slices that end with the episode."""
    n = 4
    r, v = rewards(steps)
    with tp.Program() as program:
        b, t = tp.dims("b t")
        reward, value = tp.input("r", (), (b, t)), tp.input("v", (), (b, t))
        end = tp.min(t + n, t.size)
        weights = GAMMA ** tp.arange(end - t).astype(tp.float32)
        inside = (reward[b, t:end] * weights).sum(axis=0)
        tp.output("n_step", inside + tp.cases((t + n < t.size, GAMMA**n * value[b, t + n]), 0.0))
    wanted = np.zeros((2, steps))
    for at in range(steps):
        taken = r[:, at : at + n]
        wanted[:, at] = taken @ (GAMMA ** np.arange(taken.shape[1]))
        if at + n < steps:
            wanted[:, at] += GAMMA**n * v[:, at + n]
    target.agrees(program, {"n_step": wanted}, r=r, v=v, tolerance=4)


@pytest.mark.one_configuration
def test_ten_thousand_steps_are_finite_and_accurate(target: Target) -> None:
    if target.interprets:
        pytest.skip("an evaluator on demand is too slow for it")
    r, v = rewards(10_000)
    found = target.arrays(target.compile(returns_program())(r=r, v=v))
    wanted = {
        "monte_carlo": discounted(r, GAMMA),
        "advantage": discounted(differences(r, v), GAMMA * LAMBDA),
        "start": discounted(r, GAMMA)[:, 0],
    }
    assert all(np.isfinite(array).all() for array in found.values())
    assert_same(found, {name: array.astype(np.float32) for name, array in wanted.items()}, tolerance=20)
