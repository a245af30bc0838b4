"""`tp.Options` and `tp.compile` refuse what is no option, at the line that said it."""

from typing import Any

import numpy as np
import pytest

import tempo as tp


def indexed() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x, index = tp.input("x", (3,)), tp.input("index", (), (t,), dtype=tp.int32)
        tp.output("y", x.spatial[index])
    return program


def line_of(error: tp.TempoError) -> str:
    """The user's source that the error points at."""
    assert error.location is not None
    assert error.location.path == __file__
    return error.location.text


@pytest.mark.parametrize("name", ["checks", "lift", "debug", "poison", "check_finite"])
@pytest.mark.parametrize("value", ["yes", "False", 1, 0, [], np.ones(2), 0.5])
def test_what_is_yes_or_no_is_a_bool(name: str, value: Any) -> None:
    with pytest.raises(tp.InputError, match=f"^{name}=.* is a {type(value).__name__}") as caught:
        tp.Options(**{name: value})
    assert line_of(caught.value) == "tp.Options(**{name: value})"


def test_bools_of_numpy_and_lists_of_names_are_taken() -> None:
    options = tp.Options(checks=np.bool_(False), disable=["lift"], tile=np.int64(8))  # type: ignore[arg-type]
    assert options == tp.Options(checks=False, disable=("lift",), tile=8)
    assert options.checks is False


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"lift": None}, "lift=None is a NoneType"),
        ({"disable": "lift"}, "disable='lift' is no tuple of names"),
        ({"disable": ("lift", 3)}, "no tuple of names"),
        ({"tile": 0}, "tile=0 is no positive integer"),
        ({"tile": True}, "tile=True is no positive integer"),
        ({"tile": "8"}, "tile='8' is no positive integer"),
        ({"extent": "hul"}, "extent='hul' names no way"),
        ({"extent": np.ones(2)}, "names no way to run a read"),
        ({"schedule_seconds": True}, "schedule_seconds=True is no positive number"),
        ({"schedule_seconds": "1"}, "schedule_seconds='1' is no positive number"),
        ({"schedule_seconds": float("nan")}, "schedule_seconds=nan is no positive number"),
        ({"mapping": "fulll"}, "mapping='fulll' names no way"),
        ({"mapping": True}, "mapping=True names no way"),
        ({"mapping": 0}, "mapping=0 names no way"),
        ({"mapping": np.ones(2)}, "names no way to run a dim"),
        ({"mapping": {"t": None}}, "names no way to run a dim"),
        ({"mapping": {0: "full"}}, "mapping= names 0, which is no string"),
    ],
)
def test_every_option_has_its_type(option: dict[str, Any], message: str) -> None:
    with pytest.raises(tp.InputError, match=message) as caught:
        tp.Options(**option)
    assert line_of(caught.value) == "tp.Options(**option)"


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(tp.InputError, match="there is no option 'maping'") as caught:
        tp.Options(maping="full")  # type: ignore[call-arg]
    assert "did you mean 'mapping'?" in str(caught.value)
    assert line_of(caught.value).startswith("tp.Options(maping=")


@pytest.mark.parametrize("backend", ["numpy", "reference"])
@pytest.mark.parametrize(
    ("options", "message", "meant"),
    [
        (tp.Options(mapping={"tt": "full"}), "mapping= names 'tt', which is no dim of the program", "'t'"),
        (tp.Options(disable=("lfit",)), "no pass is named 'lfit'", "'lift'"),
    ],
)
def test_compile_refuses_names_that_are_not_there(backend: str, options: tp.Options, message: str, meant: str) -> None:
    program = indexed()
    with pytest.raises(tp.InputError, match=message) as caught:
        tp.compile(program, backend, options=options)
    assert f"did you mean {meant}?" in str(caught.value)
    assert line_of(caught.value) == "tp.compile(program, backend, options=options)"


def test_the_environment_is_checked_when_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_STOP_AFTER", "lfit")
    with pytest.raises(tp.InputError, match="no pass is named 'lfit'"):
        tp.compile(indexed())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"backend": "numpyy"}, tp.UnknownBackendError),
        ({"scheduler": "greeedy"}, tp.UnknownSchedulerError),
        ({"device": "abacus"}, tp.UnsupportedError),
        ({"device": 0}, tp.UnsupportedError),
        ({"options": {"checks": True}}, tp.InputError),
        ({"sizes": {"tt": 3}}, tp.InputError),
        ({"sizes": {"t": "3"}}, tp.SizeError),
        ({"sizes": {"t": 0}}, tp.SizeError),
        ({"sizes": 3}, tp.InputError),
    ],
)
def test_errors_of_compile_point_at_the_call(arguments: dict[str, Any], error: type[tp.TempoError]) -> None:
    program = indexed()
    with pytest.raises(error) as caught:
        tp.compile(program, **arguments)
    assert line_of(caught.value) == "tp.compile(program, **arguments)"
