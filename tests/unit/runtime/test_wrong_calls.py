"""Calls of the public functions with arguments of the wrong kind: each says what is wrong, and nothing is spoilt."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import keywords
from tempo.runtime.executable import Executable


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


def test_every_keyword_of_a_call_is_reserved() -> None:
    taken = {
        name
        for method in (Executable.__call__, Executable.stream, Executable.value)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    assert taken - {"self"} <= set(keywords.RESERVED)


@pytest.mark.parametrize("name", keywords.RESERVED)
@pytest.mark.parametrize("declare", [tp.input, lambda name: tp.stream_input(name, dims=(tp.dim("t"),))])
def test_no_input_may_have_the_name_of_a_keyword(declare: Callable[[str], Any], name: str) -> None:
    with tp.Program(), pytest.raises(tp.ProgramError, match=f"'{name}' cannot name an input") as caught:
        declare(name)
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


def test_a_stream_keeps_no_checkpoints(program: tp.Program, tmp_path: Path) -> None:
    checkpoint = tp.Checkpoints(tmp_path, along="t")
    with pytest.raises(tp.InputError, match="(?s)no input 'checkpoint'.*only a call as a whole takes checkpoint="):
        tp.compile(program).stream("t", x=np.ones(3), checkpoint=checkpoint)


def declared(dtype: str) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.input("given", (2,), (t,), dtype=dtype))
    return program


WRONG_ARRAYS: list[tuple[str, Any, type[tp.TempoError], str]] = [
    ("int32", np.array([[1, 2], [3, 2**31]]), tp.DTypeError, r"int32 cannot hold: 2147483648 at \[1, 1\]"),
    ("uint8", [[1, 2], [-3, 4]], tp.DTypeError, r"uint8 cannot hold: -3 at \[1, 0\]"),
    ("int32", np.ones((2, 2)), tp.DTypeError, "has dtype float64, which is of another kind than int32"),
    ("float32", np.ones((2, 2), np.int32), tp.DTypeError, "has dtype int32, which is of another kind than float32"),
    ("float32", np.array([[0, 1], [1e300, np.inf]]), tp.InputError, r"'given': 1e\+300 at \[1, 0\] would become inf"),
    ("float32", np.ones((2, 2), complex), tp.DTypeError, "the input 'given' has dtype complex128"),
    ("float32", [[1, 2], [3]], tp.InputError, "the input 'given' is no array"),
    ("float32", None, tp.InputError, "no array of numbers, but a NoneType"),
    ("float32", "text", tp.InputError, "no array of numbers, but a str"),
    ("float32", [[1, None]], tp.InputError, "no array of numbers, but a list"),
    ("float32", np.array(["2020-01-01"], "M8[D]"), tp.InputError, r"no array of numbers, but a ndarray of dtype dat"),
    ("float32", np.ma.masked_less(np.ones((2, 2)), 2), tp.InputError, "is a masked array"),
    ("float32", np.ones((2, 3)), tp.InputError, r"has shape \(2, 3\), expected is \(2, 2\): .*; axis 1 differs"),
    ("float32", np.ones(2), tp.InputError, r"has shape \(2,\), expected are 2 axes: \(t=t.size, 2\)"),
    ("float32", 1.0, tp.InputError, r"has shape \(\), expected are 2 axes"),
    ("float32", np.ones((0, 2)), tp.SizeError, r"'t' is 0 by the shape \(0, 2\) of the input 'given' at axis 0"),
]


@pytest.mark.parametrize("backend", ["numpy", "reference"])
@pytest.mark.parametrize(("dtype", "value", "error", "message"), WRONG_ARRAYS)
def test_a_wrong_array_is_refused_at_the_line_of_the_declaration(
    backend: str, dtype: str, value: Any, error: type[tp.TempoError], message: str
) -> None:
    run = tp.compile(declared(dtype), backend)
    with pytest.raises(error, match=message) as caught:
        run(given=value)
    assert caught.value.location is not None
    assert caught.value.location.text == 'tp.output("y", tp.input("given", (2,), (t,), dtype=dtype))'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": "0"}, "seed must be an integer"),
        ({"sizes": {"tt": 3}}, "no dim of the program"),
        ({"z": 3}, "no input 'z'"),
        ({"progress": "yes"}, "progress='yes' is a str"),
        ({"progress": 1}, "progress=1 is a int"),
        ({"strict": "no"}, "strict='no' is a str"),
        ({"state": {"v": 1.0}}, "state= names 'v'"),
    ],
)
def test_what_is_wrong_with_a_call_is_told_at_its_line(
    program: tp.Program, arguments: dict[str, Any], message: str
) -> None:
    run = tp.compile(program)
    with pytest.raises(tp.InputError, match=message) as caught:
        run(x=np.ones(3), **arguments)
    assert caught.value.location is not None
    assert caught.value.location.text == "run(x=np.ones(3), **arguments)"


def test_names_of_state_that_are_no_parameters_are_listed_or_left_out(program: tp.Program) -> None:
    run = tp.compile(program)
    saved = {"w": np.float32(5), "m": np.float32(1), "v": np.float32(1)}
    for strict in (None, True):
        with pytest.raises(tp.InputError, match="state= names 'm', 'v', which are no parameters") as caught:
            run(x=np.ones(2), state=saved, strict=strict)
        assert "parameters: 'w'; strict=False leaves out what is none" in str(caught.value)
    np.testing.assert_array_equal(run(x=np.ones(2), state=saved, strict=False)["w"], [5, 6])
    assert [float(step["w"]) for step in run.stream("t", x=np.ones(2), state=saved, strict=False)] == [5, 6]
    with pytest.raises(tp.InputError, match="names no parameter of the program"):
        run(x=np.ones(2), state={"m": 1.0, "v": 1.0}, strict=False)


def test_the_state_of_another_program_may_hold_more_unless_it_is_strict(program: tp.Program) -> None:
    with tp.Program() as other:
        t = tp.dim("t", 2)
        for name in ("w", "m"):
            p = tp.parameter(name, (), 3.0, (t,))
            p[t + 1] = p + 1
    state = tp.compile(other)().state
    run = tp.compile(program)
    np.testing.assert_array_equal(run(x=np.ones(2), state=state)["w"], [4, 5])
    with pytest.raises(tp.InputError, match="state= names 'm', which is no parameter"):
        run(x=np.ones(2), state=state, strict=True)
    with pytest.raises(tp.InputError, match="given the outputs of a run"):
        run(x=np.ones(2), state=tp.compile(other)())


def test_an_input_is_passed_by_the_name_that_was_typed() -> None:
    """Python makes the sign for micro (µ) the letter (μ) in a keyword, and leaves it in a string."""
    with tp.Program() as program:
        tp.output("y", tp.input("µ", shape=()) + tp.input("plain", shape=()))
    run = tp.compile(program)
    given = {"µ": 1.0, "plain": 2.0}
    assert run(µ=1.0, plain=2.0)["y"] == run(**given)["y"] == 3.0
    with pytest.raises(tp.InputError, match="no input 'missing'"):
        run(µ=1.0, plain=2.0, missing=3.0)
