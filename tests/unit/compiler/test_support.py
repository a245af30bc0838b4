"""What a backend's descriptor excludes is refused by `compile`, at the user's line, with who could run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.plugins import BackendPlugin, Capabilities
from tempo.plugins.manager import default_manager
from tempo.sdg.call import Call

UNSUPPORTED = {"sort": "it has no kernel", "exp:float64": "it is too slow", "checks": "it cannot raise"}
MODEST = BackendPlugin(
    "modest",
    NumpyBackend,
    capabilities=Capabilities(unsupported=UNSUPPORTED),
    dtypes=("bool", "int32", "uint32", "float32", "float64"),
)


class Modest(NumpyBackend):
    info = MODEST


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    tp.register_backend(replace(MODEST, factory=Modest))
    yield
    default_manager().unregister("backend", "modest")


def refusal(make: object, **arguments: object) -> tp.UnsupportedError:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        tp.output("y", make(x))  # type: ignore[operator]
    with pytest.raises(tp.UnsupportedError) as caught:
        tp.compile(program, "modest", **arguments)  # type: ignore[arg-type]
    return caught.value


def test_an_operator_is_refused_with_its_reason_and_who_runs_it() -> None:
    error = refusal(tp.sort)
    assert error.message == "the backend 'modest' cannot run 'sort' for float32: it has no kernel"
    assert error.feature == "sort"
    assert error.hint is not None
    assert error.hint.startswith("backends that can: ")
    able = set(error.hint.removeprefix("backends that can: ").split(", "))
    assert {"numpy", "reference"} <= able
    assert "modest" not in able
    assert error.location is not None
    assert Path(error.location.path) == Path(__file__)


def test_an_operator_is_refused_for_one_dtype_only() -> None:
    error = refusal(lambda x: tp.exp(x.astype(tp.float64)))
    assert error.message == "the backend 'modest' cannot run 'exp' for float64: it is too slow"
    assert error.feature == "exp:float64"
    with tp.Program() as program:
        tp.output("y", tp.exp(tp.input("x", (3,))))
    found = tp.compile(program, "modest")(x=np.zeros(3))["y"]
    np.testing.assert_array_equal(found, [1, 1, 1])


def test_a_dtype_is_refused_where_it_is_read_too() -> None:
    error = refusal(lambda x: x.astype("bfloat16"))
    assert error.message == "the backend 'modest' cannot run 'cast' for bfloat16: it has no bfloat16"
    assert error.feature == "bfloat16"
    with tp.Program() as program:
        tp.output("y", tp.input("x", (3,), dtype=tp.int8).astype("float32"))
    with pytest.raises(tp.UnsupportedError, match="it has no int8"):
        tp.compile(program, "modest")


def test_what_no_output_needs_is_not_refused() -> None:
    with tp.Program() as program:
        x = tp.input("x", (3,))
        tp.sort(x)
        tp.output("y", x * 2)
    np.testing.assert_array_equal(tp.compile(program, "modest")(x=np.arange(3.0))["y"], [0, 2, 4])


def test_passes_change_nothing_of_what_is_refused() -> None:
    messages = [
        refusal(tp.sort, options=tp.Options(disable=disable)).message for disable in ((), ("simplify", "lift", "dce"))
    ]
    assert messages[0] == messages[1]


def test_checks_are_refused_when_they_are_asked_for() -> None:
    with tp.Program() as program:
        x, index = tp.input("x", (3,)), tp.input("index", (2,), dtype=tp.int32)
        tp.output("y", tp.take(x, index, axis=0))
    with pytest.raises(tp.UnsupportedError, match="the backend 'modest' has no checked mode: it cannot raise"):
        tp.compile(program, "modest", options=tp.Options(checks=True))
    found = tp.compile(program, "modest")(x=np.arange(3.0), index=np.array([0, 2]))["y"]
    np.testing.assert_array_equal(found, [0, 2])


def test_draws_need_the_words_that_they_are_made_of() -> None:
    with tp.Program() as program:
        tp.output("y", tp.random.uniform((3,)))
    tp.compile(program, "modest")()
    with tp.Program() as program:
        tp.output("y", tp.random.uniform((3,), dtype="float64"))
    with pytest.raises(tp.UnsupportedError, match="uint64"):
        tp.compile(program, "modest")


class Lacking(NumpyBackend):
    """Refuses in its table, too, what it declares not to have."""

    def __init__(self, *operators: str) -> None:
        super().__init__()
        self.info = replace(MODEST, capabilities=Capabilities(unsupported=dict.fromkeys(operators, "it has none")))

    def operator(self, call: Call) -> Callable[..., Any]:
        if call.op in self.info.capabilities.unsupported:
            raise tp.UnsupportedError(f"no {call.op}")
        return super().operator(call)


@pytest.mark.parametrize("start", [0, "half"])
@pytest.mark.parametrize("extent", [None, "blocks", "specialise"])
def test_what_only_an_optimization_needs_is_left_out(start: int | str, extent: str | None) -> None:
    """A prefix is a running `maximum`, and blocks are put together by one; the program has `reduce_max` alone."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, y = tp.input("x", (3,), (t,)), tp.recurrent("y", (3,), (t,))
        y[0] = x
        y[t] = tp.sin(y[(t - 1) // 2 if start else 0 : t].max(axis=0)) + x
        tp.output("y", y)
    data = np.linspace(-1, 1, 60).reshape(20, 3).astype(np.float32)
    expected = tp.compile(program, "reference")(x=data)["y"]
    run = tp.compile(program, Lacking("maximum"), options=tp.Options(extent=extent, tile=4))
    np.testing.assert_allclose(run(x=data)["y"], expected, rtol=1e-5)
    told = any(each in run.explain("all") for each in ("has no maximum of float32", "cannot run 'maximum' for float32"))
    assert told == (start == 0 or extent == "blocks")
