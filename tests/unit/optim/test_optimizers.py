"""Optimizers against PyTorch's on the same gradients, and their state across runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp

STEPS = 9
TARGET = np.array([1.0, -2.0, 0.5], np.float32)
START = np.array([3.0, 1.0, -1.0], np.float32)

CASES: dict[str, tuple[Callable[[], tp.optim.Optimizer], str, dict[str, Any]]] = {
    "sgd": (lambda: tp.optim.SGD(0.1), "SGD", {"lr": 0.1}),
    "momentum": (lambda: tp.optim.SGD(0.1, momentum=0.9), "SGD", {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (
        lambda: tp.optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (lambda: tp.optim.Adam(0.05), "Adam", {"lr": 0.05}),
    "adamw": (lambda: tp.optim.AdamW(0.05, weight_decay=0.1), "AdamW", {"lr": 0.05, "weight_decay": 0.1}),
}


def descent(optimizer: Callable[[], tp.optim.Optimizer]) -> tp.Program:
    """Down the gradient of `sum((w - target) ** 2)`, written out."""
    with tp.Program() as program:
        i = tp.dim("i")
        w = tp.parameter("w", (3,), init=START, dims=(i,))
        w[i + 1] = optimizer().update(w, 2 * (w - TARGET))
        tp.output("w", w)
    return program


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs, options = CASES[name]
    found = tp.compile(descent(ours))(sizes={"i": STEPS})["w"]
    w = torch.nn.Parameter(torch.tensor(START))
    peer = getattr(torch.optim, theirs)([w], **options)
    for step in range(STEPS):
        np.testing.assert_allclose(found[step], w.detach().numpy(), rtol=2e-5, atol=1e-6)
        peer.zero_grad()
        ((w - torch.tensor(TARGET)) ** 2).sum().backward()
        peer.step()


@pytest.mark.parametrize("name", CASES)
def test_a_run_from_the_state_of_another_goes_on(name: str) -> None:
    run = tp.compile(descent(CASES[name][0]))
    whole = run(sizes={"i": 2 * STEPS - 1})
    first = run(sizes={"i": STEPS})
    second = run(sizes={"i": STEPS}, state=first.state)
    np.testing.assert_allclose(second["w"], whole["w"][STEPS - 1 :], rtol=1e-6)


@pytest.mark.parametrize("rate", [0.05, np.float64(0.05), tp.optim.constant(0.05)])
def test_float64_parameters_take_float64_steps(rate: Any) -> None:
    with tp.Program() as program:
        i = tp.dim("i", STEPS)
        w = tp.parameter("w", (3,), init=START, dims=(i,), dtype=tp.float64)
        w[i + 1] = tp.optim.Adam(rate).update(w, 2 * (w - TARGET))
        tp.output("w", w)
    w, mean, square, expected = START.astype(float), np.zeros(3), np.zeros(3), []
    for step in range(1, STEPS + 1):
        expected.append(w)
        gradient = 2 * (w - TARGET)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        w = w - 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(tp.compile(program)()["w"], expected, rtol=1e-12)


def test_schedules() -> None:
    schedules = {
        "constant": tp.optim.constant(0.5),
        "linear": tp.optim.linear(1.0, 0.0, 4),
        "cosine": tp.optim.cosine_decay(1.0, 4),
        "exponential": tp.optim.exponential_decay(1.0, 0.5, 2),
        "warm": tp.optim.warmup(tp.optim.linear(1.0, 0.0, 4), 2),
    }
    with tp.Program() as program:
        i = tp.dim("i", 7)
        for name, schedule in schedules.items():
            w = tp.parameter(name, (), init=0.0, dims=(i,))
            w[i + 1] = tp.optim.SGD(schedule, name=f"{name}_sgd").update(w, tp.full((), -1.0))
            tp.output(name, w)
    found = {name: np.diff(array) for name, array in tp.compile(program)().items()}
    steps = np.arange(6)
    np.testing.assert_allclose(found["constant"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(found["linear"], np.maximum(1 - steps / 4, 0), atol=1e-6)
    np.testing.assert_allclose(found["cosine"], (1 + np.cos(np.pi * np.minimum(steps / 4, 1))) / 2, atol=1e-6)
    np.testing.assert_allclose(found["exponential"], 0.5 ** (steps / 2), rtol=1e-5)
    np.testing.assert_allclose(found["warm"], [0.5, 1, 1, 0.75, 0.5, 0.25], atol=1e-6)


def test_clipping() -> None:
    with tp.Program() as program:
        gradients = {"a": tp.constant(np.array([3.0, 0.0], np.float32)), "b": tp.constant(np.float32(4.0))}
        for name, clipped in tp.optim.clip_by_global_norm(gradients, 1.0).items():
            tp.output(name, clipped)
        tp.output("norm", tp.optim.global_norm(gradients))
        tp.output("small", tp.optim.clip_by_global_norm(gradients["a"], 10.0))
        tp.output("value", tp.optim.clip_by_value(list(gradients.values()), 2.0)[1])
    out = tp.compile(program)()
    np.testing.assert_allclose(out["a"], [0.6, 0.0], rtol=1e-6)
    assert out["b"] == pytest.approx(0.8)
    assert out["norm"] == pytest.approx(5.0)
    np.testing.assert_allclose(out["small"], [3.0, 0.0])
    assert out["value"] == 2.0


def test_the_global_norm_is_over_layers_and_not_over_iterations() -> None:
    with tp.Program() as program:
        i, l = tp.dim("i", 2), tp.dim("l", 3)
        stack = tp.input("stack", (2,), (i, l))
        gradients = [stack, tp.as_tensor(i).astype(tp.float32)]
        tp.output("norm", tp.optim.global_norm(gradients, dim=i))
        tp.output("clipped", tp.optim.clip_by_global_norm(gradients, 1.0, dim=[i])[0])
        tp.output("each", tp.optim.global_norm(stack))
    given = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    out = tp.compile(program)(stack=given)
    norm = np.sqrt((given**2).sum(axis=(1, 2)) + np.arange(2) ** 2)
    np.testing.assert_allclose(out["norm"], norm, rtol=1e-5)
    np.testing.assert_allclose(out["clipped"], given / np.maximum(norm, 1)[:, None, None], rtol=1e-5)
    np.testing.assert_allclose(out["each"], np.sqrt((given**2).sum(axis=2)), rtol=1e-5)


def test_which_dim_counts_iterations_must_be_clear() -> None:
    with tp.Program() as program:
        l, i = tp.dims("l i")
        w = tp.parameter("w", (), init=1.0, dims=(l, i))
        with pytest.raises(tp.DefinitionError, match=r"the dims l, i.*\n?.*dim=i"):
            tp.optim.Adam().apply([w], {"w": w})
        tp.optim.SGD(0.5, momentum=0.5, dim=i).apply([w], {"w": w})
        tp.output("w", w)
    found = tp.compile(program)(sizes={"l": 2, "i": 3})["w"]
    np.testing.assert_allclose(found, [[1, 0.5, 0.0]] * 2)


def test_what_is_no_parameter_is_refused() -> None:
    with tp.Program():
        i = tp.dim("i")
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        with pytest.raises(tp.DefinitionError, match="declared with tp.parameter"):
            tp.optim.Adam().update(w * 2, w)


def test_iterations_may_be_several_dims_in_lexicographic_order() -> None:
    with tp.Program() as program:
        i, e = tp.dims("i e")
        w = tp.parameter("w", (), init=1.0, dims=(i, e))
        tp.optim.Adam(0.1, dim=(i, e)).apply([w], {"w": 2 * w})
        tp.output("w", w)
    with tp.Program() as flat:
        i = tp.dim("i")
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        tp.optim.Adam(0.1).apply([w], {"w": 2 * w})
        tp.output("w", w)
    found = tp.compile(program)(sizes={"i": 3, "e": 4})
    wanted = tp.compile(flat)(sizes={"i": 12})
    np.testing.assert_allclose(np.ravel(found["w"]), wanted["w"], rtol=1e-6)
    assert found.state["adam.count"] == 11
