"""`run.value(tensor, point)` of the reference backend, for debugging."""

from typing import Any

import numpy as np
import pytest

import tempo as tp


@pytest.fixture
def program() -> tp.Program:
    with tp.Program("outer") as program:
        t, s = tp.dims("t s")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("y", x * s)
    return program


def test_points_are_given_in_order_or_by_name(program: tp.Program) -> None:
    with program:
        y = tp.as_tensor(program.dims[0]) * 10 + program.dims[1]
    run = tp.compile(program, backend="reference")
    given = {"x": np.ones(3), "sizes": {"s": 2}}
    assert int(run.value(y, (2, 1), **given)) == 21
    assert int(run.value(y, {"s": 1, "t": 2}, **given)) == 21


@pytest.mark.parametrize(
    "point", [(1,), (1, 1, 1), {"t": 1}, {"t": 1, "s": 1, "q": 1}, None, [1, 1], (0.5, 1), ("a", 1), 3]
)
def test_what_is_no_point(program: tp.Program, point: Any) -> None:
    with program:
        y = tp.as_tensor(program.dims[0]) * 10 + program.dims[1]
    run = tp.compile(program, backend="reference")
    with pytest.raises(tp.InputError, match=r"no point of|not made of integers"):
        run.value(y, point, x=np.ones(3), sizes={"s": 2})


def test_tensors_of_other_programs_and_later_ones(program: tp.Program) -> None:
    run: Any = tp.compile(program, backend="reference")
    with program:
        late = tp.zeros((2,)) + program.dims[0]
    with tp.Program("other"):
        foreign = tp.input("z", shape=())
    with pytest.raises(tp.ProgramError, match="made after the program was compiled"):
        run.value(late, (0,), x=np.ones(3), sizes={"s": 2})
    with pytest.raises(tp.ProgramError, match="belongs to the program 'other'"):
        run.value(foreign, (), x=np.ones(3), sizes={"s": 2})
    with pytest.raises(tp.InputError, match="a str is no tensor"):
        run.value("y", (), x=np.ones(3), sizes={"s": 2})


def test_the_text_of_an_executable_names_its_backend(program: tp.Program) -> None:
    assert repr(tp.compile(program, backend="reference")).endswith('backend="reference")')
    assert repr(tp.compile(program, backend="numpy")).endswith('backend="numpy", scheduler="greedy")')
