"""Returns and advantages against loops in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp

T, B, GAMMA, DECAY = 11, 3, 0.9, 0.8


@pytest.fixture(params=["numpy", "reference"])
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "backend": request.param,
        "reward": draw.standard_normal((T, B)).astype(np.float32),
        "value": draw.standard_normal((T, B)).astype(np.float32),
        "done": draw.random((T, B)) < 0.2,
        "last": draw.standard_normal(B).astype(np.float32),
        "log_ratio": draw.standard_normal((T, B)).astype(np.float32),
    }


def run(kind: str, given: dict[str, Any], **options: Any) -> np.ndarray:
    with tp.Program() as program:
        t = tp.dim("t")
        tensors = {
            name: tp.input(name, (B,), () if name == "last" else (t,), dtype=tp.bool_ if name == "done" else tp.float32)
            for name in ("reward", "value", "done", "last", "log_ratio")
        }
        used = {"monte_carlo": ["reward", "done"], "v_trace": ["reward", "value", "done", "log_ratio"]}
        names = used.get(kind, ["reward", "value", "done"])
        tp.output(
            "y",
            getattr(tp.rl, kind)(*(tensors[name] for name in names), t, gamma=GAMMA, last=tensors["last"], **options),
        )
        tp.output("all", sum(tensor.astype(tp.float32).sum() for tensor in tensors.values()))
    inputs = {name: array for name, array in given.items() if name != "backend"}
    return np.asarray(tp.compile(program, given["backend"])(**inputs)["y"])


def after(values: np.ndarray, t: int, last: np.ndarray) -> np.ndarray:
    return values[t + 1] if t + 1 < T else last


def test_monte_carlo(given: dict[str, Any]) -> None:
    wanted, g = np.zeros((T, B)), given["last"]
    for t in reversed(range(T)):
        wanted[t] = g = given["reward"][t] + GAMMA * (1 - given["done"][t]) * g
    np.testing.assert_allclose(run("monte_carlo", given), wanted, rtol=1e-5, atol=1e-6)


def test_td_zero(given: dict[str, Any]) -> None:
    following = np.concatenate([given["value"][1:], given["last"][None]])
    wanted = given["reward"] + GAMMA * (1 - given["done"]) * following
    np.testing.assert_allclose(run("td_zero", given), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_n_step(given: dict[str, Any], n: int) -> None:
    wanted = np.zeros((T, B))
    for t in range(T):
        factor = np.ones(B)
        for k in range(t, min(t + n, T)):
            wanted[t] += factor * given["reward"][k]
            factor = factor * GAMMA * (1 - given["done"][k])
        wanted[t] += factor * (given["value"][t + n] if t + n < T else given["last"])
    np.testing.assert_allclose(run("n_step", given, n=n), wanted, rtol=1e-5, atol=1e-5)


def test_gae(given: dict[str, Any]) -> None:
    wanted, advantage = np.zeros((T, B)), np.zeros(B)
    for t in reversed(range(T)):
        going = 1 - given["done"][t]
        delta = given["reward"][t] + GAMMA * going * after(given["value"], t, given["last"]) - given["value"][t]
        wanted[t] = advantage = delta + GAMMA * DECAY * going * advantage
    np.testing.assert_allclose(run("gae", given, decay=DECAY), wanted, rtol=1e-5, atol=1e-6)


def test_v_trace(given: dict[str, Any]) -> None:
    """By the definition: a sum over the trajectory of corrected differences (Espeholt et al. 2018, equation 1)."""
    ratio = np.minimum(np.exp(given["log_ratio"]), 1)
    wanted = given["value"].astype(np.float64)
    for s in range(T):
        factor = np.ones(B)
        for t in range(s, T):
            going = GAMMA * (1 - given["done"][t])
            delta = given["reward"][t] + going * after(given["value"], t, given["last"]) - given["value"][t]
            wanted[s] += factor * ratio[t] * delta
            factor = factor * going * ratio[t]
    np.testing.assert_allclose(run("v_trace", given), wanted, rtol=1e-4, atol=1e-5)


def test_distributions() -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    logits, mean = draw.standard_normal((B, 4)).astype(np.float32), draw.standard_normal((B, 2)).astype(np.float32)
    log_std, taken = np.array([0.3, -0.7], np.float32), draw.standard_normal((B, 2)).astype(np.float32)
    with tp.Program() as program:
        t = tp.dim("t")
        categorical = tp.rl.Categorical(tp.constant(logits))
        normal = tp.rl.Normal(tp.constant(mean), tp.constant(log_std))
        outputs = {
            "sample": categorical.sample(dims=(t,)),
            "log_p": categorical.log_prob(categorical.mode()),
            "entropy": categorical.entropy(),
            "normal": normal.sample(dims=(t,)),
            "density": normal.log_prob(tp.constant(taken)),
            "normal_entropy": normal.entropy(),
        }
        for name, tensor in outputs.items():
            tp.output(name, tensor)
    out = tp.compile(program)(sizes={"t": 4000})
    peer = torch.distributions.Categorical(logits=torch.tensor(logits))
    frequency = np.stack([(out["sample"] == at).mean(0) for at in range(4)], -1)
    np.testing.assert_allclose(frequency, peer.probs.numpy(), atol=0.03)
    np.testing.assert_allclose(out["log_p"], peer.log_prob(torch.tensor(logits.argmax(-1))).numpy(), rtol=1e-5)
    np.testing.assert_allclose(out["entropy"], peer.entropy().numpy(), rtol=1e-5)
    peer = torch.distributions.Normal(torch.tensor(mean), torch.tensor(np.exp(log_std)))
    np.testing.assert_allclose(out["density"], peer.log_prob(torch.tensor(taken)).sum(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(out["normal_entropy"], peer.entropy().sum(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(out["normal"].mean(0), mean, atol=0.1)
    np.testing.assert_allclose(out["normal"].std(0), np.broadcast_to(np.exp(log_std), (B, 2)), rtol=0.05)


def test_without_discount_and_with_nothing_but_the_next_reward() -> None:
    reward, value = np.arange(1, 7, dtype=np.float32), np.full(6, 10, np.float32)
    for gamma, wanted in ((0.0, reward), (1.0, [1 + 2 + 10, 2 + 3 + 10, 3 + 4 + 10, 4 + 5 + 10, 5 + 6, 6])):
        with tp.Program() as program:
            t = tp.dim("t")
            r, v = tp.input("r", (), (t,)), tp.input("v", (), (t,))
            tp.output("y", tp.rl.n_step(r, v, r < 0, t, n=2, gamma=gamma))
        np.testing.assert_allclose(tp.compile(program)(r=reward, v=value)["y"], wanted, rtol=1e-6)
