"""What is compiled for another framework's differentiation: arguments, and what is refused with its line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.plugins import get_backend
from tempo.runtime.reverse_mode import ReverseMode

NUMPY = get_backend("numpy")


def line() -> tp.Program:
    with tp.Program("line") as program:
        b, l = tp.dims("b l")
        x = tp.input("x", (3,), (b,))
        w = tp.parameter("w", (3,), lambda shape, dims, dtype: tp.random.normal(shape, dims=dims), (l,))
        tp.output("y", (x * w).sum())
        tp.output("norm", (w[0 : l.size] ** 2).sum())
    return program


def test_arguments_are_inputs_and_parameters() -> None:
    reverse = ReverseMode(line(), NUMPY, sizes={"l": 2})
    assert list(reverse.inputs) == ["x"]
    assert list(reverse.parameters) == ["w"]
    assert reverse.outputs == ("y", "norm")
    assert not reverse.is_single
    assert ReverseMode(line(), NUMPY, "y").is_single
    assert reverse.initial()["w"].shape == (2, 3)
    assert not np.array_equal(reverse.initial(seed=1)["w"], reverse.initial()["w"])


def test_a_part_of_the_arguments_has_gradients() -> None:
    reverse = ReverseMode(line(), NUMPY, "norm", sizes={"l": 2})
    given = {"x": np.ones((4, 3), np.float32), **reverse.initial()}
    made = reverse.forward(frozenset({"w"}), given)
    found = reverse.backward(frozenset({"w"}), given, made.residuals, {"norm": np.float32(3)}, made.sizes)
    assert list(found) == ["w"]
    np.testing.assert_allclose(found["w"], 6 * given["w"], rtol=1e-6)
    assert reverse.passed_on(frozenset({"w"})) == {"w"}


def test_it_is_copied_and_pickled() -> None:
    reverse = ReverseMode(line(), "numpy", "y", sizes={"l": 2})
    assert copy.deepcopy(reverse) is reverse
    read = pickle.loads(pickle.dumps(reverse))
    given = {"x": np.ones((4, 3), np.float32), **reverse.initial()}
    np.testing.assert_array_equal(
        read.forward(frozenset(), given).outputs["y"], reverse.forward(frozenset(), given).outputs["y"]
    )


def test_a_size_that_a_parameter_needs_is_asked_for() -> None:
    with pytest.raises(tp.SizeError, match="'l'"):
        ReverseMode(line(), NUMPY, "y").initial()


def test_an_initial_value_that_is_made_of_an_input_is_refused() -> None:
    with tp.Program() as program:
        x = tp.input("x", (3,))
        tp.output("y", tp.parameter("w", (3,), init=x * 2))
    with pytest.raises(tp.InputError, match="made of the input 'x'"):
        ReverseMode(program, NUMPY).initial()


def updated() -> str:
    i = tp.dim("i", 3)
    w = tp.parameter("w", (), 1.0, (i,))
    w[i + 1] = w * 0.5  # here
    tp.output("w", w)
    return "w[i + 1] = w"


def called() -> str:
    x = tp.input("x", ())
    (y,) = tp.host_call(lambda x: x, x, out=[((), "float32")])  # here
    tp.output("y", y)
    return "tp.host_call"


def sunk() -> str:
    x = tp.input("x", ())
    tp.output("y", x)
    tp.sink(lambda x: None, x)  # here
    return "tp.sink"


def streamed() -> str:
    t = tp.dim("t")
    tp.output("y", tp.stream_input("x", (), (t,)) * 2)  # here
    return "tp.stream_input"


def stopped() -> str:
    t = tp.dim("t", 5)
    x = tp.input("x", (), (t,))
    tp.output("y", x * 2)
    tp.stop_when(t, x > 1)  # here
    return "tp.stop_when"


def packed() -> str:
    b = tp.dim("b")
    t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
    tp.output("y", tp.input("x", (), (b, t)), packed=True)
    return "tp.output"


def growing() -> str:
    b = tp.dim("b")
    t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32") + 1)  # here
    tp.output("y", tp.input("x", (), (b, t)) * 2)
    return "tp.dim"


@pytest.mark.parametrize("declare", [updated, called, sunk, streamed, stopped, packed, growing])
def test_what_is_no_function_is_refused_at_its_line(declare: Callable[[], str]) -> None:
    with tp.Program() as program:
        text = declare()
    with pytest.raises(tp.UnsupportedError) as caught:
        ReverseMode(program, NUMPY)
    assert caught.value.location is not None
    assert text in caught.value.location.text
    assert caught.value.hint


def clashing() -> Any:
    with tp.Program() as program:
        tp.output("y", tp.input("w", ()) * tp.parameter("w", (), 1.0))
    return program


def reserved() -> Any:
    with tp.Program() as program:
        tp.output("y", tp.parameter("seed", (), 1.0))
    return program


@pytest.mark.parametrize(
    ("made", "outputs", "wrong"),
    [(line, "z", "'z'"), (clashing, None, "'w'"), (reserved, None, "'seed'"), (lambda: 3, None, "int")],
)
def test_names_that_do_not_fit_are_refused(made: Callable[[], Any], outputs: str | None, wrong: str) -> None:
    with pytest.raises(tp.ProgramError, match=wrong):
        ReverseMode(made(), NUMPY, outputs)


def test_what_has_no_gradient_is_refused_where_it_is_asked_for() -> None:
    with tp.Program() as program:
        x = tp.input("x", (3,))
        tp.output("y", tp.backend_call(np.sin, x, out=[((3,), "float32")], backend="numpy")[0])
    reverse = ReverseMode(program, NUMPY)
    given = {"x": np.ones(3, np.float32)}
    np.testing.assert_allclose(reverse.forward(frozenset(), given).outputs["y"], np.sin(given["x"]))
    with pytest.raises(tp.UnsupportedError, match="has no gradient"):
        reverse.forward(frozenset({"x"}), given)


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_with_lengths_of_their_own(backwards: bool) -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, u = tp.input("x", (2,), (b, t), "float64"), tp.input("u", (2, 2), (), "float64")
        h = tp.recurrent("h", (2,), (b, t), "float64")
        if backwards:
            h[b, t.last] = tp.tanh(x)
            h[b, t] = tp.tanh(x + h[b, t + 1] @ u)
        else:
            h[b, 0] = tp.tanh(x)
            h[b, t] = tp.tanh(x + h[b, t - 1] @ u)
        row = tp.tanh(x[b, 0 : t.size] @ u)  # with an axis that shows rows, so it is made again
        loss = h[b, 0 : t.size].mean(axis=0).sum() + h[b, t.last].sum() + row.sum()
        tp.output("loss", loss)
        tp.output("slope", tp.grad(loss, u))
    random = np.random.default_rng(0)
    given = {"n": np.array([2, 4, 3], np.int32), "x": random.normal(size=(3, 4, 2)), "u": random.normal(size=(2, 2))}
    expected = tp.compile(program, "reference")(**given)["slope"]
    reverse = ReverseMode(program, NUMPY, "loss", options=tp.Options(poison=True))
    made = reverse.forward(frozenset({"u"}), given)
    found = reverse.backward(frozenset({"u"}), given, made.residuals, {"loss": np.ones(3)}, made.sizes)
    np.testing.assert_allclose(found["u"], expected, rtol=1e-9)
    with pytest.raises(tp.SizeError, match="length"):
        reverse.forward(frozenset({"u"}), {**given, "n": np.array([2, 5, 3], np.int32)})
