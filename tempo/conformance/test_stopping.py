"""Family 11, early ends: a run ends where `tp.stop_when` says, on every backend and in every order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers

HERE = Path(__file__).name
LENGTH = 12


def halving(limit: float) -> tp.Program:
    """x[t] = 2**-t until it falls below the limit; what is read of the past; a parameter; something without t."""
    with tp.Program("halving") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = x / 2
        w = tp.parameter("w", (2,), np.ones(2, np.float32), (t,))
        w[t + 1] = w + x[t + 1]
        tp.output("x", x)
        tp.output("sums", x[0 : t + 1].sum(axis=0))
        tp.output("window", x[tp.max(t - 2, 0) : t + 1].max(axis=0))
        tp.output("before", x[tp.max(t - 1, 0)])
        tp.output("first", x[0] * 3)
        tp.stop_when(t, x < limit)
    return program


@pytest.mark.parametrize(("limit", "kept"), [(2.0, 1), (0.6, 2), (0.1, 5), (2.0**-11 * 1.5, 12), (0.0, 12)])
def test_a_run_ends_after_the_first_point_where_the_condition_holds(target: Target, limit: float, kept: int) -> None:
    x = 0.5 ** np.arange(kept)
    expected = {
        "x": x,
        "sums": np.cumsum(x),
        "window": [x[max(0, t - 2) : t + 1].max() for t in range(kept)],
        "before": x[np.maximum(np.arange(kept) - 1, 0)],
        "first": 3.0,
    }
    out = target.agrees(halving(limit), expected, sizes={"t": LENGTH})
    assert out.sizes == {"t": kept}
    np.testing.assert_allclose(target.to_numpy(out.state["w"]), np.full(2, x.sum()), rtol=1e-6)


@pytest.mark.parametrize("kept", [1, 2, 5])
def test_what_is_wanted_without_the_dim_is_made_where_the_run_ends_at_once(target: Target, kept: int) -> None:
    """What makes the next point is of no use at the last, unless something reads it at the first."""
    with tp.Program() as program:
        l, t = tp.dim("l", 3), tp.dim("t", LENGTH)
        x = tp.recurrent("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (l, t))
        h[0, t] = x + 1
        h[l + 1, t] = h * 0.5
        made = tp.sin(h[2, t]) + x
        x[0] = tp.ones((2,))
        x[t + 1] = made
        tp.output("x", x)
        tp.output("first", made[0] * 3)
        tp.output("layers", h[:, 0])
        tp.output("one", tp.exp(h[1, 0]).sum())
        tp.stop_when(t, tp.as_tensor(t) + 1 >= tp.input("limit", (), (), tp.int32))
    out = target.agrees(program, limit=np.int32(kept))
    assert out.sizes["t"] == kept


@pytest.mark.parametrize("size", [1, 2])
def test_short_runs(target: Target, size: int) -> None:
    assert target.agrees(halving(0.6), sizes={"t": size}).sizes == {"t": size}


def test_a_condition_over_other_dims_holds_when_it_does_at_all_of_their_points(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        step = tp.input("step", (3,), (b,))
        total = tp.recurrent("total", (3,), (b, t))
        total[b, 0] = step
        total[b, t + 1] = total + step
        tp.output("total", total)
        tp.output("last", total[:, t].sum(axis=0))
        tp.stop_when(t, (total >= 6).all())
    steps = np.array([[1, 2, 3], [6, 7, 2]], np.float32)
    sums = steps[:, None] * np.arange(1, 7)[None, :, None]
    out = target.agrees(program, {"total": sums, "last": sums.sum(0)}, step=steps, sizes={"t": LENGTH})
    assert out.sizes == {"b": 2, "t": 6}


def test_the_condition_may_depend_on_inputs_draws_and_the_point(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        noise = tp.random.uniform((), dims=(t,))
        tp.output("x", x)
        tp.output("noise", noise)
        tp.stop_when(t, (x > 1.5) | (tp.as_tensor(t) >= 7) | (noise > 2.0))
    x_data = numbers((LENGTH,))
    first = int(np.argmax(x_data > 1.5)) if (x_data > 1.5).any() else LENGTH
    out = target.agrees(program, {"x": x_data[: min(first, 7) + 1]}, x=x_data)
    assert out.sizes == {"t": min(first, 7) + 1}


def test_a_constant_condition(target: Target) -> None:
    for condition, kept in ((True, 1), (False, 5)):
        with tp.Program() as program:
            t = tp.dim("t", 5)
            tp.output("y", t * 2)
            tp.stop_when(t, condition)
        target.agrees(program, {"y": np.arange(kept) * 2})


def test_one_executable_serves_all_lengths(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t", LENGTH)
        goal = tp.input("goal", (), ())
        x = tp.recurrent("x", (), (t,))
        x[0] = 0.0
        x[t + 1] = x + 1
        tp.output("x", x)
        tp.stop_when(t, x >= goal)
    run = target.compile(program)
    for kept in (1, 5, 3, LENGTH, 1):
        out = run(goal=np.float32(kept - 1))
        np.testing.assert_array_equal(target.to_numpy(out["x"]), np.arange(kept))
    if not target.interprets:
        assert run.executables == 1


def test_effects_happen_only_at_points_that_are_kept(target: Target) -> None:
    calls: list[tuple[str, int]] = []

    def act(at: Array) -> Array:
        calls.append(("act", int(at)))
        return np.array(at * at, np.float32)

    def note(value: Array) -> None:
        calls.append(("note", int(value)))

    with tp.Program() as program:
        t = tp.dim("t")
        (square,) = tp.host_call(act, tp.as_tensor(t), out=[((), "float32")], ordered_by=(t,))
        total = tp.recurrent("total", (), (t,))
        total[0] = square
        total[t + 1] = total + square[t + 1]
        tp.sink(note, total, ordered_by=(t,))
        tp.output("total", total)
        tp.stop_when(t, total > 10)
    run = target.compile(program)
    for _ in range(2):
        out = run(sizes={"t": LENGTH})
        assert out.sizes == {"t": 4}
        np.testing.assert_array_equal(target.to_numpy(out["total"]), [0, 1, 5, 14])
        assert [at for name, at in calls if name == "act"] == [0, 1, 2, 3]
        assert [at for name, at in calls if name == "note"] == [0, 1, 5, 14]
        calls.clear()


def test_a_sink_alone_ends_too(target: Target) -> None:
    seen: list[int] = []
    with tp.Program() as program:
        t = tp.dim("t", LENGTH)
        tp.sink(lambda at: seen.append(int(at)), tp.as_tensor(t), ordered_by=(t,))
        tp.stop_when(t, tp.as_tensor(t) == 3)
    target.compile(program)()
    assert seen == [0, 1, 2, 3]


@pytest.mark.planned
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_a_stream_ends_with_the_run(target: Target, chunk: int) -> None:
    run = target.compile(halving(0.01))
    stream = run.stream("t", chunk=chunk, sizes={"t": LENGTH})
    steps = [(step.start, step.stop, target.to_numpy(step["x"])) for step in stream]
    found = np.concatenate([np.reshape(x, (-1,)) for _, _, x in steps])
    np.testing.assert_array_equal(found, 0.5 ** np.arange(8))
    assert (steps[0][0], steps[-1][1]) == (0, 8)
    assert stream.result is not None
    assert stream.result.sizes == {"t": 8}
    assert stream.result["sums"].shape == (8,)


def test_progress_is_reported_until_the_end(target: Target) -> None:
    reports: list[tuple[int, int]] = []
    target.compile(halving(0.01))(sizes={"t": LENGTH}, progress=lambda done, total: reports.append((done, total)))
    assert target.interprets or reports[-1][0] == 8


def test_two_loops_end_each_for_itself(target: Target) -> None:
    with tp.Program() as program:
        t, s = tp.dims("t s")
        tp.output("t", tp.as_tensor(t) * 1)
        tp.output("s", tp.as_tensor(s) * 1)
        tp.stop_when(t, tp.as_tensor(t) == 2)
        tp.stop_when(s, tp.as_tensor(s) == 4)
    out = target.agrees(program, {"t": np.arange(3), "s": np.arange(5)}, sizes={"t": 9, "s": 9})
    assert out.sizes == {"t": 3, "s": 5}


def added(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """What is read at a point is asked for at the next."""
    h = tp.recurrent("h", (), (t,))
    h[0] = 0.0
    h[t + 1] = h + read
    return h


def shifted(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (t,))
    h[0] = 0 * read
    h[t + 1] = h + read[t + 1]
    return h


def through_a_definition(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    g = tp.recurrent("g", (), (t,))
    g[True] = read
    return added(t, g)


def through_a_window(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (t,))
    h[0] = 0.0
    h[t] = h[t - 1] + read[tp.max(t - 2, 0) : t].max(axis=0)
    return h


def through_a_gradient(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    w = tp.parameter("w", (), np.float32(0), dims=(t,))
    w[t + 1] = w + 0.5 * tp.grad((w + read) ** 2, w) - w  # w[t + 1] = w[t] + read[t]
    return w


def behind_a_prompt(t: tp.Dim, read: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """A known prefix may be cut out and made in one pass."""
    x = tp.recurrent("x", (2,), (t,))
    x[t < 6] = read + tp.zeros((2,))
    x[t + 1] = x[0 : t + 1].mean(axis=0) @ tp.constant(np.eye(2, dtype=np.float32))
    tp.output("x", x)
    h = tp.recurrent("h", (), (t,))
    h[0] = 0.0
    h[t + 1] = h + 1
    return h


@pytest.mark.few_configurations
@pytest.mark.parametrize("calls", [False, True], ids=["", "calls"])
@pytest.mark.parametrize(
    "reads", [added, shifted, through_a_definition, through_a_window, through_a_gradient, behind_a_prompt]
)
@pytest.mark.one_process
def test_no_index_past_the_end_raises(
    target: Target, reads: Callable[[tp.Dim, tp.RecurrentTensor], tp.RecurrentTensor], calls: bool
) -> None:
    seen: list[float] = []
    with tp.Program() as program:
        t = tp.dim("t")
        table, index = tp.input("table", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        h = reads(t, table.spatial[index])
        if calls:  # so that it can not be run again
            tp.sink(lambda x: seen.append(float(x)), h, ordered_by=(t,))
        tp.output("h", h)
        tp.stop_when(t, h > 2.5)
    index_data = np.array([0, 1, 2, 3, 1, 2, 0, 1], np.int32)
    data: dict[str, Any] = {"table": np.ones(4, np.float32), "sizes": {"t": 8}}
    meaning, run = tp.compile(program, "reference"), target.compile(program, checks=True)
    kept = meaning(index=index_data, **data).sizes["t"]
    for wrong in range(1, 8):
        given = index_data.copy()
        given[wrong:] = 99, *given[wrong + 1 :]
        try:
            expected = meaning(index=given, **data)
        except tp.IndexOutOfRangeError:
            assert wrong < kept
            with pytest.raises(tp.IndexOutOfRangeError, match=f"index 99 .* at t = {wrong}"):
                run(index=given, **data)
            continue
        seen.clear()
        found = run(index=given, **data)
        np.testing.assert_allclose(target.to_numpy(found["h"]), expected["h"])
        assert found.sizes == expected.sizes
        assert not calls or seen == list(expected["h"])


def later(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[tp.min(t + 1, t.size - 1)])


def at_the_end(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[t.size - 1])


def everything(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[0 : t.size].sum(axis=0))


def through_an_operator(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    y = x[tp.min(t + 2, t.size - 1)] * 2
    z = tp.recurrent("z", (), (t,))
    z[0] = 0.0
    z[t + 1] = y
    tp.output("z", z)


def a_gradient(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", tp.grad(tp.cases((t == t.size - 1, x), 0.0), x))


@pytest.mark.one_configuration
@pytest.mark.parametrize("reads", [later, at_the_end, everything, through_an_operator, a_gradient])
def test_the_future_is_refused_at_the_line_that_reads_it(target: Target, reads: Callable[..., None]) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = x / 2
        tp.stop_when(t, x < 0.1)
        reads(t, x)
    with pytest.raises(tp.UnsupportedError, match="the run may end early along t") as caught:
        target.compile(program)
    assert caught.value.location is not None
    assert caught.value.location.path.endswith(HERE)


@pytest.mark.one_configuration
def test_what_a_stop_cannot_be(target: Target) -> None:
    def refused(error: type[Exception], condition: Any, match: str, again: bool = False) -> None:
        with tp.Program():
            t = tp.dim("t", 5)
            if again:
                tp.stop_when(t, tp.as_tensor(t) == 3)
            with pytest.raises(error, match=match):
                tp.stop_when(t, condition(t))

    del target
    refused(tp.ShapeError, lambda t: tp.zeros((3,)) > tp.as_tensor(t), "must be a scalar")
    refused(tp.ProgramError, lambda t: tp.as_tensor(t) == 4, "there is a stop along t already", again=True)
    refused(tp.DTypeError, lambda t: tp.as_tensor(t) * 1.5, "bool")
