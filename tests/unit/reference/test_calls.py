"""Host calls of the reference evaluator: what fn gets, in which order, and what it may return."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tests.unit.reference.programs import run


def test_an_environment_is_reset_and_stepped_in_order() -> None:
    log: list[Any] = []

    def reset() -> np.ndarray:
        log.append("reset")
        return np.float32(len(log))

    def step(action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log.append(float(action))
        return np.float32(len(log)), np.float32(1)

    with tp.Program() as program:
        i, t = tp.dims("i t")
        (first,) = tp.host_call(reset, out=[((), tp.float32)], ordered_by=(i,), resource="env")
        state = tp.recurrent("state", shape=(), dims=(i, t))
        (after, reward) = tp.host_call(
            step, state * 10, out=[((), tp.float32), ((), tp.float32)], ordered_by=(i, t), resource="env"
        )
        state[i, 0] = first
        state[i, t + 1] = after
        tp.output("state", state)
        tp.output("reward", reward)
    outputs = run(program, {"i": 2, "t": 3}).outputs
    assert log == ["reset", 10.0, 20.0, 30.0, "reset", 50.0, 60.0, 70.0]
    np.testing.assert_array_equal(outputs["state"], [[1, 2, 3], [5, 6, 7]])
    np.testing.assert_array_equal(outputs["reward"], np.ones((2, 3)))


def test_calls_have_no_holes_and_end_with_the_last_that_is_needed() -> None:
    called: list[tuple[int, int]] = []

    def fn(i: np.ndarray, t: np.ndarray) -> int:
        called.append((int(i), int(t)))
        return 0

    with tp.Program() as program:
        i, t = tp.dims("i t")
        (y,) = tp.host_call(fn, tp.as_tensor(i), tp.as_tensor(t), out=[((), tp.int32)], ordered_by=(i, t))
        tp.output("y", y[2, 1])
    run(program, {"i": 5, "t": 3})
    assert called == [*itertools.product(range(2), range(3)), (2, 0), (2, 1)]


def test_a_dim_that_is_not_ordered_has_a_run_of_its_own_per_point() -> None:
    called: list[tuple[int, int]] = []

    def fn(b: np.ndarray, t: np.ndarray) -> int:
        called.append((int(b), int(t)))
        return 0

    with tp.Program() as program:
        b, t = tp.dims("b t")
        (y,) = tp.host_call(fn, tp.as_tensor(b), tp.as_tensor(t), out=[((), tp.int32)], ordered_by=(t,))
        tp.output("y", y[b, b])
    run(program, {"b": 3, "t": 4})
    assert called == [(b, t) for b in range(3) for t in range(b + 1)]


def test_batched_dims_come_in_front() -> None:
    seen: list[tuple[int, ...]] = []

    def fn(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        seen.append((x.shape, w.shape))
        return x.sum(axis=1) + w

    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(2,), dims=(b, t))
        w = tp.input("w", shape=(), dims=())
        (y,) = tp.host_call(fn, x, w, out=[((), tp.float32)], ordered_by=(t,), batched=(b,))
        tp.output("y", y)
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    outputs = run(program, {"b": 3, "t": 2}, x=x, w=1).outputs
    np.testing.assert_array_equal(outputs["y"], x.sum(axis=2) + 1)
    assert seen == [((3, 2), ())] * 2


def test_sinks_see_every_point_in_order() -> None:
    log: list[tuple[int, int, float]] = []
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x = tp.input("x", shape=(), dims=(i, t))
        y = tp.recurrent("y", shape=(), dims=(i, t))
        y[i, -1] = x
        y[i, t - 1] = y + x[i, t - 1]
        tp.sink(lambda *args: log.append(tuple(map(float, args))), i, t, y, ordered_by=(i, t))
    run(program, {"i": 2, "t": 2}, x=[[1, 2], [3, 4]])
    assert log == [(0, 0, 3), (0, 1, 2), (1, 0, 7), (1, 1, 4)]


def test_a_demanded_call_waits_for_calls_of_the_same_resource() -> None:
    log: list[str] = []

    def insert(x: np.ndarray) -> None:
        log.append(f"insert {float(x)}")

    def sample() -> float:
        log.append("sample")
        return float(len(log))

    with tp.Program() as program:
        i = tp.dim("i")
        tp.sink(insert, tp.as_tensor(i, dtype=tp.float32), ordered_by=(i,), resource="buffer")
        (batch,) = tp.host_call(sample, out=[((), tp.float32)], ordered_by=(i,), resource="buffer")
        tp.output("batch", batch[i.size - 1 - i])
    outputs = run(program, {"i": 2}).outputs
    assert log == ["insert 0.0", "sample", "insert 1.0", "sample"]
    np.testing.assert_array_equal(outputs["batch"], [4, 2])


def test_order_and_data_that_contradict_one_another_are_a_cycle() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.recurrent("x", shape=(), dims=(t,))
        (y,) = tp.host_call(lambda x: x, x, out=[((), tp.float32)], ordered_by=(t,))
        x[-1] = 0.0
        x[True] = y[t + 1]
        tp.output("x", x)
    with pytest.raises(tp.CycleError, match="needed to compute itself"):
        run(program, {"t": 3})


def test_fn_gets_copies_that_it_may_keep_and_change() -> None:
    kept: list[np.ndarray] = []

    def fn(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        x += 1
        return x

    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        (y,) = tp.host_call(fn, x, out=[((), tp.float32)], ordered_by=(t,))
        tp.output("x", x)
        tp.output("y", y)
    outputs = run(program, {"t": 2}, x=[1, 2]).outputs
    kept[0][...] = 100
    np.testing.assert_array_equal(outputs["x"], [1, 2])
    np.testing.assert_array_equal(outputs["y"], [2, 3])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(3, np.float32), r"shape \(3,\), declared is \(2,\)"),
        (np.zeros(2, np.complex64), "dtype complex64, declared is float32"),
        (["a", "b"], "dtype <U1, declared is float32"),
        ((np.zeros(2), np.zeros(2)), "returned 2 results, declared: 1"),
        (None, "returned None, declared: 1"),
    ],
)
def test_results_are_held_to_what_is_declared(returned: object, message: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        (y,) = tp.host_call(lambda: returned, out=[((2,), tp.float32)], ordered_by=(t,))
        tp.output("y", y)
    with pytest.raises(tp.HostCallError, match=rf"at t = 0.*{message}"):
        run(program, {"t": 2})


def test_results_of_the_same_kind_are_cast() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        (y,) = tp.host_call(lambda: np.float64(0.1), out=[((), tp.float32)], ordered_by=(t,))
        tp.output("y", y)
    assert run(program, {"t": 1}).outputs["y"].dtype == np.float32


@pytest.mark.parametrize(("returned", "dtype"), [(300, "int8"), (-1, "uint8"), (np.int64(2**40), "int32")])
def test_integers_that_do_not_fit_are_refused(returned: object, dtype: str) -> None:
    with tp.Program() as program:
        (y,) = tp.host_call(lambda: returned, out=[((), dtype)])
        tp.output("y", y)
    with pytest.raises(tp.HostCallError, match=f"has values that {dtype} cannot hold"):
        run(program)


def test_a_python_integer_may_be_unsigned() -> None:
    with tp.Program() as program:
        (y,) = tp.host_call(lambda: 200, out=[((), "uint8")])
        tp.output("y", y)
    assert int(run(program).outputs["y"]) == 200


def test_an_exception_in_fn_is_chained_with_the_point() -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        if x > 1:
            raise KeyError("lost")
        return x

    with tp.Program() as program:
        t = tp.dim("t")
        (y,) = tp.host_call(fn, tp.as_tensor(t), out=[((), tp.int32)], ordered_by=(t,))
        tp.output("y", y)
    with pytest.raises(tp.HostCallError, match=r"fn at t = 2 failed: KeyError: 'lost'") as caught:
        run(program, {"t": 4})
    assert isinstance(caught.value.__cause__, KeyError)
    assert "ordered_by=(t,))" in str(caught.value)
