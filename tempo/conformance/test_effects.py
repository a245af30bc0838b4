"""Family 8, effects: host calls happen exactly as often and in the order stated, with and without lifting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers


class Record:
    """What a function of the host was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def note(self, name: str) -> Any:
        def function(*arrays: Array) -> Array:
            self.calls.append((name, *(array.tolist() for array in arrays)))
            return np.array(sum(array.sum() for array in arrays), np.float32)

        return function

    def taken(self) -> list[tuple[Any, ...]]:
        taken, self.calls[:] = list(self.calls), []
        return taken


def index(*expressions: Any) -> list[tp.RecurrentTensor]:
    return [tp.as_tensor(each, dtype=tp.int32) for each in expressions]


def test_calls_are_ordered_and_made_without_holes(target: Target) -> None:
    """Lexicographically along the ordered dims; the smallest prefix that contains what is needed."""
    record = Record()
    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 3)
        (y,) = tp.host_call(record.note("y"), *index(i, t), out=[((), "float32")], ordered_by=(i, t))
        (z,) = tp.host_call(record.note("z"), *index(t), out=[((), "float32")], ordered_by=(t,))
        tp.output("y", y)
        tp.output("z", tp.cases((t == 1, z), -1.0))
    run = target.compile(program)
    assert record.taken() == []  # compiling calls nothing
    out = target.arrays(run())
    calls = record.taken()
    assert [call for call in calls if call[0] == "y"] == [("y", i_, t_) for i_ in range(2) for t_ in range(3)]
    assert [call for call in calls if call[0] == "z"] == [("z", 0), ("z", 1)]
    np.testing.assert_array_equal(out["y"], [[0, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(out["z"], [-1, 1, -1])
    run()
    assert len(record.taken()) == len(calls)  # each run makes its own


def test_a_call_that_nothing_needs_is_not_made(target: Target) -> None:
    record = Record()
    with tp.Program() as program:
        t = tp.dim("t", 4)
        tp.host_call(record.note("unused"), *index(t), out=[((), "float32")], ordered_by=(t,))
        (free,) = tp.host_call(record.note("free"), *index(t), out=[((), "float32")])
        tp.output("even", tp.cases((t % 2 == 0, free), 0.0))
    target.compile(program)()
    assert sorted(record.taken()) == [("free", 0), ("free", 2)]


def test_batched_dims_come_in_front_of_what_has_them(target: Target) -> None:
    seen: list[tuple[Any, ...]] = []

    def step(x: Array, scale: Array, state: Array) -> tuple[Array, Array]:
        seen.append((x.shape, scale.shape, state.shape, type(x), x.dtype.name))
        return state + x * scale, x.sum(1) > 0

    x_data = numbers((3, 4, 2))
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (2,), (b, t))
        h = tp.recurrent("h", (2,), (b, t))
        h[b, 0] = tp.zeros((2,))
        moved, positive = tp.host_call(
            step,
            x,
            tp.as_tensor(t + 1, dtype=tp.float32),
            h,
            out=[((2,), tp.float32), ((), tp.bool)],
            ordered_by=(t,),
            batched=(b,),
        )
        h[b, t + 1] = moved
        tp.output("h", h)
        tp.output("moved", moved)
        tp.output("positive", positive)
    expected = (x_data * np.arange(1, 5)[:, None]).cumsum(1)
    before = np.concatenate([np.zeros((3, 1, 2)), expected[:, :-1]], axis=1)
    target.agrees(program, {"moved": expected, "h": before, "positive": x_data.sum(2) > 0}, x=x_data)
    assert seen == [((3, 2), (), (3, 2), np.ndarray, "float32")] * 8  # four of the reference, four of the backend


def test_calls_of_one_resource_are_ordered_among_each_other(target: Target) -> None:
    """`reset(i)`, then `step(i, 0)` to `step(i, T - 1)`, then `reset(i + 1)`; `report` after the steps of its i."""
    record = Record()
    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 3)
        env = "environment"
        (first,) = tp.host_call(record.note("reset"), *index(i), out=[((), "float32")], ordered_by=(i,), resource=env)
        (s,) = tp.host_call(record.note("step"), *index(i, t), out=[((), "float32")], ordered_by=(i, t), resource=env)
        (end,) = tp.host_call(record.note("report"), *index(i), out=[((), "float32")], ordered_by=(i,), resource=env)
        tp.output("all", first + s)
        tp.output("end", end)
    target.compile(program)()
    per_episode = [[("reset", i_), *(("step", i_, t_) for t_ in range(3)), ("report", i_)] for i_ in range(2)]
    assert record.taken() == per_episode[0] + per_episode[1]


def test_an_environment_keeps_its_state(target: Target) -> None:
    """The observation depends on all earlier actions through the function's own memory."""
    memory = {"total": 0.0}

    def reset() -> Array:
        memory["total"] = 0.0
        return np.zeros((), np.float32)

    def step(action: Array) -> tuple[Array, Array]:
        memory["total"] += float(action)
        return np.array(memory["total"], np.float32), np.array(-abs(memory["total"]), np.float32)

    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 5)
        (start,) = tp.host_call(reset, out=[((), "float32")], ordered_by=(i,), resource="env")
        o = tp.recurrent("o", (), (i, t))
        action = 1.0 - 0.5 * o + i
        after, reward = tp.host_call(
            step, action, out=[((), "float32"), ((), "float32")], ordered_by=(i, t), resource="env"
        )
        o[i, 0] = start
        o[i, t + 1] = after
        tp.output("o", o)
        tp.output("total", reward[i, 0 : t.size].sum(axis=0))
    wanted = np.zeros((2, 6))
    for i_ in range(2):
        for t_ in range(5):
            wanted[i_, t_ + 1] = wanted[i_, t_] + 1 - 0.5 * wanted[i_, t_] + i_
    target.agrees(program, {"o": wanted[:, :5], "total": -wanted[:, 1:].sum(1)})


def test_sinks_are_called_at_every_point(target: Target) -> None:
    record = Record()
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.sink(record.note("logged"), x * 2, ordered_by=(t,))
        tp.sink(record.note("once"), x[0])
        tp.sink(record.note("rows"), x[0 : t + 1], ordered_by=(t,))
        tp.output("y", x + 1)
    target.compile(program)(x=np.array([1, 2, 3], np.float32))
    calls = record.taken()
    assert [call for call in calls if call[0] == "logged"] == [("logged", 2), ("logged", 4), ("logged", 6)]
    assert [call for call in calls if call[0] == "once"] == [("once", 1)]
    assert [call for call in calls if call[0] == "rows"] == [("rows", [1]), ("rows", [1, 2]), ("rows", [1, 2, 3])]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_gets_windows_of_what_it_feeds(target: Target, dtype: str) -> None:
    """A recurrence through the host reads its own last points, as a window that moves, and ahead in an input."""

    def halved(window: Array, ahead: Array) -> Array:
        return np.asarray(window.sum(0) / 2 + ahead.sum(0), window.dtype)

    x_data = numbers((6, 2), dtype)
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,), dtype)
        h = tp.recurrent("h", (2,), (t,), dtype)
        last, ahead = h[tp.max(t - 1, 0) : t + 1], x[t : tp.min(t + 2, t.size)]
        (moved,) = tp.host_call(halved, last, ahead, out=[((2,), dtype)], ordered_by=(t,))
        h[0] = x
        h[t + 1] = moved
        tp.output("last", h[-1])
    h_ = [x_data[0]]
    for at in range(5):
        h_.append(sum(h_[max(at - 1, 0) : at + 1]) / 2 + x_data[at : at + 2].sum(0))
    target.agrees(program, {"last": h_[-1]}, x=x_data)


@pytest.mark.one_process
def test_an_exception_stops_the_run_and_names_the_point(target: Target) -> None:
    record, broken = Record(), [True]

    def fails(at: Array) -> Array:
        record.calls.append(("at", int(at)))
        if broken[0] and at == 2:
            raise KeyError("no such row")
        return np.array(at, np.float32)

    with tp.Program() as program:
        t = tp.dim("t", 5)
        (y,) = tp.host_call(fails, *index(t), out=[((), "float32")], ordered_by=(t,))
        tp.output("y", y)
    run = target.compile(program)
    with pytest.raises(tp.HostCallError, match=r"fails at .*2.* failed: KeyError") as caught:
        run()
    assert isinstance(caught.value.__cause__, KeyError)
    assert record.taken() == [("at", 0), ("at", 1), ("at", 2)]
    broken[0] = False
    np.testing.assert_array_equal(target.to_numpy(run()["y"]), range(5))  # it stays usable


@pytest.mark.one_process
def test_an_exception_in_a_sink_stops_the_run(target: Target) -> None:
    """What was written before stays written; what comes after is not."""
    written: list[float] = []
    full = [True]

    def write(x: Array) -> None:
        if full[0] and len(written) == 2:
            raise OSError("the disk is full")
        written.append(float(x))

    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.sink(write, x, ordered_by=(t,))
        tp.output("y", x + 1)
    run, x_data = target.compile(program), numbers((4,))
    with pytest.raises(tp.HostCallError, match=r"write at .*2.* failed: OSError: the disk is full"):
        run(x=x_data)
    assert written == x_data[:2].tolist()
    full[0] = False
    written.clear()
    run(x=x_data)
    assert written == x_data.tolist()


@pytest.mark.parametrize("mapping", ["full", "sequential", None])
def test_lifting_changes_neither_number_nor_order_of_calls(target: Target, mapping: str | None) -> None:
    """What feeds the calls and what follows from them may be computed for all points at once; the calls may not."""
    record = Record()
    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 3)
        x = tp.input("x", (), (i, t))
        (y,) = tp.host_call(record.note("y"), x * x + 1, out=[((), "float32")], ordered_by=(i, t), resource="log")
        tp.sink(record.note("seen"), tp.exp(y - y), ordered_by=(i, t), resource="log")
        tp.output("y", (y * 2)[i, 0 : t.size].sum(axis=0))
    x_data = numbers((2, 3))
    out = target.arrays(target.compile(program, mapping=mapping)(x=x_data))
    squares = x_data * x_data + 1
    assert record.taken() == [call for value in squares.reshape(-1) for call in (("y", value), ("seen", 1.0))]
    np.testing.assert_array_equal(out["y"], 2 * squares.sum(1))


@pytest.mark.one_configuration
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returned None, declared: 1"),
        ((np.float32(1), np.float32(2)), "returned 2 results, declared: 1"),
        (np.zeros(3, np.float32), r"has shape \(3,\), declared is \(2,\)"),
        (np.array(["a", "b"]), "has dtype"),
    ],
    ids=["nothing", "too-many", "shape", "dtype"],
)
@pytest.mark.one_process
def test_results_other_than_declared_are_refused(target: Target, returned: Any, said: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 2)
        (y,) = tp.host_call(lambda: returned, out=[((2,), "float32")], ordered_by=(t,))
        tp.output("y", y)
    with pytest.raises(tp.HostCallError, match=said):
        target.compile(program)()


def test_a_function_may_keep_and_change_its_arrays(target: Target) -> None:
    kept: list[Array] = []
    mine = np.zeros(2, np.float32)

    def keeps(x: Array) -> Array:
        kept.append(x)
        x[:] = -1
        mine[:] += 1
        return mine

    with tp.Program() as program:
        t = tp.dim("t", 3)
        x = tp.input("x", (2,), (t,))
        (y,) = tp.host_call(keeps, x, out=[((2,), "float32")], ordered_by=(t,))
        tp.output("x", x + 0)
        tp.output("y", y)
    x_data = numbers((3, 2))
    out = target.arrays(target.compile(program)(x=x_data))
    np.testing.assert_array_equal(out["x"], x_data)
    np.testing.assert_array_equal(out["y"], [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal(x_data, numbers((3, 2)))  # the caller's array is not touched
