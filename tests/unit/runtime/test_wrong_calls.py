"""Calls of the public functions with arguments of the wrong kind: each says what is wrong, and nothing is spoilt."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp


@pytest.fixture
def program() -> tp.Program:
    with tp.Program("sums") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        w = tp.parameter("w", shape=(), init=0.0, dims=(t,))
        w[t + 1] = w + x
        tp.output("w", w)
    return program


@pytest.mark.parametrize("backend", ["numpy", "reference"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": 4}, "sizes= is a int"),
        ({"sizes": [("t", 4)]}, "sizes= is a list"),
        ({"sizes": {3: 4}}, "sizes= names 3, which is no string"),
        ({"state": 3}, "state= is a int"),
        ({"state": [1]}, "state= is a list"),
    ],
)
def test_reserved_arguments_of_a_wrong_kind(
    program: tp.Program, backend: str, arguments: dict[str, Any], message: str
) -> None:
    run = tp.compile(program, backend=backend)
    with pytest.raises(tp.InputError, match=message):
        run(x=np.ones(3), **arguments)
    np.testing.assert_array_equal(run(x=np.ones(3))["w"], [0, 1, 2])


def test_a_dim_for_the_name_of_a_size(program: tp.Program) -> None:
    run = tp.compile(program)
    with pytest.raises(tp.InputError, match="names t, which is no string"):
        run(x=np.ones(3), sizes={program.dims[0]: 3})


@pytest.mark.parametrize("chunk", [0, 1.5, "a", None, True])
def test_a_chunk_is_a_positive_integer(program: tp.Program, chunk: Any) -> None:
    with pytest.raises(tp.InputError, match="chunk must be an integer of at least 1"):
        tp.compile(program).stream("t", chunk=chunk, x=np.ones(3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"backend": 3}, tp.UnknownBackendError, "a int is no backend"),
        ({"backend": dict}, tp.UnknownBackendError, "the class dict is no backend"),
        ({"backend": ""}, tp.UnknownBackendError, "there is no backend ''"),
        ({"scheduler": 3}, tp.UnknownSchedulerError, "a int is no scheduler"),
        ({"scheduler": object}, tp.UnknownSchedulerError, "the class object is no scheduler"),
        ({"options": {"checks": True}}, tp.InputError, "options= is a dict"),
        ({"sizes": 3}, tp.InputError, "sizes= of compile is a int"),
    ],
)
def test_arguments_of_compile_of_a_wrong_kind(
    program: tp.Program, arguments: dict[str, Any], error: type[tp.TempoError], message: str
) -> None:
    with pytest.raises(error, match=message):
        tp.compile(program, **arguments)


@pytest.mark.parametrize("names", ["lift", 3, (3,), None])
def test_disabled_passes_are_a_tuple(names: Any) -> None:
    make: Callable[..., tp.Options] = tp.Options
    with pytest.raises(tp.InputError, match="no tuple of names"):
        make(disable=names)


@pytest.mark.parametrize("name", ["self", "dim", "tensor"])
def test_inputs_may_have_any_name_that_is_not_reserved(name: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        y = tp.input(name, shape=(), dims=(t,)) * 2
        tp.output("y", y)
    run = tp.compile(program)
    given = {name: np.float32([1, 2])}
    assert run(**given)["y"].tolist() == [2, 4]
    assert [float(step["y"]) for step in run.stream("t", **given)] == [2, 4]
    assert float(tp.compile(program, backend="reference").value(y, (1,), **given)) == 4
