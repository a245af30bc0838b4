"""Family 5, learning: what optimizers make of parameters, step for step, against closed forms in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target

STEPS, ROWS = 11, 4
CLOSE = 1e-5
Weights = dict[str, Array]


class Sgd:
    """With momentum as Sutskever et al. 2013 have it, `nesterov` looks one step ahead."""

    def __init__(self, rate: float, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> None:
        self.rate, self.momentum, self.nesterov, self.decay = rate, momentum, nesterov, decay
        self.velocity: Weights = {}

    def step(self, name: str, w: Array, gradient: Array, count: int) -> Array:
        del count
        gradient = gradient + self.decay * w
        velocity = self.momentum * self.velocity.get(name, np.zeros_like(w)) + gradient
        self.velocity[name] = velocity
        step: Array = gradient + self.momentum * velocity if self.nesterov else velocity
        return w - self.rate * step


class Adam:
    """Kingma and Ba 2015, algorithm 1; with `decay`, Loshchilov and Hutter 2019, algorithm 2."""

    def __init__(self, rate: float, decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.rate, self.decay, self.betas = rate, decay, betas
        self.moments: dict[str, tuple[Array, Array]] = {}

    def step(self, name: str, w: Array, gradient: Array, count: int) -> Array:
        first, second = self.betas
        mean, square = self.moments.get(name, (np.zeros_like(w), np.zeros_like(w)))
        mean, square = first * mean + (1 - first) * gradient, second * square + (1 - second) * gradient**2
        self.moments[name] = mean, square
        scale = np.sqrt(square / (1 - second ** (count + 1))) + 1e-8
        return w - self.rate * (mean / (1 - first ** (count + 1)) / scale + self.decay * w)


OPTIMIZERS: dict[str, tuple[Callable[[], tp.optim.Optimizer], Callable[[], Any]]] = {
    "sgd": (lambda: tp.optim.SGD(0.1), lambda: Sgd(0.1)),
    "decayed": (lambda: tp.optim.SGD(0.1, weight_decay=0.05), lambda: Sgd(0.1, decay=0.05)),
    "momentum": (lambda: tp.optim.SGD(0.05, momentum=0.8), lambda: Sgd(0.05, 0.8)),
    "nesterov": (lambda: tp.optim.SGD(0.05, momentum=0.8, nesterov=True), lambda: Sgd(0.05, 0.8, nesterov=True)),
    "adam": (lambda: tp.optim.Adam(0.03), lambda: Adam(0.03)),
    "adam with other means": (
        lambda: tp.optim.Adam(0.03, betas=(0.5, 0.75)),
        lambda: Adam(0.03, betas=(0.5, 0.75)),
    ),
    "adamw": (lambda: tp.optim.AdamW(0.03, weight_decay=0.1), lambda: Adam(0.03, decay=0.1)),
}


def data(steps: int = STEPS) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {
        "x": random.uniform(-1, 1, (steps, ROWS, 3)).astype(np.float32),
        "y": random.uniform(-1, 1, (steps, ROWS)).astype(np.float32),
    }


def start() -> Weights:
    return {"w": np.array([0.5, -1.0, 0.25], np.float32), "b": np.array(0.5, np.float32)}


def gradients(w: Weights, x: Array, y: Array) -> Weights:
    """Of the mean of the squared errors of a line."""
    error = 2 * (x @ w["w"] + w["b"] - y) / len(y)
    return {"w": error @ x, "b": np.asarray(error.sum())}


def descent(rule: Any, steps: int = STEPS, change: Callable[[Weights], Weights] = lambda g: g) -> Iterator[Weights]:
    """The weights before each step, in float64."""
    arrays = {name: array.astype(np.float64) for name, array in data(steps).items()}
    w = {name: array.astype(np.float64) for name, array in start().items()}
    for count in range(steps):
        yield w
        found = change(gradients(w, arrays["x"][count], arrays["y"][count]))
        w = {name: rule.step(name, w[name], found[name], count) for name in w}


def regression(learn: Callable[[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]], None]) -> tp.Program:
    with tp.Program() as program:
        i = tp.dim("i")
        x, y = tp.input("x", (ROWS, 3), (i,)), tp.input("y", (ROWS,), (i,))
        parameters = {name: tp.parameter(name, each.shape, init=each, dims=(i,)) for name, each in start().items()}
        learn(((x @ parameters["w"] + parameters["b"] - y) ** 2).mean(), parameters)
        for name, parameter in parameters.items():
            tp.output(name, parameter)
    return program


def assert_follows(target: Target, program: tp.Program, expected: Iterator[Weights]) -> None:
    found = target.agrees(program, tolerance=50, **data())
    steps = list(expected)
    for name in start():
        wanted = np.stack([each[name] for each in steps])
        np.testing.assert_allclose(target.to_numpy(found[name]), wanted, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(target: Target, name: str) -> None:
    ours, closed = OPTIMIZERS[name]
    program = regression(lambda loss, parameters: ours().minimize(loss, parameters))
    assert_follows(target, program, descent(closed()))


def test_clipped_gradients(target: Target) -> None:
    def learn(loss: tp.RecurrentTensor, parameters: dict[str, tp.RecurrentTensor]) -> None:
        found = tp.optim.clip_by_global_norm(tp.grad(loss, parameters), 0.5)
        tp.optim.SGD(0.2).apply(parameters, found)

    def clipped(found: Weights) -> Weights:
        norm = np.sqrt(sum((each**2).sum() for each in found.values()))
        return {name: each * min(1.0, 0.5 / norm) for name, each in found.items()}

    assert_follows(target, regression(learn), descent(Sgd(0.2), change=clipped))


SCHEDULES: dict[str, tuple[tp.optim.schedules.Schedule, Callable[[int], float]]] = {
    "constant": (tp.optim.constant(0.1), lambda n: 0.1),
    "linear": (tp.optim.linear(0.2, 0.1, 5), lambda n: 0.2 - 0.1 * min(n / 5, 1)),
    "cosine": (tp.optim.cosine_decay(0.2, 8), lambda n: 0.1 * (1 + np.cos(np.pi * min(n / 8, 1)))),
    "exponential": (tp.optim.exponential_decay(0.2, 0.5, 4), lambda n: 0.2 * 0.5 ** (n / 4)),
    "warm": (
        tp.optim.warmup(tp.optim.linear(0.2, 0.0, 6), 3),
        lambda n: 0.2 * min((n + 1) / 3, 1) * (1 - min(max(n - 3, 0) / 6, 1)),
    ),
}


@pytest.mark.few_configurations
@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rates_that_change(target: Target, name: str) -> None:
    schedule, rate = SCHEDULES[name]

    class Scheduled(Sgd):
        def step(self, name: str, w: Array, gradient: Array, count: int) -> Array:
            return w - rate(count) * gradient

    program = regression(lambda loss, parameters: tp.optim.SGD(schedule).minimize(loss, parameters))
    assert_follows(target, program, descent(Scheduled(0.0)))


@pytest.mark.few_configurations
@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_a_run_goes_on_from_the_state_of_another(target: Target, name: str) -> None:
    """The state is that of the last iteration, which the next run does again."""
    ours, closed = OPTIMIZERS[name]
    run = target.compile(regression(lambda loss, parameters: ours().minimize(loss, parameters)))
    whole, half = data(), STEPS // 2
    begun: dict[str, Any] = {key: array[:half] for key, array in whole.items()}
    first = run(**begun)
    rest: dict[str, Any] = {key: array[half - 1 :] for key, array in whole.items()}
    second = run(state=first.state, **rest)
    expected = list(descent(closed()))
    for key in start():
        found = np.concatenate([target.to_numpy(first[key]), target.to_numpy(second[key])[1:]])
        np.testing.assert_allclose(found, np.stack([each[key] for each in expected]), rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("epochs", [1, 3])
def test_epochs_over_the_same_batches(target: Target, epochs: int) -> None:
    """Iterations count through two dims: the last batch of an epoch leads to the first of the next."""
    batches = 4
    with tp.Program() as program:
        e, m = tp.dims("e m")
        x, y = tp.input("x", (ROWS, 3), (m,)), tp.input("y", (ROWS,), (m,))
        w = {name: tp.parameter(name, each.shape, init=each, dims=(e, m)) for name, each in start().items()}
        loss = ((x @ w["w"] + w["b"] - y) ** 2).mean()
        tp.optim.Adam(0.03, dim=(e, m)).minimize(loss, w)
        tp.output("w", w["w"])
    given = data(batches)
    found = target.agrees(program, sizes={"e": epochs}, tolerance=50, **given)
    arrays = {key: array.astype(np.float64) for key, array in given.items()}
    rule, weights = Adam(0.03), {key: array.astype(np.float64) for key, array in start().items()}
    expected = np.empty((epochs, batches, 3))
    for count in range(epochs * batches):
        epoch, batch = divmod(count, batches)
        expected[epoch, batch] = weights["w"]
        slopes = gradients(weights, arrays["x"][batch], arrays["y"][batch])
        weights = {key: rule.step(key, weights[key], slopes[key], count) for key in weights}
    np.testing.assert_allclose(target.to_numpy(found["w"]), expected, rtol=CLOSE, atol=CLOSE)


def test_learning_through_a_recurrence(target: Target) -> None:
    """h[t + 1] = a h[t] + x[t]: the last value is the sum of a^(T - 2 - k) x[k]."""
    steps, length = 5, 6
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x = tp.input("x", (), (t,))
        a = tp.parameter("a", (), init=0.5, dims=(i,))
        h = tp.recurrent("h", (), (i, t))
        h[i, 0] = 0.0
        h[i, t + 1] = a * h + x
        tp.optim.SGD(0.05).minimize(h[i, t.size - 1] ** 2, [a])
        tp.output("a", a)
    given = np.random.default_rng(5).uniform(0, 1, length).astype(np.float32)
    found = target.agrees(program, sizes={"i": steps, "t": length}, tolerance=50, x=given)
    factor, expected = 0.5, []
    for _ in range(steps):
        expected.append(factor)
        powers = range(length - 1)
        last = sum(factor ** (length - 2 - k) * float(given[k]) for k in powers)
        slope = sum((length - 2 - k) * factor ** (length - 3 - k) * float(given[k]) for k in powers if k < length - 2)
        factor -= 0.05 * 2 * last * slope
    np.testing.assert_allclose(target.to_numpy(found["a"]), expected, rtol=CLOSE, atol=CLOSE)
