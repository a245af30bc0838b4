"""One way to run a program in these tests, on every backend of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.sdg.validate import validate

BACKENDS = ("reference", "numpy")


@pytest.fixture(params=BACKENDS)
def run_program(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`run_program(program, sizes=..., seed=..., state=..., **inputs)`: the outputs, after the graph is validated."""

    def run(program: tp.Program, *, compile_sizes: Any = None, **arguments: Any) -> Any:
        validate(program.graph())
        return tp.compile(program, backend=request.param, sizes=compile_sizes)(**arguments)

    return run


@pytest.fixture
def evaluate() -> Callable[..., np.ndarray[Any, Any]]:
    """`evaluate(function, *arrays)`: what a function of tensors gives for these arrays."""

    def run(function: Callable[..., Any], *arrays: Any) -> np.ndarray[Any, Any]:
        given = {f"x{place}": np.asarray(array) for place, array in enumerate(arrays)}
        with tp.Program("function") as program:
            inputs = [tp.input(name, shape=a.shape, dtype=a.dtype) for name, a in given.items()]
            tp.output("result", function(*inputs))
        validate(program.graph())
        return np.asarray(tp.compile(program, backend="reference")(**given)["result"])

    return run
