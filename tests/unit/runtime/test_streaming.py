"""`run.stream`: the outermost ordered dim, point by point or in chunks."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tests.unit.runtime.programs import counter, running_sum

X = np.arange(15, dtype=np.float32).reshape(5, 3)


def test_a_stream_yields_each_point_once_it_is_made() -> None:
    stream = tp.compile(running_sum()).stream("t", x=X)
    steps = list(stream)
    assert [(step.start, step.stop) for step in steps] == [(t, t + 1) for t in range(5)]
    np.testing.assert_array_equal(np.stack([step["s"] for step in steps]), X.cumsum(0))
    assert stream.result is not None
    np.testing.assert_array_equal(stream.result["s"], X.cumsum(0))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("chunk", [1, 2])
def test_steps_begin_where_they_are_asked_to(chunk: int, keep: bool) -> None:
    stream = tp.compile(running_sum()).stream("t", chunk=chunk, keep=keep, from_point=2, x=X)
    steps = list(stream)
    assert [(step.start, step.stop) for step in steps] == [(t, min(t + chunk, 5)) for t in range(2, 5, chunk)]
    np.testing.assert_array_equal(np.concatenate([np.atleast_2d(step["s"]) for step in steps]), X.cumsum(0)[2:])
    assert stream.result is not None
    assert ("s" in stream.result) is keep


def test_a_stream_that_is_left_has_what_it_has_made() -> None:
    run = tp.compile(running_sum())
    stream = run.stream("t", from_point=1, x=X)
    next(stream)
    made = stream.so_far()
    assert (made.start, made.stop) == (0, 2)
    np.testing.assert_array_equal(made["s"], X.cumsum(0)[:2])
    next(stream)
    np.testing.assert_array_equal(made["s"], X.cumsum(0)[:2])
    np.testing.assert_array_equal(stream.so_far()["s"], X.cumsum(0)[:3])
    stream = run.stream("t", keep=False, x=X)
    next(stream)
    with pytest.raises(tp.UnsupportedError, match="keeps no points"):
        stream.so_far()


@pytest.mark.parametrize("point", [5, -1, True, 1.0])
def test_steps_begin_at_a_point_of_the_dim(point: object) -> None:
    with pytest.raises((tp.SizeError, tp.InputError), match="from_point"):
        tp.compile(running_sum()).stream("t", from_point=point, x=X)  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [2, 3, 5, 9])
def test_chunks_cover_the_dim(chunk: int) -> None:
    steps = list(tp.compile(running_sum()).stream("t", chunk=chunk, x=X))
    np.testing.assert_array_equal(np.concatenate([step["s"] for step in steps]), X.cumsum(0))
    assert all(len(step["s"]) == step.stop - step.start for step in steps)


def test_a_stream_may_be_left_and_the_executable_used_again() -> None:
    run = tp.compile(running_sum())
    for step in run.stream("t", x=X):
        if step.start == 2:
            break
    np.testing.assert_array_equal(run(x=X)["s"], X.cumsum(0))


def test_what_a_step_holds_is_not_overwritten_by_the_next() -> None:
    stream = tp.compile(counter(), sizes={"i": 3}).stream("i")
    first = next(stream)["w"]
    next(stream)
    np.testing.assert_array_equal(first, [1, 2])


def test_a_dim_that_could_be_lifted_is_looped_when_it_is_streamed() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        tp.output("y", x * 2)
    run = tp.compile(program)
    assert [step["y"].tolist() for step in run.stream("t", x=X)] == (2 * X).tolist()


def test_outputs_that_need_later_points_come_when_they_are_complete() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        a = tp.recurrent("a", shape=(), dims=(t,))
        a[0] = x
        a[t + 1] = a * 0.5 + x[t + 1]
        tp.output("ahead", a[t : tp.min(t + 3, t.size)].sum())
        tp.output("a", a)
    run = tp.compile(program)
    x = np.arange(1, 7, dtype=np.float32)
    expected = run(x=x)
    stream = run.stream("t", x=x)
    steps = list(stream)
    for name in ("ahead", "a"):
        found = np.concatenate([np.atleast_1d(step[name]) for step in steps])
        np.testing.assert_allclose(found, expected[name], rtol=1e-6)


@pytest.mark.parametrize("name", ["nothing", "tt"])
def test_a_dim_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(tp.InputError, match="no dim"):
        tp.compile(running_sum()).stream(name, x=X)


def test_a_dim_that_runs_backward_cannot_be_streamed() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        g = tp.recurrent("g", shape=(), dims=(t,))
        g[t.size - 1] = x
        g[t - 1] = g + x[t - 1]
        tp.output("g", g)
    run = tp.compile(program)
    with pytest.raises(tp.UnsupportedError, match="cannot be streamed over 't'") as caught:
        run.stream("t", x=np.ones(4, np.float32))
    assert caught.value.location is not None
    assert 'tp.output("g", g)' in caught.value.location.text
    np.testing.assert_array_equal(run(x=np.ones(4, np.float32))["g"], [4, 3, 2, 1])


def test_rows_that_end_by_themselves_are_not_streamed_over() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = tp.input("x", (), (b,))
        h[b, t + 1] = h * 0.5
        tp.stop_when(t, h < 0.1, each=b)
        tp.output("h", h)
    with pytest.raises(tp.UnsupportedError, match="cannot be streamed over 'b'") as caught:
        tp.compile(program, sizes={"t": 4}).stream("b", x=np.ones(4, np.float32))
    assert caught.value.location is not None
    assert 'tp.output("h", h)' in caught.value.location.text


def test_the_loop_of_the_outputs_is_found_among_loops_over_the_same_dim() -> None:
    with tp.Program("two_loops") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        first = tp.exp(x)
        tp.output("y", first[t.size - 1 - t] + first)
    run = tp.compile(program, options=tp.Options(poison=True))
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    steps = [step["y"] for step in run.stream("t", x=data)]
    np.testing.assert_allclose(steps, np.exp(data) + np.exp(data[::-1]), rtol=1e-6)


def test_effects_keep_step_with_the_stream() -> None:
    """the outermost ordered dim, point by point or in chunks: log, stop, checkpoint"""
    log: list[tuple[str, float]] = []

    def call(x: np.ndarray) -> np.ndarray:
        log.append(("call", float(x)))
        return np.float32(x)

    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        total = tp.recurrent("total", shape=(), dims=(t,))
        total[0] = x
        total[t + 1] = total + x[t + 1]
        (called,) = tp.host_call(call, x, out=[((), tp.float32)], ordered_by=(t,))
        tp.sink(lambda value: log.append(("log", float(value))), x * 10, ordered_by=(t,))
        tp.output("total", total)
        tp.output("called", called)
    stream = tp.compile(program).stream("t", x=np.float32([1, 2, 3, 4]))
    assert [float(next(stream)["total"]) for _ in range(2)] == [1, 3]
    assert sorted(log) == [("call", 1), ("call", 2), ("log", 10), ("log", 20)]
