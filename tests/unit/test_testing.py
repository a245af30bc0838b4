"""`tempo.testing`: backends that agree, and reports where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.plugins import get_backend
from tempo.testing import assert_equivalent


def sums() -> tp.Program:
    with tp.Program("sums") as program:
        b, t = tp.dims("b t")
        x, k = tp.input("x", (3,), (b, t)), tp.input("k", (), (b,), "int32")
        tp.output("sum", x[b, 0 : t + 1].sum(axis=0) + tp.random.normal((3,), dims=(b, t)))
        tp.output("twice", k * 2)
    return program


class Wrong:
    """NumPy's backend, whose results are off by what `change` does to them."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._numpy, self._change = get_backend("numpy"), change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)

    def to_host(self, array: Any) -> Any:
        return self._change(self._numpy.to_host(array))


def test_backends_agree_on_drawn_and_given_inputs() -> None:
    assert_equivalent(sums())
    assert_equivalent(sums(), ["reference", "numpy"], sizes={"t": 9}, inputs={"k": [1, 2]}, seed=3)


def test_streams_and_parameters_are_drawn_and_compared() -> None:
    with tp.Program("train") as program:
        i = tp.dim("i")
        w, x = tp.parameter("w", (2,), 1.0, (i,)), tp.stream_input("x", (2,), (i,))
        w[i + 1] = w * 0.5 + x
        tp.output("loss", (w * x).sum())
    assert_equivalent(program, ["reference", "numpy"], state={"w": np.zeros(2)})
    with pytest.raises(AssertionError, match="the parameter w at the end"):
        assert_equivalent(program, ["reference", Wrong(lambda array: array + 1)])


def test_a_report_says_what_differs_and_at_which_sizes() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_equivalent(sums(), ["reference", Wrong(lambda array: array + 1)], sizes={"t": 2})
    told = str(caught.value)
    assert "'sums' does not mean the same as on reference, with seed=0, sizes: b=3, t=2, drawn: k, x" in told
    assert "numpy: sum: 18 of 18 differ, first at [0, 0, 0]" in told
    assert "numpy: twice: 3 of 3 differ" in told


def test_a_tolerance_is_a_factor() -> None:
    near = Wrong(lambda array: array + 1e-4 if array.dtype == np.float32 else array)
    with pytest.raises(AssertionError):
        assert_equivalent(sums(), ["reference", near])
    assert_equivalent(sums(), ["reference", near], tolerance=1e4)


def test_what_a_backend_refuses_is_an_error_where_it_was_named() -> None:
    class Refusing(Wrong):
        def compile_segment(self, request: Any) -> Any:
            raise tp.UnsupportedError("it has no sums")

    with pytest.raises(AssertionError, match="numpy refuses it: it has no sums"):
        assert_equivalent(sums(), ["reference", Refusing(lambda array: array)])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"backends": ["numpy"]}, tp.InputError),
        ({"inputs": {"y": 1}}, tp.InputError),
        ({"sizes": {"q": 1}}, tp.InputError),
        ({"inputs": {"x": np.zeros((2, 3))}}, tp.InputError),
        ({"inputs": {"x": np.zeros((2, 4, 3))}, "sizes": {"b": 3}}, tp.SizeError),
    ],
)
def test_calls_that_do_not_fit(given: dict[str, Any], error: type[tp.TempoError]) -> None:
    with pytest.raises(error) as caught:
        assert_equivalent(sums(), **given)
    assert caught.value.location is not None
    with pytest.raises(tp.ProgramError):
        assert_equivalent(3)  # type: ignore[arg-type]
