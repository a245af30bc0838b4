"""Family 11, early ends: rows that end each by itself (`tp.stop_when(t, condition, each=b)`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.stopping_rows import LENGTHS, START, halves, halves_of_rows
from tempo.conformance.target import Array, Target, numbers

HERE = Path(__file__).name


def halving(limit: float = 0.3) -> tp.Program:
    """x[b, t] = start[b] * 2**-t: what is read of the row's past, a parameter of each row and one of all."""
    with tp.Program("halving") as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        w = tp.parameter("w", (2,), np.ones(2, np.float32), (b, t))
        w[b, t + 1] = w + x[b, t + 1]
        every = tp.parameter("every", (), np.float32(0), (t,))
        every[t + 1] = every + x[:, t + 1].sum(axis=0)
        tp.output("x", x)
        tp.output("sums", x[b, 0 : t + 1].sum(axis=0))
        tp.output("before", x[b, tp.max(t - 1, 0)] * tp.ones(3))
        tp.output("first", x[:, 0] * 3)
        tp.stop_when(t, x < limit, each=b)
    return program


def there(size: int) -> Array:
    """Where rows of START have points."""
    return np.arange(size) < LENGTHS[:, None]


def expected_halves(size: int = 5) -> Array:
    return START[:, None] * 0.5 ** np.arange(size) * there(size)


def test_each_row_ends_after_its_first_point_where_the_condition_holds(target: Target) -> None:
    x = expected_halves()
    expected = {
        "x": x,
        "sums": np.cumsum(x, 1) * there(5),
        "before": (np.concatenate([x[:, :1], x[:, :-1]], 1) * there(5))[..., None] * np.ones(3),
        "first": START * 3,
    }
    out = target.agrees(halving(), expected, start=START, sizes={"t": 9})
    assert out.sizes == {"b": 4, "t": 5}
    np.testing.assert_array_equal(out.lengths["t"], LENGTHS)
    assert out.lengths["t"].dtype == np.int32
    np.testing.assert_allclose(target.to_numpy(out.state["w"])[:, 0], 1 + x.sum(1) - START, rtol=1e-6)
    np.testing.assert_allclose(target.to_numpy(out.state["every"]), x.sum() - START.sum(), rtol=1e-6)


@pytest.mark.parametrize(("size", "limit"), [(1, 0.3), (2, 0.3), (4, 0.3), (4, 0.0), (3, 9.0)])
def test_rows_that_go_on_have_all_points(target: Target, size: int, limit: float) -> None:
    out = target.agrees(halving(limit), start=START, sizes={"t": size})
    ends = {0.3: LENGTHS, 0.0: LENGTHS + size, 9.0: LENGTHS * 0 + 1}[limit]
    np.testing.assert_array_equal(out.lengths["t"], np.minimum(ends, size))
    assert out.sizes["t"] == out.lengths["t"].max()


def test_one_row_is_the_whole_run(target: Target) -> None:
    out = target.agrees(halving(), start=START[:1], sizes={"t": 9})
    assert (out.sizes["t"], out.lengths["t"].tolist()) == (3, [3])


def test_a_fold_over_rows_counts_those_that_there_are(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        y = tp.input("y", (3,), (b, t))
        tp.output("live", (x == x)[:, t].sum(axis=0))
        tp.output("sum", x[:, t].sum(axis=0))
        tp.output("of a function", (tp.exp(x[:, t]) + 1).sum(axis=0))
        tp.output("largest", (-x)[:, t].max(axis=0))
        tp.output("all", (x > 0.2)[:, t].all(axis=0))
        tp.output("contracted", x[:, t] @ y[:, t])
        tp.output("before", y[:, tp.max(t - 1, 0)].min(axis=0))
        tp.output("of the past", x[:, 0 : t + 1].sum(axis=(0, 1)))
        tp.output("by time", x[:, 0 : t + 1].sum(axis=0).min(axis=0))
        tp.output("share", x / x[:, t].sum(axis=0))
        tp.stop_when(t, x < 0.3, each=b)
    found, given, mask = expected_halves(), numbers((4, 7, 3)), there(5)
    full = START[:, None] * 0.5 ** np.arange(5)
    early = mask[:, [0, 0, 1, 2, 3], None]
    expected = {
        "live": mask.sum(0),
        "sum": found.sum(0),
        "of a function": ((np.exp(full) + 1) * mask).sum(0),
        "largest": np.where(mask, -full, -np.inf).max(0),
        "all": np.where(mask, full > 0.2, True).all(0),
        "contracted": np.einsum("bt,btc->tc", found, given[:, :5]),
        "before": np.where(early, given[:, [0, 0, 1, 2, 3]], np.inf).min(0),
        "of the past": np.cumsum(found.sum(0)),
        "by time": np.minimum.accumulate(found.sum(0)),
        "share": found / found.sum(0),
    }
    out = target.agrees(program, expected, start=START, y=given)
    np.testing.assert_array_equal(out.lengths["t"], LENGTHS)


def test_rows_of_two_dims_and_a_condition_over_a_third(target: Target) -> None:
    with tp.Program() as program:
        b, t, c, d = tp.dims("b t c d")
        step = tp.input("step", (), (b, c, d))
        total = tp.recurrent("total", (), (b, t, c, d))
        total[b, 0, c, d] = step
        total[b, t + 1, c, d] = total + step
        w = tp.parameter("w", (), np.float32(0), (b, t, c))
        w[b, t + 1, c] = w + 1
        tp.output("total", total)
        tp.output("rows", total[b, t, c, :].sum(axis=0))
        tp.output("all", total[:, t, :, d].sum(axis=(0, 1)))
        tp.stop_when(t, total >= 6, each=(b, c))
    steps = np.array([[[1, 2], [6, 6], [3, 7]], [[2, 2], [4, 5], [1, 9]]], np.float32)
    lengths = np.ceil(6 / steps.min(-1)).astype(np.int32)
    mask = np.arange(6)[:, None] < lengths[:, None, :]
    sums = steps[:, None] * np.arange(1, 7)[None, :, None, None] * mask[..., None]
    out = target.agrees(
        program, {"total": sums, "rows": sums.sum(-1), "all": sums.sum((0, 2))}, step=steps, sizes={"t": 8}
    )
    np.testing.assert_array_equal(out.lengths["t"], lengths)
    np.testing.assert_array_equal(target.to_numpy(out.state["w"]), lengths - 1)


def test_draws_are_those_of_their_coordinates(target: Target) -> None:
    def drawn(each: bool) -> tp.Program:
        with tp.Program() as program:
            b, t = tp.dim("b", 5), tp.dim("t", 8)
            noise = tp.random.uniform((), dims=(b, t))
            tp.output("noise", noise)
            if each:
                tp.stop_when(t, noise > 0.6, each=b)
        return program

    free = target.to_numpy(target.compile(drawn(False))(seed=3)["noise"])
    out = target.agrees(drawn(True), seed=3)
    ends = [int(np.argmax(row > 0.6)) + 1 if (row > 0.6).any() else 8 for row in free]
    np.testing.assert_array_equal(out.lengths["t"], ends)
    kept = (np.arange(8) < np.array(ends)[:, None])[:, : max(ends)]
    np.testing.assert_array_equal(target.to_numpy(out["noise"]), np.where(kept, free[:, : max(ends)], 0))


def test_one_executable_serves_all_lengths(target: Target) -> None:
    run = target.compile(halving())
    for scale in (1.0, 0.01, 30.0, 1.0):
        out = run(start=START * np.float32(scale), sizes={"t": 12})
        ends = 1 + (START[:, None] * scale * 0.5 ** np.arange(12) >= 0.3).sum(1)
        np.testing.assert_array_equal(out.lengths["t"], ends)
    if not target.interprets:
        assert run.executables == 1


def test_two_loops_end_each_for_itself(target: Target) -> None:
    with tp.Program() as program:
        b, t, s = tp.dims("b t s")
        limit = tp.input("limit", (), (b,), tp.int32)
        for dim in (t, s):
            tp.output(dim.name, tp.as_tensor(dim) + 0 * limit)
        tp.stop_when(t, tp.as_tensor(t) >= limit, each=b)
        tp.stop_when(s, 2 * tp.as_tensor(s) >= limit, each=b)
    out = target.agrees(program, limit=np.array([1, 4], np.int32), sizes={"t": 9, "s": 9})
    assert {name: each.tolist() for name, each in out.lengths.items()} == {"t": [2, 5], "s": [2, 3]}
    assert out.sizes == {"b": 2, "t": 5, "s": 3}


@pytest.mark.parametrize("lengths", [[1, 3], [0, 2], [0, 0]])
def test_rows_that_are_not_there_have_no_points_and_keep_nobody(target: Target, lengths: list[int]) -> None:
    """Points behind the end of other rows."""
    with tp.Program() as program:
        b, t, s, h = halves_of_rows()
        tp.output("h", h)
        tp.stop_when(t, h < 1, each=(b, s))
    n = np.array(lengths, np.int32)
    out = target.agrees(program, n=n, x=np.array([[1.5, 9, 0], [0, 5, 99]], np.float32), sizes={"t": 9})
    ends = np.array([[2, 5, 1], [1, 4, 8]]) * (np.arange(3) < n[:, None])
    np.testing.assert_array_equal(out.lengths["t"], ends)
    assert out.sizes["t"] == max(1, ends.max())


@pytest.mark.planned
@pytest.mark.parametrize(("chunk", "first", "keep"), [(1, 0, True), (2, 0, False), (100, 0, True), (1, 2, True)])
def test_a_stream_says_how_long_rows_are_so_far(target: Target, chunk: int, first: int, keep: bool) -> None:
    run = target.compile(halving())
    stream = run.stream("t", chunk=chunk, from_point=first, keep=keep, sizes={"t": 9}, start=START)
    done = first
    for step in stream:
        assert step.start == done
        found = np.reshape(target.to_numpy(step["x"]), (4, -1))
        np.testing.assert_array_equal(found, expected_halves()[:, step.start : step.stop])
        np.testing.assert_array_equal(step.lengths["t"], np.minimum(LENGTHS, step.stop))
        done = step.stop
    assert done == 5
    assert stream.result is not None
    np.testing.assert_array_equal(stream.result.lengths["t"], LENGTHS)
    whole = run(start=START, sizes={"t": 9})
    np.testing.assert_allclose(target.to_numpy(stream.result.state["w"]), target.to_numpy(whole.state["w"]))


@pytest.mark.planned
def test_a_stream_without_an_end_goes_on_until_all_rows_have_ended(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        tp.output("x", x)
        tp.stop_when(t, x < 0.3, each=b)
    stream = target.compile(program).stream("t", sizes={"t": None}, start=START)
    found = np.stack([target.to_numpy(step["x"]) for step in stream], 1)
    np.testing.assert_array_equal(found, expected_halves())
    assert stream.result is not None
    np.testing.assert_array_equal(stream.result.lengths["t"], LENGTHS)


@pytest.mark.one_process
def test_what_a_row_would_be_behind_its_end_need_not_be_finite(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.recurrent("x", (), (b, t))
        x[b, 0] = tp.input("start", (), (b,))
        x[b, t + 1] = tp.sqrt(x - 1)
        w = tp.parameter("w", (), np.float32(1), (b, t))
        w[b, t + 1] = w * x
        tp.output("x", x)
        tp.output("sum", x[:, t].sum(axis=0))
        tp.stop_when(t, x < 1, each=b)
    start = np.array([0.5, 3, 30], np.float32)
    out = target.agrees(program, start=start, sizes={"t": 9}, options={"check_finite": True})
    assert len(set(out.lengths["t"].tolist())) == 3
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.recurrent("x", (), (b, t))
        x[b, 0] = tp.input("start", (), (b,))
        x[b, t + 1] = tp.sqrt(x - 1)
        tp.output("x", x)
        tp.stop_when(t, x < 0, each=b)
    with pytest.raises(tp.NotFiniteError, match="x is NaN at b = 1, t = 3"):
        target.compile(program, check_finite=True)(start=np.array([30, 3], np.float32), sizes={"t": 4})


@pytest.mark.few_configurations
@pytest.mark.parametrize("mapping", [None, {"t": 1}], ids=["", "moved together"])
@pytest.mark.parametrize("calls", [False, True], ids=["", "calls"])
@pytest.mark.one_process
def test_no_index_behind_the_end_of_a_row_raises(target: Target, calls: bool, mapping: Any) -> None:
    seen: list[float] = []
    with tp.Program() as program:
        b, t = tp.dims("b t")
        table, index = tp.input("table", (4,)), tp.input("index", (), (b, t), dtype=tp.int32)
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = 0.0
        h[b, t + 1] = h + table.spatial[index] * table.spatial[tp.input("of all", (), (t,), dtype=tp.int32)]
        tp.output("of all rows", table.spatial[index][:, t].sum(axis=0))
        tp.output("h", h)
        if calls:  # so that it can not be run again
            tp.sink(lambda x: seen.append(float(x)), h[:, t].sum(axis=0), ordered_by=(t,))
        tp.stop_when(t, h >= tp.input("most", (), (b,)), each=b)
    index_data = np.array([[0, 1, 2, 3, 1, 2], [2, 1, 2, 3, 0, 2]], np.int32)
    data: dict[str, Any] = {"table": np.ones(4, np.float32), "most": np.array([1, 3], np.float32)}
    data["of all"] = np.array([0, 1, 2, 99, 99, 99], np.int32)  # at the last point nobody asks for the next
    run = target.compile(program, checks=True, mapping=mapping)
    for row, wrong in [(0, 0), (0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (1, 4), (1, 5)]:
        given = index_data.copy()
        given[row, wrong:] = 99
        seen.clear()
        if wrong < (2, 4)[row]:
            with pytest.raises(tp.IndexOutOfRangeError, match="index 99"):
                run(index=given, **data)
            continue
        found = run(index=given, **data)
        np.testing.assert_array_equal(target.to_numpy(found["h"]), [[0, 1, 0, 0], [0, 1, 2, 3]])
        np.testing.assert_array_equal(target.to_numpy(found["of all rows"]), [2, 2, 1, 1])
        np.testing.assert_array_equal(found.lengths["t"], [2, 4])
        assert not calls or seen == [0, 2, 2, 3]


@pytest.mark.one_process
def test_what_a_call_that_fails_leaves_is_whole(target: Target) -> None:
    def note(total: Array) -> None:
        if total < 2:
            raise ValueError("enough")

    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        w = tp.parameter("w", (), np.float32(0), (b, t))
        w[b, t + 1] = w + x
        tp.sink(note, x[:, t].sum(axis=0), ordered_by=(t,))
        tp.output("x", x)
        tp.stop_when(t, x < 0.3, each=b)
    with pytest.raises(tp.HostCallError) as caught:
        target.compile(program)(start=START, sizes={"t": 9})
    made = caught.value.outputs
    assert made is not None
    assert made.sizes["t"] == 2
    np.testing.assert_array_equal(made.lengths["t"], np.minimum(LENGTHS, 2))
    np.testing.assert_array_equal(target.to_numpy(made["x"]), expected_halves()[:, :2])
    if caught.value.state is not None:
        np.testing.assert_array_equal(target.to_numpy(made.state["w"]), np.where(LENGTHS > 1, START, 0))


def the_first(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x - x[0])


def a_neighbour(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[tp.max(b - 1, 0), t])


def some(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[0:2, t].sum(axis=0))


def as_an_axis(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[:, t] * 2)


def sorted_rows(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", tp.sort(x[:, t], axis=0).max(axis=0))


def where_it_is_largest(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[:, t].argmax(axis=0))


def a_mean(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", (x[:, t] * 2).mean(axis=0))


def by_an_index(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[:, t].spatial[tp.as_tensor(b)])


def of_a_later_point(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    z = tp.recurrent("z", (), (t,))
    z[0] = 0.0
    z[t + 1] = (x[b, t + 1] * 2)[:, t].sum(axis=0)
    tp.output("z", z)


def a_gradient(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    w = tp.parameter("w", (), np.float32(1), (t,))
    w[t + 1] = w - tp.grad(((w * x) ** 2)[:, t].sum(axis=0), w)
    tp.output("w", w)


def of_a_fold(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    w = tp.parameter("w", (), np.float32(1), (t,))
    w[t + 1] = w - tp.grad((w + x[:, t]).sum(axis=0), w)
    tp.output("w", w)


def kept_by_a_recurrence(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    r = tp.recurrent("r", (3,), (t,))
    r[0] = tp.zeros((3,))
    r[t + 1] = x[:, t] * 2
    tp.output("r", r)


def kept_by_a_parameter(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    w = tp.parameter("w", (3,), np.zeros(3, np.float32), (t,))
    w[t + 1] = w + (x[:, t] + 1)


def kept_by_a_case(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    chosen = tp.cases((t > 1, x[:, t] * 2), tp.zeros((3,)))
    tp.output("y", chosen.sum(axis=0))


def a_call_for_each_row(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.sink(print, x, ordered_by=(t,))


def a_call_for_all_rows(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.sink(print, x, ordered_by=(t,), batched=(b,))


REFUSED = [the_first, a_neighbour, some, as_an_axis, sorted_rows, where_it_is_largest, a_mean, by_an_index]
REFUSED += [of_a_later_point, a_gradient, of_a_fold, kept_by_a_recurrence, kept_by_a_parameter, kept_by_a_case]
REFUSED += [a_call_for_each_row, a_call_for_all_rows]


@pytest.mark.one_configuration
@pytest.mark.parametrize("reads", REFUSED)
def test_what_rows_cannot_be_used_for_is_refused_at_its_line(target: Target, reads: Callable[..., None]) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b", 3), tp.dim("t", 6)
        x = halves(b, t)
        tp.stop_when(t, x < 0.1, each=b)
        reads(b, t, x)
    with pytest.raises(tp.UnsupportedError, match="ends? by itself along t|may end early along t") as caught:
        target.compile(program)
    assert caught.value.location is not None
    assert caught.value.location.path.endswith(HERE)
    assert caught.value.location.line > reads.__code__.co_firstlineno
    assert caught.value.location.line <= reads.__code__.co_firstlineno + 5


@pytest.mark.few_configurations
def test_all_rows_may_be_kept_of_the_first_point(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b", 4), tp.dim("t", 6)
        x = halves(b, t)
        r = tp.recurrent("r", (4,), (t,))
        r[0] = (x[:, t] * 2)[0]
        r[t + 1] = r + x[:, t].sum(axis=0)
        tp.output("r", r)
        tp.stop_when(t, x < 0.3, each=b)
    sums = np.cumsum(expected_halves().sum(0)) - expected_halves().sum(0)
    target.agrees(program, {"r": START * 2 + sums[:, None]}, start=START)


@pytest.mark.few_configurations
def test_a_gradient_may_stand_beside_rows(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b", 4), tp.dim("t", 6)
        x = halves(b, t)
        w = tp.parameter("w", (), np.float32(1), (t,))
        scale = tp.stop_gradient(x[:, t] * w).sum(axis=0) + (tp.ones((4,)) * x[:, t]).sum(axis=0)
        tp.output("gradient", tp.grad(scale * w * w, w))
        w[t + 1] = w * 1
        tp.stop_when(t, x < 0.3, each=b)
    target.agrees(program, {"gradient": 4 * expected_halves().sum(0)}, start=START)


@pytest.mark.few_configurations
def test_a_mean_that_nobody_reads_refuses_no_sum(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b", 4), tp.dim("t", 6)
        x = halves(b, t)
        x[:, t].mean(axis=0)
        x[:, t].mean(axis=0, keepdims=True)
        tp.output("sum", x[:, t].sum(axis=0))
        tp.stop_when(t, x < 0.3, each=b)
    target.agrees(program, {"sum": expected_halves().sum(0)}, start=START)


@pytest.mark.one_configuration
def test_what_each_cannot_be(target: Target) -> None:
    del target
    with tp.Program("other"):
        foreign = tp.dim("f", 3)

    def refused(error: type[Exception], each: Callable[..., Any], match: str) -> None:
        with tp.Program():
            b, t, c = tp.dim("b", 2), tp.dim("t", 5), tp.dim("c", 2)
            condition = tp.as_tensor(t) + tp.as_tensor(b) > 3
            with pytest.raises(error, match=match):
                tp.stop_when(t, condition, each=each(b, t, c))

    refused(tp.ProgramError, lambda b, t, c: t, "names it in each=")
    refused(tp.ProgramError, lambda b, t, c: (b, c), "does not vary along c")
    refused(tp.ProgramError, lambda b, t, c: foreign, "belongs to the program 'other'")
    refused(tp.ProgramError, lambda b, t, c: (c, b), "in the order of their declaration")
    refused(tp.IndexExpressionError, lambda b, t, c: "b", "must be dims")
