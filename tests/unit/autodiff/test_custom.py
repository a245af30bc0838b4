"""`tp.custom_gradient`, and what `tp.grad` refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tempo as tp
from tests.unit.autodiff.differences import check, numbers

F = tp.float64


@tp.custom_gradient
def doubled_slope(x, scale):
    """x * scale, with twice the slope in x and none in scale."""
    return x * scale, lambda g: (2 * g * scale, None)


def test_the_rule_is_the_users():
    with tp.Program("custom") as program:
        t = tp.dim("t", 3)
        x = tp.input("x", shape=(2,), dims=(t,), dtype=F)
        scale = tp.input("scale", shape=(), dims=(), dtype=F)
        y = doubled_slope(x, scale)
        tp.output("y", y)
        gradients = tp.grad((y * 3).sum(), {"x": x, "scale": scale})
        tp.output("x", gradients["x"])
        tp.output("scale", gradients["scale"])
    given = numbers(3, 2)
    for backend in ("reference", "numpy"):
        found = tp.compile(program, backend=backend)(x=given, scale=np.array(5.0))
        assert found["y"].tolist() == (given * 5).tolist()
        assert found["x"].tolist() == np.full((3, 2), 30.0).tolist()
        assert found["scale"] == 0


def test_a_sink_in_the_program_is_in_nobodys_way():
    seen = []
    with tp.Program("sink") as program:
        t = tp.dim("t", 2)
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        tp.sink(lambda value: seen.append(float(value)), x * 2, ordered_by=(t,))
        tp.output("slope", tp.grad((x * x).sum(), {"x": x})["x"])
    found = tp.compile(program)(x=np.array([1.0, 3.0]))
    assert found["slope"].tolist() == [2.0, 6.0]
    assert seen == [2.0, 6.0]


def test_a_rule_within_a_recurrence_and_twice():
    @tp.custom_gradient
    def tanh(x):
        y = tp.tanh(x)
        return y, lambda g: g * (1 - y * y)

    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)
        h = tp.recurrent("h", shape=(), dims=(t,), dtype=F)
        h[0] = tanh(x)
        h[t + 1] = tanh(h + x[t + 1]) * 2
        slopes = tp.grad(h[t.size - 1], x)
        return slopes**2 + h, {"x": x}

    check(declare, {"x": numbers(4)})


def test_a_rule_may_run_through_time():
    """A sum over the past, whose cotangents are a sum over the future that is written as a recurrence."""

    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=F)

        @tp.custom_gradient
        def past(rows):
            total = tp.recurrent("total", shape=(), dims=(t,), dtype=F)
            total[0] = rows
            total[t + 1] = total + rows[t + 1]

            def pullback(g):
                later = tp.recurrent("later", shape=(), dims=(t,), dtype=F)
                later[t.size - 1] = g
                later[t - 1] = later + g[t - 1]
                return later

            return total, pullback

        return past(x**2) ** 2, {"x": x}

    check(declare, {"x": numbers(5)})


def refused(error: type[Exception], message: str, declare) -> None:
    def compiled():
        with tp.Program("refused") as program:
            t = tp.dim("t", 3)
            x = tp.input("x", shape=(2,), dims=(t,), dtype=F)
            declare(t, x)
        return tp.compile(program)

    with pytest.raises(error, match=re.escape(message)) as caught:
        compiled()
    assert caught.value.location is not None
    assert caught.value.location.path.endswith("test_custom.py")


def test_what_is_no_loss_is_refused():
    refused(tp.ShapeError, "the loss has shape (2,), not ()", lambda t, x: tp.grad(x, x))
    refused(tp.DTypeError, "the loss is of int32", lambda t, x: tp.grad(tp.as_tensor(t, dtype=tp.int32), x))
    refused(tp.IndexExpressionError, "the loss is 3.0", lambda t, x: tp.grad(3.0, x))


def test_with_respect_to_what_there_is_no_gradient():
    refused(tp.DTypeError, "is of int32, which has no gradient", lambda t, x: tp.grad(x.sum(), x.argmax()))
    refused(tp.IndexExpressionError, "which is no tensor", lambda t, x: tp.grad(x.sum(), [x, 1.0]))
    refused(tp.IndexExpressionError, "only reads the tensor 'x' elsewhere", lambda t, x: tp.grad(x.sum(), x[0]))


def test_a_rule_that_is_none():
    refused(tp.DefinitionError, "f has a gradient of its own and returned", lambda t, x: custom(lambda x: x)(x))
    refused(tp.DefinitionError, "2 cotangents for 1 operands", lambda t, x: custom(lambda x: (x, lambda g: (g, g)))(x))
    refused(tp.ShapeError, "the cotangent that the gradient of f gives", lambda t, x: custom(wide)(x))


def custom(function):
    def f(x):
        return function(x)

    return tp.custom_gradient(f)


def wide(x):
    return x, lambda g: tp.concatenate([g, g])


def test_a_gradient_within_its_own_loss_is_refused():
    def declare(t, x):
        h = tp.recurrent("h", shape=(), dims=(t,), dtype=F)
        h[0] = x.sum()
        h[t + 1] = h - tp.grad(h**2, h)
        tp.output("h", h)

    refused(tp.UnsupportedError, "a gradient is part of the loss that it differentiates", declare)


def test_containers_come_back_as_they_were_given():
    with tp.Program("containers"):
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        w = tp.parameter("w", (2,), init=0.0)
        found = tp.grad((x * w).sum(), {"a": [x, (w,)], "b": w})
    assert isinstance(found["a"], list)
    assert isinstance(found["a"][1], tuple)
    assert found["a"][0].domain == (t,)
    assert (found["b"].domain, found["b"].shape, found["b"].dtype) == ((), (2,), "float32")
