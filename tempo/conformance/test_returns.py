"""Family 6, returns and advantages: sums over the future as recurrences that run backward, and as slices."""

from __future__ import annotations

from typing import Any

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


BATCH = 3
KINDS = ("monte_carlo", "n_step", "td_zero", "gae", "v_trace")


def episodes(steps: int, dtype: str) -> dict[str, Any]:
    """What happened in `BATCH` environments whose episodes end now and then, one of them with the last step."""
    random = np.random.default_rng(steps)
    made = {name: random.standard_normal((steps, BATCH)).astype(dtype) for name in ("reward", "value", "log_ratio")}
    done = random.random((steps, BATCH)) < 0.25
    done[-1, 0] = True
    return {**made, "done": done, "last": random.standard_normal(BATCH).astype(dtype)}


def by_definition(kind: str, data: dict[str, Array], n: int) -> Array:
    """In float64, one episode after the other: no step knows of what lies beyond the end of its own."""
    wide = {name: array.astype(np.float64) for name, array in data.items()}
    found = np.zeros_like(wide["reward"])
    for b in range(BATCH):
        start = 0
        for end in [*np.flatnonzero(data["done"][:, b]), len(found) - 1]:
            part = slice(start, end + 1)
            if part.stop > start:
                ahead = 0.0 if data["done"][end, b] else float(wide["last"][b])
                r, v, log_ratio = (wide[name][part, b] for name in ("reward", "value", "log_ratio"))
                found[part, b] = _of_episode(kind, r, v, log_ratio, ahead, n)
            start = end + 1
    return found


def _of_episode(kind: str, r: Array, v: Array, log_ratio: Array, ahead: float, n: int) -> Array:
    """`ahead` is the value of what follows: 0 where the episode ended."""
    length, following = len(r), np.append(v[1:], ahead)
    if kind == "n_step":
        ends = [min(t + n, length) for t in range(length)]
        values = [*v, ahead]
        return np.array([
            sum(GAMMA**k * r[t + k] for k in range(end - t)) + GAMMA ** (end - t) * values[end]
            for t, end in enumerate(ends)
        ])  # fmt: skip
    if kind == "td_zero":
        return r + GAMMA * following
    if kind == "monte_carlo":
        return _backward(r, np.full(length, GAMMA), ahead)
    if kind == "gae":
        return _backward(r + GAMMA * following - v, np.full(length, GAMMA * LAMBDA), 0.0)
    ratio = np.minimum(np.exp(log_ratio), 1.0)
    return v + _backward(ratio * (r + GAMMA * following - v), GAMMA * ratio, 0.0)


def _backward(terms: Array, factors: Array, after: float) -> Array:
    found = np.empty_like(terms)
    for t in reversed(range(len(terms))):
        found[t] = after = terms[t] + factors[t] * after
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("steps", "dtype"), [(1, "float32"), (33, "float64")])
def test_nothing_leaks_from_one_episode_into_another(target: Target, kind: str, steps: int, dtype: str) -> None:
    n, data = 6, episodes(steps, dtype)
    with tp.Program() as program:
        t = tp.dim("t")
        dtypes = {"done": tp.bool_, "last": dtype}
        given = {
            name: tp.input(name, (BATCH,), () if name == "last" else (t,), dtypes.get(name, dtype))
            for name in ("reward", "value", "done", "log_ratio", "last")
        }
        function = getattr(tp.rl, kind)
        takes = {"monte_carlo": ("reward", "done"), "v_trace": ("reward", "value", "done", "log_ratio")}
        operands = [given[name] for name in takes.get(kind, ("reward", "value", "done"))]
        further: dict[str, dict[str, Any]] = {"n_step": {"n": n}, "gae": {"decay": LAMBDA}}
        options = further.get(kind, {})
        tp.output("found", function(*operands, t, gamma=GAMMA, last=given["last"], **options))
        tp.output("unused", sum(given[name].astype(dtype).sum() for name in given))
    target.agrees(program, {"found": by_definition(kind, data, n)}, tolerance=30, **data)


@pytest.mark.parametrize("kind", ["monte_carlo", "gae"])
def test_the_dims_of_other_rows_change_nothing(target: Target, kind: str) -> None:
    """Environments as a dim, along iterations: the same numbers as with them in the shape."""
    data = [episodes(9, "float32") for _ in range(2)]
    with tp.Program() as program:
        i, b, t = tp.dims("i b t")
        reward, value = tp.input("reward", (), (i, b, t)), tp.input("value", (), (i, b, t))
        done = tp.input("done", (), (i, b, t), tp.bool_)
        operands = [reward, done] if kind == "monte_carlo" else [reward, value, done]
        options = {"decay": LAMBDA} if kind == "gae" else {}
        tp.output("found", getattr(tp.rl, kind)(*operands, t, gamma=GAMMA, **options))
        tp.output("unused", value + 0)
    given: dict[str, Any] = {name: np.stack([each[name].T for each in data]) for name in ("reward", "value", "done")}
    wanted = [by_definition(kind, {**each, "last": np.zeros(BATCH)}, 1).T for each in data]
    target.agrees(program, {"found": np.stack(wanted)}, tolerance=30, **given)


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
