"""Gradients through definitions: recurrences, parameters, cases, and gradients of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tests.unit.autodiff.differences import INSTALLED, check, numbers

F = tp.float64


def test_back_through_time_from_the_last_step():
    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,), dtype=F)
        w = tp.input("w", shape=(3, 3), dims=(), dtype=F)
        h = tp.recurrent("h", shape=(3,), dims=(t,), dtype=F)
        h[0] = tp.zeros((3,), dtype=F)
        h[t + 1] = tp.tanh(h @ w + x)
        return (h[t.size - 1] ** 2).sum(), {"x": x, "w": w}

    for size in (1, 2, 6):
        check(declare, {"x": numbers(size, 3), "w": numbers(3, 3, seed=1)}, backends=INSTALLED)


def test_back_through_time_from_every_step_and_two_tensors():
    def declare():
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(2,), dims=(b, t), dtype=F)
        w = tp.input("w", shape=(2, 2), dims=(), dtype=F)
        start = tp.input("start", shape=(2,), dims=(b,), dtype=F)
        h = tp.recurrent("h", shape=(2,), dims=(b, t), dtype=F)
        c = tp.recurrent("c", shape=(2,), dims=(b, t), dtype=F)
        h[b, 0] = start
        c[b, 0] = start * 0.5
        c[b, t + 1] = c * tp.sigmoid(h @ w) + x
        h[b, t + 1] = tp.tanh(c[b, t + 1]) * tp.sigmoid(x @ w)
        return (h * c).sum(), {"x": x, "w": w, "start": start}

    arrays = {"x": numbers(3, 5, 2), "w": numbers(2, 2, seed=1), "start": numbers(3, 2, seed=2)}
    check(declare, arrays, backends=INSTALLED)


def test_backward_in_time():
    def declare():
        t = tp.dim("t")
        r = tp.input("r", shape=(), dims=(t,), dtype=F)
        v = tp.recurrent("v", shape=(), dims=(t,), dtype=F)
        v[t.size - 1] = r
        v[t - 1] = r[t - 1] + 0.9 * tp.tanh(v)
        return (v - 1) ** 2, {"r": r}

    check(declare, {"r": numbers(5)})


def test_a_recurrent_tensor_gets_its_total_adjoint():
    with tp.Program("total") as program:
        t = tp.dim("t", 4)
        h = tp.recurrent("h", shape=(), dims=(t,), dtype=F)
        h[0] = tp.constant(1.0, dtype=F)
        h[t + 1] = h * 3
        tp.output("grad", tp.grad(h[t.size - 1], h))
        tp.output("sum", tp.grad(h, h))
    found = tp.compile(program)()
    assert found["grad"].tolist() == [27, 9, 3, 1]
    assert found["sum"].tolist() == [40, 13, 4, 1]


def test_second_order_recurrences_send_to_both_steps():
    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        a = tp.input("a", shape=(), dims=(), dtype=F)
        y = tp.recurrent("y", shape=(), dims=(t,), dtype=F)
        y[0] = x
        y[1] = x * a
        y[t + 2] = tp.sin(a * y + y[t + 1]) + x[t + 2]
        return y**2, {"x": x, "a": a}

    check(declare, {"x": numbers(7), "a": np.array(0.7)})


def test_a_recurrence_over_all_earlier_steps():
    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,), dtype=F)
        y = tp.recurrent("y", shape=(2,), dims=(t,), dtype=F)
        y[0] = x
        y[t + 1] = tp.tanh(y[0 : t + 1].mean(axis=0)) + x[t + 1]
        return (y**3).sum(), {"x": x}

    check(declare, {"x": numbers(6, 2)})


def test_a_grid():
    def declare():
        i, j = tp.dims("i j")
        x = tp.input("x", shape=(), dims=(i, j), dtype=F)
        d = tp.recurrent("d", shape=(), dims=(i, j), dtype=F)
        d[0, 0] = x
        d[0, j + 1] = d + x[0, j + 1]
        d[i + 1, 0] = d + x[i + 1, 0]
        d[i + 1, j + 1] = tp.logaddexp(d[i, j + 1], d[i + 1, j]) * x[i + 1, j + 1]
        return d[i.size - 1, j.size - 1], {"x": x}

    check(declare, {"x": numbers(4, 3)}, sizes={"i": 4, "j": 3})


def test_cases_that_share_points_take_the_first():
    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        y = tp.cases((t < 2, x**2), (t < 4, x**3), (t % 2 == 0, tp.sin(x)), x)
        return y * y, {"x": x}

    check(declare, {"x": numbers(9)})


def test_a_parameter_is_a_leaf_and_training_descends():
    with tp.Program("train") as program:
        i = tp.dim("i", 50)
        w = tp.parameter("w", (2,), init=np.array([3.0, -2.0]), dims=(i,), dtype=F)
        loss = ((w - tp.constant([1.0, 1.0], dtype=F)) ** 2).sum()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("loss", loss)
    found = tp.compile(program)()
    np.testing.assert_allclose(found.state["w"], [1, 1], atol=1e-4)
    expected = 13 * 0.8 ** (2 * np.arange(50))
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-4)


def test_momentum_and_two_parameters():
    with tp.Program("train") as program:
        i = tp.dim("i", 20)
        x = tp.input("x", shape=(8, 3), dims=(i,), dtype=F)
        y = tp.input("y", shape=(8,), dims=(i,), dtype=F)
        w = tp.parameter("w", (3,), init=np.zeros(3), dims=(i,), dtype=F)
        b = tp.parameter("b", (), init=0.0, dims=(i,), dtype=F)
        m = tp.parameter("m", (3,), init=np.zeros(3), dims=(i,), dtype=F)
        loss = ((x @ w + b - y) ** 2).mean()
        grads = tp.grad(loss, {"w": w, "b": b})
        m[i + 1] = 0.9 * m + grads["w"]
        w[i + 1] = w - 0.05 * (0.9 * m + grads["w"])
        b[i + 1] = b - 0.05 * grads["b"]
        tp.output("loss", loss)
    data = {"x": numbers(20, 8, 3), "y": numbers(20, 8, seed=1)}
    found = tp.compile(program)(**data)
    ww, bb, mm, losses = np.zeros(3), 0.0, np.zeros(3), []
    for x_i, y_i in zip(data["x"], data["y"]):
        error = x_i @ ww + bb - y_i
        losses.append((error**2).mean())
        gw, gb = 2 * error @ x_i / 8, 2 * error.mean()
        mm = 0.9 * mm + gw
        ww, bb = ww - 0.05 * mm, bb - 0.05 * gb
    np.testing.assert_allclose(found["loss"], losses, rtol=1e-9)


def test_a_gradient_of_a_gradient():
    with tp.Program("second") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        first = tp.grad(tp.sin(x) * x, x)
        second = tp.grad(first, x)
        third = tp.grad(second, x)
        for name, value in (("first", first), ("second", second), ("third", third)):
            tp.output(name, value)
    x = numbers(4)
    found = tp.compile(program)(x=x)
    np.testing.assert_allclose(found["first"], np.cos(x) * x + np.sin(x))
    np.testing.assert_allclose(found["second"], -np.sin(x) * x + 2 * np.cos(x))
    np.testing.assert_allclose(found["third"], -np.cos(x) * x - 3 * np.sin(x))


def test_second_order_through_time():
    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        w = tp.input("w", shape=(), dims=(), dtype=F)
        h = tp.recurrent("h", shape=(), dims=(t,), dtype=F)
        h[0] = x
        h[t + 1] = tp.tanh(w * h) + x[t + 1]
        inner = h[t.size - 1] ** 2
        gradients = tp.grad(inner, [x, w])
        return gradients[0] ** 2 + gradients[1] * x, {"x": x, "w": w}

    for size in (1, 2, 5):
        check(declare, {"x": numbers(size), "w": np.array(0.8)})


def test_what_only_strided_reads_need_has_no_adjoint_elsewhere():
    """An adjoint that is there at every third point only, read by a range that a mask picks these points from."""

    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        product = (x**2).at(t=(2 * t) % 3) * x
        inner = product.at(t=tp.min(tp.max(3 * t - 4, 0), t.size - 1)) ** 2
        return tp.grad(inner, x) ** 2, {"x": x}

    check(declare, {"x": numbers(7)})


@pytest.mark.parametrize("index", ["halves", "clamped"])
def test_windows_whose_extents_are_bounded_term_by_term(index):
    def declare():
        t = tp.dim("t", 7)
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        largest = x[tp.max(t - 2, 0) : tp.min(t + 2, t.size)].max(axis=0)
        if index == "clamped":
            largest = largest.at(t=(2 * t) % 3)
        at = t // 2 if index == "halves" else tp.min(tp.max(3 * t - 4, 0), t.size - 1)
        return tp.grad(largest.at(t=at) ** 3, x) ** 2, {"x": x}

    check(declare, {"x": numbers(7)})


def test_a_gradient_penalty_in_training():
    with tp.Program("penalty") as program:
        i = tp.dim("i", 5)
        w = tp.parameter("w", (), init=1.0, dims=(i,), dtype=F)
        x = tp.input("x", shape=(4,), dims=(i,), dtype=F)
        out = tp.tanh(w * x).sum()
        penalty = (tp.grad(out, x) ** 2).sum()
        w[i + 1] = w - 0.1 * tp.grad(out + penalty, w)
        tp.output("w", w)
    x = numbers(5, 4)
    found = tp.compile(program)(x=x)["w"]
    w = 1.0
    for step in range(5):
        np.testing.assert_allclose(found[step], w)

        def objective(v, row=x[step]):
            slope = v * (1 - np.tanh(v * row) ** 2)
            return np.tanh(v * row).sum() + (slope**2).sum()

        w -= 0.1 * (objective(w + 1e-6) - objective(w - 1e-6)) / 2e-6


def test_stop_gradient():
    with tp.Program("stopped") as program:
        t = tp.dim("t", 3)
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        loss = tp.stop_gradient(x) * x
        tp.output("grad", tp.grad(loss, x))
        tp.output("value", loss)
        stopped = tp.stop_gradient(x * 2)
        tp.output("with respect to it", tp.grad(stopped**2, stopped))
    found = tp.compile(program)(x=np.array([1.0, 2.0, 3.0]))
    assert found["grad"].tolist() == [1, 2, 3]
    assert found["value"].tolist() == [1, 4, 9]
    assert found["with respect to it"].tolist() == [4, 8, 12]


def test_what_the_loss_does_not_reach_has_gradient_zero():
    with tp.Program("zeros") as program:
        t, s = tp.dims("t s")
        x = tp.input("x", shape=(2,), dims=(t,), dtype=F)
        y = tp.input("y", shape=(), dims=(s,), dtype=F)
        n = tp.input("n", shape=(), dims=(t,), dtype=tp.int32)
        loss = (x[0] * n[0].astype(F)).sum()
        noise = tp.random.normal((), dims=(t,), dtype=F)
        tp.output("x", tp.grad(loss, x))
        tp.output("y", tp.grad(loss, y))
        tp.output("noise", tp.grad(tp.where(x.sum() > 0, noise, 0.0) + tp.floor(x.sum()), x))
    found = tp.compile(program)(x=np.ones((3, 2)), y=np.ones(2), n=np.full(3, 5, np.int32))
    assert found["x"].tolist() == [[5, 5], [0, 0], [0, 0]]
    assert found["y"].tolist() == [0, 0]
    assert found["noise"].tolist() == [[0, 0]] * 3


def test_a_host_call_is_a_constant():
    with tp.Program("host") as program:
        t = tp.dim("t", 3)
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        (reward,) = tp.host_call(lambda a: np.float64(a * 10), x, out=[((), F)], ordered_by=(t,))
        tp.output("grad", tp.grad(reward * x, x))
        tp.output("of the call", tp.grad(reward * x, reward))
    found = tp.compile(program)(x=np.array([1.0, 2.0, 3.0]))
    assert found["grad"].tolist() == [10, 20, 30]
    assert found["of the call"].tolist() == [1, 2, 3]


def test_a_tensor_of_varying_shape():
    def declare():
        t = tp.dim("t")
        q = tp.input("q", shape=(2,), dims=(t,), dtype=F)
        k = tp.input("k", shape=(2,), dims=(t,), dtype=F)
        v = tp.input("v", shape=(3,), dims=(t,), dtype=F)
        scores = k[0 : t + 1] @ q
        out = tp.softmax(scores) @ v[0 : t + 1]
        return (out**2).sum(), {"q": q, "k": k, "v": v}

    arrays = {name: numbers(5, size, seed=size) for name, size in (("q", 2), ("k", 2), ("v", 3))}
    check(declare, arrays, backends=INSTALLED)


def test_windowed_attention():
    def declare():
        t = tp.dim("t")
        q = tp.input("q", shape=(2,), dims=(t,), dtype=F)
        k = tp.input("k", shape=(2,), dims=(t,), dtype=F)
        start = tp.max(t - 2, 0)
        weights = tp.softmax(k[start : t + 1] @ q)
        return (weights @ k[start : t + 1] * q).sum(), {"q": q, "k": k}

    check(declare, {"q": numbers(6, 2), "k": numbers(6, 2, seed=1)}, backends=INSTALLED)


def test_n_step_returns_with_a_bootstrap():
    def declare():
        t = tp.dim("t")
        r = tp.input("r", shape=(), dims=(t,), dtype=F)
        v = tp.input("v", shape=(), dims=(t,), dtype=F)
        stop = tp.min(t + 3, t.size)
        discounts = 0.9 ** tp.arange(stop - t).astype(F)
        returns = (r[t:stop] * discounts).sum() + tp.cases((t + 3 < t.size, 0.729 * v[tp.min(t + 3, t.size - 1)]), 0.0)
        return (returns - v) ** 2, {"r": r, "v": v}

    check(declare, {"r": numbers(8), "v": numbers(8, seed=1)}, backends=INSTALLED)


def test_a_gather_along_a_dim_adds_where_it_read():
    def declare():
        t, s = tp.dims("t s")
        x = tp.input("x", shape=(2,), dims=(t,), dtype=F)
        index = tp.input("index", shape=(3,), dims=(s,), dtype=tp.int32)
        return (x.gather(t, index) ** 2).sum(), {"x": x}

    check(declare, {"x": numbers(4, 2), "index": np.array([[0, 2, 2], [3, 0, 2]], np.int32)})


def test_a_mean_that_reads_a_constant_range_everywhere():
    """Each consumer counts once: what it sees does not vary with what it does not read."""
    with tp.Program("range") as program:
        t, s = tp.dims("t s")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        y = tp.input("y", shape=(), dims=(s,), dtype=F)
        tp.output("grad", tp.grad(x[5:10].sum() * y, x))
        tp.output("once", tp.grad(x[5:10].sum(), x))
    found = tp.compile(program, sizes={"t": 12, "s": 3})(x=np.ones(12), y=np.array([1.0, 2.0, 4.0]))
    assert found["grad"].tolist() == [0] * 5 + [7] * 5 + [0] * 2
    assert found["once"].tolist() == [0] * 5 + [1] * 5 + [0] * 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_only_points_that_exist_are_demanded(size: int):
    """What stands beside a read of the next step must not be read there where there is no next step."""

    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        y = tp.exp(x) * tp.cases((t < t.size - 1, x[tp.min(t + 1, t.size - 1)]), 1.0)
        product = x[t + 1] * y[t + 1] * x
        return tp.cases((t < t.size - 1, tp.sin(product)), x), {"x": x}

    check(declare, {"x": numbers(size)})


def test_a_cycle_that_the_loss_never_demands_has_a_gradient_of_zeros():
    def declare():
        s = tp.dim("s")
        x = tp.input("x", shape=(), dims=(s,), dtype=F)
        h = tp.recurrent("h", shape=(), dims=(s,), dtype=F)
        h[0] = x
        h[s + 1] = 0.5 * h + x[s + 1]
        y = tp.recurrent("y", shape=(), dims=(s,), dtype=F)
        y[s < 3] = h
        y[s >= 3] = x * 2.0
        z = tp.recurrent("z", shape=(), dims=(s,), dtype=F)
        z[s < 3] = x * 5.0
        z[s >= 3] = y
        return z[0 : s.size].sum(), {"x": x}

    check(declare, {"x": numbers(5)}, backends=INSTALLED)
