"""What a backend declares unsupported is refused at the user's line, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.plugins import Capabilities
from tempo.plugins.descriptors import DTYPES


class Limited(NumpyBackend):
    """NumPy without sorting, without sines of float64, without bfloat16."""

    info = replace(
        NumpyBackend.info,
        name="limited",
        capabilities=Capabilities(unsupported={"sort": "no network", "sin:float64": "a table of float32"}),
        dtypes=tuple(name for name in DTYPES if name != "bfloat16"),
    )


def program_of(function: object, dtype: str = "float32") -> tp.Program:
    with tp.Program() as program:
        x = tp.input("x", (3,), dtype=dtype)
        tp.output("y", function(x))  # type: ignore[operator]
    return program


def test_an_operator_is_refused_at_its_line_with_who_can() -> None:
    with pytest.raises(tp.UnsupportedError) as caught:
        tp.compile(program_of(tp.sort), Limited())(x=np.zeros(3))
    message = str(caught.value)
    assert "the backend 'limited' cannot run 'sort' for float32: no network" in message
    assert "test_support.py" in message
    assert "backends that can: " in message
    assert "numpy" in message


def test_an_operator_for_one_dtype_is_refused_for_that_alone() -> None:
    tp.compile(program_of(tp.sin), Limited())(x=np.zeros(3))
    with pytest.raises(tp.UnsupportedError, match="cannot run 'sin' for float64: a table of float32"):
        tp.compile(program_of(tp.sin, "float64"), Limited())(x=np.zeros(3))


def test_a_dtype_that_a_backend_does_not_have_is_refused_wherever_it_occurs() -> None:
    for program in (
        program_of(lambda x: x, "bfloat16"),
        program_of(lambda x: (x.astype("bfloat16") + 1).astype("float32")),
    ):
        with pytest.raises(tp.UnsupportedError, match="it has no bfloat16"):
            tp.compile(program, Limited())(x=np.zeros(3, np.float32).astype("float32"))


def test_what_nothing_needs_is_not_refused() -> None:
    def unused(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        tp.sort(x)
        return x + 1

    assert tp.compile(program_of(unused), Limited())(x=np.zeros(3))["y"].tolist() == [1, 1, 1]


def test_draws_need_no_declared_dtype() -> None:
    """The words of 64 bits that draws are made of are no dtype of the language."""
    with tp.Program() as program:
        tp.output("y", tp.random.uniform((3,), dtype="float64"))
    tp.compile(program, Limited())()
