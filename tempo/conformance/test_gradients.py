"""Family 4, gradients: along every index map, through definitions by cases and time, of parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.gradient_programs import READS, SIZES, differences, reads
from tempo.conformance.target import Target, typical


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


@pytest.mark.few_configurations
@pytest.mark.parametrize("name", typical(READS, READS[::2]))
def test_a_read_sends_along_its_preimage(target: Target, name: str) -> None:
    with tp.Program() as program:
        s, t = tp.dims("s t")
        x = tp.input("x", (3,), (s, t))
        w = tp.input("w", (3,), ())
        loss = reads(s, t, tp.tanh(x * w))[name]
        tp.output("x", tp.grad(loss, x))
        tp.output("w", tp.grad(loss, w))
    target.agrees(program, x=normal(5, 6, 3), w=normal(3, seed=1), sizes=SIZES, tolerance=20)


@pytest.mark.parametrize("size", [1, 2, 13])
def test_back_through_time(target: Target, size: int) -> None:
    """A linear recurrence, whose adjoints are powers; and a cell that is not linear, with parameters."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        h = tp.recurrent("h", (3,), (t,))
        h[0] = x
        h[t + 1] = 0.5 * h + x[t + 1]
        tp.output("last", tp.grad(h[t.size - 1].sum(), x))
        tp.output("total", tp.grad(h[t.size - 1].sum(), h))
        w = tp.input("w", (3, 3), ())
        c = tp.recurrent("c", (3,), (t,))
        c[0] = tp.zeros((3,))
        c[t + 1] = tp.tanh(c @ w + x)
        gradients = tp.grad((c**2).sum(), {"w": w, "x": x})
        tp.output("w", gradients["w"])
        tp.output("x", gradients["x"])
    powers = np.broadcast_to(0.5 ** np.arange(size)[::-1, None], (size, 3))
    expected = {"last": powers, "total": powers}
    target.agrees(program, expected, x=normal(size, 3), w=normal(3, 3, seed=1), tolerance=20)


def test_along_two_dims_and_backwards(target: Target) -> None:
    with tp.Program() as program:
        i, j = tp.dims("i j")
        x = tp.input("x", (), (i, j))
        d = tp.recurrent("d", (), (i, j))
        d[0, 0] = x
        d[0, j + 1] = d + x[0, j + 1]
        d[i + 1, 0] = d + x[i + 1, 0]
        d[i + 1, j + 1] = tp.logaddexp(d[i, j + 1], d[i + 1, j]) * x[i + 1, j + 1]
        tp.output("grid", tp.grad(d[i.size - 1, j.size - 1], x))
        v = tp.recurrent("v", (), (i, j))
        v[i, j.size - 1] = x
        v[i, j - 1] = x[i, j - 1] + 0.5 * tp.tanh(v)
        tp.output("back", tp.grad(v[i, 0] ** 2, x))
    target.agrees(program, x=normal(4, 5), tolerance=20)


@pytest.mark.parametrize("steps", [1, 12])
def test_descent(target: Target, steps: int) -> None:
    """A parameter is a leaf of the loss; each step takes a fixed share of the distance."""
    with tp.Program() as program:
        i = tp.dim("i", steps)
        w = tp.parameter("w", (2,), init=np.array([3.0, -1.0], np.float32), dims=(i,))
        loss = ((w - 1.0) ** 2).sum()
        w[i + 1] = w - 0.25 * tp.grad(loss, w)
        tp.output("loss", loss)
    target.agrees(program, {"loss": 8 * 0.25 ** np.arange(steps)}, tolerance=20)


def test_training_through_time(target: Target) -> None:
    """Truncation by a window, momentum, and weights that every step of the inner loop shares."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x = tp.input("x", (2,), (i, t))
        w = tp.parameter("w", (2, 2), init=normal(2, 2, seed=1), dims=(i,))
        m = tp.parameter("m", (2, 2), init=np.zeros((2, 2), np.float32), dims=(i,))
        h = tp.recurrent("h", (2,), (i, t))
        h[i, 0] = x
        h[i, t + 1] = tp.tanh(h @ w + x[i, t + 1])
        loss = (h[i, 0 : t.size] ** 2).mean()
        step = 0.5 * m + tp.grad(loss, w)
        m[i + 1] = step
        w[i + 1] = w - 0.1 * step
        tp.output("loss", loss)
    target.agrees(program, x=normal(4, 5, 2), tolerance=20)


def test_gradients_of_gradients(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        first = tp.grad(tp.sin(x) * x, x)
        tp.output("second", tp.grad(first, x))
        h = tp.recurrent("h", (), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h * 0.5) + x[t + 1]
        slopes = tp.grad(h[t.size - 1], x)
        tp.output("curvature", tp.grad(slopes * x, x))
    x_data = normal(6)
    target.agrees(program, {"second": 2 * np.cos(x_data) - x_data * np.sin(x_data)}, x=x_data, tolerance=20)


def test_what_stops_and_what_has_a_rule_of_its_own(target: Target) -> None:
    @tp.custom_gradient
    def clipped(x: tp.RecurrentTensor) -> tuple[tp.RecurrentTensor, object]:
        return x, lambda g: tp.clip(g, -1.0, 1.0)

    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        tp.output("stopped", tp.grad((tp.stop_gradient(x) * x).sum(), x))
        tp.output("clipped", tp.grad((clipped(x) * x[0]).sum(), x) - tp.grad((x * x[0]).sum(), x))
        tp.output("unreached", tp.grad(x[0].sum(), x))
        tp.output("ties", tp.grad(tp.maximum(x * 0.0, 0.0).max() + tp.relu(x).sum(), x))
    x_data = normal(4, 3)
    unreached = np.zeros((4, 3))
    unreached[0] = 1
    target.agrees(program, {"stopped": x_data, "unreached": unreached}, x=x_data, tolerance=20)


@pytest.mark.parametrize("size", [1, 9])
def test_attention_over_the_past(target: Target, size: int) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        weights = {name: tp.input(name, (4, 4), ()) for name in "qkv"}
        q, k, v = (x @ weights[name] for name in "qkv")
        attended = tp.softmax(k[0 : t + 1] @ q / 2) @ v[0 : t + 1]
        for name, gradient in tp.grad(((x + attended) ** 2).mean(), weights).items():
            tp.output(name, gradient)
        start = tp.max(t - 2, 0)
        local = tp.softmax(k[start : t + 1] @ q / 2) @ v[start : t + 1]
        tp.output("local", tp.grad((local**2).sum(), x))
    given = {name: normal(4, 4, seed=seed) for seed, name in enumerate("qkv")}
    target.agrees(program, x=normal(size, 4, seed=5), q=given["q"], k=given["k"], v=given["v"], tolerance=50)


def test_returns_with_a_bootstrap(target: Target) -> None:
    """Of values at once and in time: what comes n steps later gets its share."""
    with tp.Program() as program:
        t = tp.dim("t")
        r = tp.input("r", (), (t,))
        v = tp.input("v", (), (t,))
        stop = tp.min(t + 3, t.size)
        discounts = 0.5 ** tp.arange(stop - t).astype(tp.float32)
        later = tp.cases((t + 3 < t.size, 0.125 * v[tp.min(t + 3, t.size - 1)]), 0.0)
        returns = (r[t:stop] * discounts).sum() + later
        tp.output("r", tp.grad(returns, r))
        tp.output("v", tp.grad((returns - v) ** 2, v))
    size = 8
    counts = np.array([sum(0.5**k for k in range(min(q, 2) + 1)) for q in range(size)])
    target.agrees(program, {"r": counts}, r=normal(size), v=normal(size, seed=1), tolerance=20)


def _suffixes(x: tp.RecurrentTensor, t: tp.Dim) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (t,), dtype=tp.float64)
    h[t % 2 == 0] = h[t + 1 : t.size].sum(axis=0)
    h[True] = x[t : t.size].mean(axis=0)
    return h**2


def _suffixes_by_hand(x: np.ndarray) -> float:
    h = np.zeros(len(x))
    for t in reversed(range(len(x))):
        h[t] = h[t + 1 :].sum() if t % 2 == 0 else x[t:].mean()
    return float((h**2).sum())


def _prefixes(x: tp.RecurrentTensor, t: tp.Dim) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (t,), dtype=tp.float64)
    h[t < 1] = x
    h[t] = 0.0 + x[0:t].sum(axis=0)
    return h[tp.max(t - 1, 0)] ** 2


def _prefixes_by_hand(x: np.ndarray) -> float:
    h = [x[0], *(x[:t].sum() for t in range(1, len(x)))]
    return float(sum(h[max(t - 1, 0)] ** 2 for t in range(len(x))))


def _negative(x: tp.RecurrentTensor, t: tp.Dim) -> tp.RecurrentTensor:
    """Slices that end before they start, at every point or at some."""
    h = tp.recurrent("h", (), (t,), dtype=tp.float64)
    h[t >= t.size - t] = x[t : t.size - t].sum(axis=0) + x
    h[True] = x[t.size - t : t].sum(axis=0) + x[t : t.size - t].sum(axis=0)
    return (h + h[tp.min(t + 2, t.size) : t].prod(axis=0)) ** 2


def _negative_by_hand(x: np.ndarray) -> float:
    n = len(x)
    h = [x[t : n - t].sum() + x[t] if t >= n - t else x[n - t : t].sum() + x[t : n - t].sum() for t in range(n)]
    return float(((np.array(h) + 1) ** 2).sum())


@pytest.mark.parametrize("size", typical([1, 2, 4, 5], [1, 4]))
@pytest.mark.parametrize(
    ("read", "by_hand"),
    [(_suffixes, _suffixes_by_hand), (_prefixes, _prefixes_by_hand), (_negative, _negative_by_hand)],
)
def test_slices_read_in_cases_that_are_empty_somewhere(
    target: Target,
    read: Callable[[tp.RecurrentTensor, tp.Dim], tp.RecurrentTensor],
    by_hand: Callable[[np.ndarray], float],
    size: int,
) -> None:
    """Lengths of adjoints were those of other points, or below 0: the evaluator died, and JAX gave other numbers."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,), dtype=tp.float64)
        tp.output("slope", tp.grad(read(x, t), x))
    array = normal(size).astype(np.float64)
    target.agrees(program, {"slope": differences(by_hand, {"x": array}, "x")}, x=array, tolerance=1e4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_slice_beyond_which_nobody_reads_has_no_position(target: Target, size: int) -> None:
    """At size 1 compiled code read position 0 of the adjoint of an empty slice, for consumers that were not there."""
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (), (t,))
        h[(t > 0) & (t < 4)] = tp.tanh(h[t + 1 : t].sum(axis=0))
        h[True] = tp.tanh(h[t + 1 : tp.min(t + 3, t.size)].sum(axis=0) + 0.35)
        loss = h[t : tp.min(2 * t, t.size)].sum(axis=0) * 0.5
        tp.output("slope", tp.grad(loss, h)[0:1])
    target.agrees(program, {"slope": np.zeros(1)}, sizes={"t": size})


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_counts_as_often_as_it_is_read_is_not_made_where_nobody_reads(target: Target, size: int) -> None:
    """At size 1 the product of nothing has no element whose adjoint could be counted: the evaluator died."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,), dtype=tp.float64)
        h = tp.recurrent("h", (), (t,), dtype=tp.float64)
        h[t < 1] = x * 2
        h[True] = tp.tanh(x)
        y = h[0 : t.size - 1].prod(axis=0) + 0.0 * x
        tp.output("slope", tp.grad(tp.sin(y[0]), x))
    array = normal(size).astype(np.float64)

    def by_hand(x: np.ndarray) -> float:
        return float(np.sin(np.prod([2 * x[0], *np.tanh(x[1:])][: size - 1])))

    target.agrees(program, {"slope": differences(by_hand, {"x": array}, "x")}, x=array, tolerance=1e4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_window_that_is_empty_at_every_point(target: Target, size: int) -> None:
    """At size 1 the adjoint of no positions was gathered at some: an error about an index that nobody wrote."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,), dtype=tp.float64)
        h = tp.recurrent("h", (), (t,), dtype=tp.float64)
        h[0] = x
        h[t] = x + h[t - 1]
        y = h[t // 2 : t.size // 2].sum(axis=0)
        tp.output("slope", tp.grad((y * y)[:].sum(), x))
    array = normal(size).astype(np.float64)

    def by_hand(x: np.ndarray) -> float:
        h = np.cumsum(x)
        return float(sum(h[at // 2 : size // 2].sum() ** 2 for at in range(size)))

    target.agrees(program, {"slope": differences(by_hand, {"x": array}, "x")}, x=array, tolerance=1e4)
