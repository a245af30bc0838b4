"""Statements whose demand is no box run only where they are demanded, where running elsewhere could be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp

Made = Callable[[list[Any]], tp.Program]


def both(make: Made, **arguments: Any) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Outputs and the log of host calls, which NumPy and the reference must agree in."""
    found = []
    for backend in ("reference", "numpy"):
        log: list[Any] = []
        run = tp.compile(make(log), backend=backend, options=tp.Options(poison=True))
        found.append((dict(run(**arguments)), log))
    for name, array in found[0][0].items():
        np.testing.assert_array_equal(found[1][0][name], array)
    assert found[0][1] == found[1][1]
    return found[1]


def recorder(log: list[Any]) -> Callable[[np.ndarray], np.ndarray]:
    def record(value: np.ndarray) -> np.ndarray:
        log.append(value.tolist())
        return value

    return record


def test_a_host_call_runs_to_the_last_point_needed_and_no_further() -> None:
    def make(log: list[Any]) -> tp.Program:
        with tp.Program() as program:
            i, t = tp.dims("i t")
            (y,) = tp.host_call(recorder(log), 10 * i + t, out=[((), tp.int32)], ordered_by=(i, t))
            tp.output("y", y[1, 2])
        return program

    _, log = both(make, sizes={"i": 3, "t": 4})
    assert log == [0, 1, 2, 3, 10, 11, 12]


def test_an_index_that_nobody_reads_may_be_out_of_range() -> None:
    def make(log: list[Any]) -> tp.Program:
        del log
        with tp.Program() as program:
            t, s = tp.dims("t s")
            x = tp.input("x", shape=(4,), dims=(t,))
            index = tp.input("index", shape=(), dims=(t,), dtype=tp.int32)
            tp.output("y", x.spatial[index][2 * s])
        return program

    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    outputs, _ = both(make, sizes={"s": 3}, x=x, index=np.array([0, 9, 2, -7, 1, 4]))
    assert outputs["y"].tolist() == [0, 10, 17]
    with pytest.raises(tp.IndexOutOfRangeError):
        both(make, sizes={"s": 3}, x=x, index=np.array([0, 9, 4, -7, 1, 4]))


def test_a_read_that_is_only_in_range_where_it_is_demanded() -> None:
    def make(log: list[Any]) -> tp.Program:
        del log
        with tp.Program() as program:
            t, s = tp.dims("t s")
            x = tp.input("x", shape=(), dims=(t,))
            following = x[t + 1] * 2  # out of range at the last t, which no even point is when t.size is even
            tp.output("y", tp.tanh(following)[2 * s])
        return program

    outputs, _ = both(make, sizes={"s": 3}, x=np.arange(6, dtype=np.float32))
    np.testing.assert_allclose(outputs["y"], np.tanh([2.0, 6.0, 10.0]), rtol=1e-6)
    with pytest.raises(tp.DomainError, match="x"):
        both(make, sizes={"s": 3}, x=np.arange(5, dtype=np.float32))


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_a_real_cycle_is_the_users_and_a_skew_is_the_schedulers(backend: str) -> None:
    def program(*, cyclic: bool) -> tp.Program:
        with tp.Program() as made:
            i, j = tp.dims("i j")
            a = tp.recurrent("a", shape=(), dims=(i, j))
            a[(i == 0) | (j <= 1) | (i == i.size - 1) | (j == j.size - 1)] = 1.0
            below = a[tp.min(i + 1, i.size - 1), tp.max(j - (0 if cyclic else 2), 0)]
            a[True] = a[tp.max(i - 1, 0), tp.min(j + (0 if cyclic else 1), j.size - 1)] + below
            tp.output("a", a)
        return made

    sizes = {"i": 4, "j": 6}
    with pytest.raises(tp.CycleError, match="a value is needed to compute itself"):
        tp.compile(program(cyclic=True), backend=backend, sizes=sizes)()
    if backend == "reference":
        assert tp.compile(program(cyclic=False), backend=backend, sizes=sizes)()["a"].shape == (4, 6)
        return
    with pytest.raises(tp.UnsupportedError, match="polyhedral"):
        tp.compile(program(cyclic=False), backend=backend, sizes=sizes)
