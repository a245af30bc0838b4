"""Functions of the backend's own arrays: what is declared, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp

OUT = [((2,), tp.float32)]


def declared(**options: object) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        (y,) = tp.backend_call(np.tanh, x, out=OUT, backend="numpy", **options)
        tp.output("y", y)
    return program


def test_results_have_the_domain_of_the_inputs() -> None:
    with tp.Program():
        a, b, t = tp.dims("a b t")
        x, y = tp.input("x", (2,), (a, t)), tp.input("y", (), (b,))
        first, second = tp.backend_call(
            lambda x, y: (x * y, y), x, y, out=[((2,), tp.float32), ((), tp.float32)], backend="numpy"
        )
        assert first.domain == (a, b, t)
        assert (first.shape, second.shape) == ((2,), ())
        (whole,) = tp.backend_call(np.tanh, x, out=OUT, backend="numpy", batched=(a,))
        assert whole.domain == (a, t)


def test_another_backend_is_refused_at_the_users_line() -> None:
    with tp.Program() as program:
        (y,) = tp.backend_call(np.tanh, tp.input("x", (2,)), out=OUT, backend="jax")
        tp.output("y", y)
    with pytest.raises(tp.UnsupportedError, match="tanh is a function for the backend 'jax', not for 'numpy'") as error:
        tp.compile(program, "numpy")
    assert "test_backend_calls.py" in str(error.value)


def test_what_nothing_needs_is_not_refused() -> None:
    with tp.Program() as program:
        x = tp.input("x", (2,))
        tp.backend_call(np.tanh, x, out=OUT, backend="jax")
        tp.output("y", x + 1)
    np.testing.assert_array_equal(tp.compile(program, "numpy")(x=[1.0, 2.0])["y"], [2, 3])


@pytest.mark.parametrize("backend", ["", None, "reference"])
def test_a_backend_with_arrays_of_its_own_is_named(backend: object) -> None:
    with tp.Program(), pytest.raises(tp.ProgramError, match="no backend with arrays of its own"):
        tp.backend_call(np.tanh, tp.input("x"), out=OUT, backend=backend)  # type: ignore[arg-type]


def test_varying_shapes_are_refused() -> None:
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        with pytest.raises(tp.ShapeError, match="varies along a dim"):
            tp.backend_call(np.cumsum, x[0 : t + 1], out=[((), tp.float32)], backend="numpy")
        with pytest.raises(tp.ShapeError, match="varies along a dim"):
            tp.backend_call(np.arange, x, out=[((t + 1,), tp.float32)], backend="numpy")


def test_no_results_are_refused() -> None:
    with tp.Program(), pytest.raises(tp.ShapeError, match="without results"):
        tp.backend_call(np.tanh, tp.input("x"), out=[], backend="numpy")


class TestGradients:
    @pytest.mark.parametrize("at", [0, 1])
    def test_a_gradient_through_it_is_an_error(self, at: int) -> None:
        with tp.Program() as program:
            x = tp.input("x", (2,))
            results = tp.backend_call(lambda x: (x, x * 2), x, out=OUT * 2, backend="numpy")
            tp.output("slope", tp.grad(results[at].sum(), x))
        with pytest.raises(tp.UnsupportedError, match=r"tp\.custom_gradient.*tp\.stop_gradient"):
            tp.compile(program)

    def test_a_gradient_of_its_own(self) -> None:
        @tp.custom_gradient
        def tanh(x: tp.RecurrentTensor) -> object:
            (y,) = tp.backend_call(np.tanh, x, out=OUT, backend="numpy")
            return y, lambda g: g * (1 - y * y)

        with tp.Program() as program:
            t = tp.dim("t")
            x = tp.input("x", (2,), (t,))
            tp.output("slope", tp.grad(tanh(x).sum(), x))
        x_data = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
        found = tp.compile(program)(x=x_data)["slope"]
        np.testing.assert_allclose(found, 1 - np.tanh(x_data) ** 2, rtol=1e-5)

    def test_a_stopped_gradient_is_zero(self) -> None:
        with tp.Program() as program:
            x = tp.input("x", (2,))
            (y,) = tp.backend_call(np.tanh, x, out=OUT, backend="numpy")
            tp.output("slope", tp.grad((tp.stop_gradient(y) * x).sum(), x))
        np.testing.assert_allclose(tp.compile(program)(x=[0.5, 1.0])["slope"], np.tanh([0.5, 1.0]), rtol=1e-6)


def test_values_are_cast_within_a_kind() -> None:
    with tp.Program() as program:
        x = tp.input("x", (2,))
        wide, count = tp.backend_call(
            lambda x: (x.astype(np.float64), 3), x, out=[((2,), tp.float32), ((), tp.int32)], backend="numpy"
        )
        tp.output("wide", wide)
        tp.output("count", count)
    out = tp.compile(program)(x=[1.0, 2.0])
    assert (out["wide"].dtype, out["count"].dtype, int(out["count"])) == (np.float32, np.int32, 3)


def test_each_point_is_called_once_for_all_results() -> None:
    calls = []

    def counted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(float(x))
        return x + 1, x + 2

    with tp.Program() as program:
        t = tp.dim("t", 4)
        a, b = tp.backend_call(counted, tp.as_tensor(t, dtype=tp.float32), out=[((), tp.float32)] * 2, backend="numpy")
        tp.output("a", a)
        tp.output("b", b)
    tp.compile(program)()
    assert calls == [0, 1, 2, 3]
