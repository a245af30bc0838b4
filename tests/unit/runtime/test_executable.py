"""Calling an executable: names, sizes, state, other sizes, calls that fail, threads."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.runtime import engine
from tests.unit.runtime.programs import counter, running_sum

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_outputs_have_the_domain_in_front_and_then_the_shape() -> None:
    out = tp.compile(running_sum())(x=X)
    np.testing.assert_array_equal(out["s"], X.cumsum(0))
    assert list(out) == ["s"]
    assert out.sizes == {"t": 4}


def test_the_same_executable_runs_at_other_sizes() -> None:
    run = tp.compile(running_sum(), sizes=None)
    for size in (1, 2, 7):
        x = np.ones((size, 3), np.float32)
        np.testing.assert_array_equal(run(x=x)["s"], x.cumsum(0))


def test_a_size_that_is_in_no_shape_is_a_scalar_at_run_time() -> None:
    run = tp.compile(running_sum())
    for size in (1, 5, 9):
        run(x=np.ones((size, 3), np.float32))
    assert run.executables == 1


def test_a_size_that_only_a_parameter_is_read_over_stays_a_scalar() -> None:
    """That read is made where a call has failed, and is no part of what runs. Planned at the sizes of a call."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        w = tp.parameter("w", (), init=0.5, dims=(i, t))
        w[i, t.size - 2] = 2.0
        h = tp.recurrent("h", (), (i, t))
        below = h[i // 4 * 4, tp.max(t - 1, 0) : t + 1][i // 2 * 2, t].sum(axis=0)
        h[True] = tp.cases(((i // 2 * 2 % 4 > 0) & (i % 2 > 0), below), 0.0)
        tp.output("y", h + w)
    without = ("canonicalize", "decide", "simplify", "cse", "dce", "lift", "split", "element_reads")
    run = tp.compile(program, options=tp.Options(disable=without))
    assert run(sizes={"i": 1, "t": 1})["y"].tolist() == [[0.5]]
    assert run(sizes={"i": 3, "t": 1})["y"].tolist() == [[0.5]] * 3
    assert run(sizes={"i": 2, "t": 2})["y"].tolist() == [[2.0, 0.5]] * 2


def test_a_size_in_a_shape_specialises_and_is_kept() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("sums", x[0 : t + 1].sum())
    run = tp.compile(program)
    for size in (2, 3, 2, 3):
        np.testing.assert_allclose(run(x=np.ones(size, np.float32))["sums"], np.arange(1, size + 1))
    assert run.executables == 2


SAME: list[list[dict[str, Any]]] = [[], [{}] * 2, [{"sizes": {"t": 4}}] * 2]
"""Calls before: arrays of the same shapes, and the same sizes, as in the one before are not looked at again."""


@pytest.mark.parametrize("before", SAME, ids=["first", "arrays", "sizes"])
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, tp.InputError, "'x' is missing"),
        ({"x": X, "y": X}, tp.InputError, "no input 'y'"),
        ({"x": X, "xs": X}, tp.InputError, "did you mean 'x'"),
        ({"x": X[0]}, tp.InputError, "expected are 2 axes"),
        ({"x": np.ones((4, 2), np.float32)}, tp.InputError, "expected is (4, 3)"),
        ({"x": X.astype(int)}, tp.DTypeError, "another kind"),
        ({"x": "hello"}, tp.InputError, "no array of numbers"),
        ({"x": X, "sizes": {"t": 5}}, tp.SizeError, "'t' is 5 by sizes= (t=5), but 4"),
        ({"x": X, "sizes": {"t": 0}}, tp.SizeError, "at least 1"),
        ({"x": X, "sizes": {"t": 4.0}}, tp.SizeError, "must be an integer"),
        ({"x": X, "sizes": {"tt": 4}}, tp.InputError, "did you mean 't'"),
        ({"x": X[:0]}, tp.SizeError, "at least 1"),
        ({"x": X, "seed": -1}, tp.InputError, "seed"),
        ({"x": X, "state": {"w": X}}, tp.InputError, "no parameter"),
    ],
)
def test_a_wrong_call_is_refused_and_leaves_the_executable_usable(
    arguments: dict, error: type, text: str, before: list[dict[str, Any]]
) -> None:
    run = tp.compile(running_sum())
    for each in before:
        run(x=X, **each)
    with pytest.raises(error) as caught:
        run(**arguments)
    assert text in str(caught.value)
    np.testing.assert_array_equal(run(x=X)["s"], X.cumsum(0))


def test_sizes_of_compile_and_of_an_input_that_disagree_are_refused() -> None:
    run = tp.compile(running_sum(), sizes={"t": 3})
    with pytest.raises(tp.SizeError, match=r"is 3 by sizes= of compile \(t=3\), but 4 by the shape"):
        run(x=X)


def test_a_size_that_stays_unknown_is_named() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("t", tp.as_tensor(t) * 1.0)
    with pytest.raises(tp.SizeError, match="'t' is unknown"):
        tp.compile(program)()


def test_a_dim_with_a_size_of_its_own() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 3)
        tp.output("t", t * 2)
    np.testing.assert_array_equal(tp.compile(program)()["t"], [0, 2, 4])
    with pytest.raises(tp.SizeError, match="is 3 by the program, but 4"):
        tp.compile(program, sizes={"t": 4})


def test_inputs_of_the_same_kind_are_cast() -> None:
    out = tp.compile(running_sum())(x=X.astype(np.float64))["s"]
    assert out.dtype == np.float32
    np.testing.assert_array_equal(tp.compile(running_sum())(x=[[1, 2, 3]])["s"], [[1, 2, 3]])


def test_anything_with_dlpack_goes_in() -> None:
    class Exported:
        def __dlpack__(self, **options: object) -> object:
            return X.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return X.__dlpack_device__()

    np.testing.assert_array_equal(tp.compile(running_sum())(x=Exported())["s"], X.cumsum(0))


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_run_is_pure_and_starts_from_init() -> None:
    run = tp.compile(counter(), sizes={"i": 4})
    first, second = run(), run()
    np.testing.assert_array_equal(first["w"], second["w"])
    np.testing.assert_array_equal(first["w"], [[1, 2], [2, 3], [3, 4], [4, 5]])
    np.testing.assert_array_equal(first.state["w"], [4, 5])


def test_a_run_starts_from_the_state_of_another() -> None:
    run = tp.compile(counter(), sizes={"i": 4})
    again = run(state=run().state)
    np.testing.assert_array_equal(again["w"][0], [4, 5])


def test_another_program_takes_the_parameters_that_it_has() -> None:
    with tp.Program() as training:
        i = tp.dim("i", 3)
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        moment = tp.parameter("moment", (), init=0.0, dims=(i,))
        moment[i + 1] = moment + 1
        w[i + 1] = w + moment
    with tp.Program() as using:
        v = tp.parameter("w", (), init=0.0)
        tp.output("twice", v * 2)
    trained = tp.compile(training)()
    assert sorted(trained.state) == ["moment", "w"]
    np.testing.assert_array_equal(tp.compile(using)(state=trained.state)["twice"], 4.0)
    with pytest.raises(tp.InputError, match="'wrong', which is no parameter"):
        tp.compile(using)(state={"wrong": 1.0})


def test_init_may_be_of_one_point_or_full_or_drawn() -> None:
    def program(init: object) -> tp.Program:
        with tp.Program() as made:
            layer, i = tp.dim("layer", 2), tp.dim("i", 3)
            w = tp.parameter("w", (4,), init=init, dims=(layer, i))
            w[layer, i + 1] = w + 1
        return made

    one = np.arange(4, dtype=np.float32)
    full = np.stack([one, 10 * one])
    for init, start in ((one, np.stack([one, one])), (full, full)):
        np.testing.assert_array_equal(tp.compile(program(init))().state["w"], start + 2)

    drawn = program(lambda shape, dims, dtype: tp.random.normal(shape, dims=dims, dtype=dtype))
    first, other = tp.compile(drawn)(seed=1).state["w"], tp.compile(drawn)(seed=2).state["w"]
    assert first.shape == (2, 4)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, other)


def test_what_a_run_returns_is_the_callers_own() -> None:
    with tp.Program() as program:
        w = tp.parameter("w", (2,), init=[1.0, 2.0])
        tp.output("same", w)
    run = tp.compile(program)
    out = run()
    out["same"][:] = 7
    out.state["w"][:] = 8
    np.testing.assert_array_equal(run()["same"], [1, 2])


# -- host calls --------------------------------------------------------------------------------------------------------


def test_an_exception_in_a_host_call_stops_the_run_and_names_the_point() -> None:
    calls: list[int] = []

    def observe(value: np.ndarray) -> np.ndarray:
        calls.append(int(value))
        if fails and value == 2:
            raise RuntimeError("the sensor is gone")
        return value

    with tp.Program() as program:
        t = tp.dim("t", 4)
        (seen,) = tp.host_call(observe, tp.as_tensor(t) * 1.0, out=[((), tp.float32)], ordered_by=(t,))
        tp.output("seen", seen)
    run = tp.compile(program)
    fails = True
    with pytest.raises(tp.HostCallError, match=r"t = 2.*the sensor is gone") as caught:
        run()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert calls == [0, 1, 2]
    fails = False
    np.testing.assert_array_equal(run()["seen"], [0, 1, 2, 3])


def test_two_threads_share_an_executable() -> None:
    run = tp.compile(running_sum())
    arrays = [np.full((50, 3), value, np.float32) for value in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for array, out in zip(arrays, pool.map(lambda x: run(x=x)["s"], arrays), strict=True):
            np.testing.assert_array_equal(out, array.cumsum(0))


# -- memory ------------------------------------------------------------------------------------------------------------


def noisy_sum(last_only: bool) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        noise = tp.tanh(t * tp.ones((16,)))
        s = tp.recurrent("s", shape=(16,), dims=(t,))
        s[0] = noise
        s[t + 1] = s + noise[t + 1]
        tp.output("s", s[t.size - 1] if last_only else s)
    return program


def test_a_running_sum_over_100000_steps_keeps_one_point() -> None:
    run = tp.compile(noisy_sum(last_only=True), sizes={"t": 100_000})
    assert run.memory.peak_bytes < 4_000
    run(sizes={"t": 100_000})
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000  # one point more per step would be 6.4 MB


def test_memory_grows_only_with_what_is_kept() -> None:
    short = tp.compile(noisy_sum(last_only=False), sizes={"t": 10}).memory.peak_bytes
    long = tp.compile(noisy_sum(last_only=False), sizes={"t": 1010}).memory.peak_bytes
    assert long - short == 1000 * 16 * 4


def test_a_window_of_w_keeps_w_points() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        a = tp.tanh(t * tp.ones((16,)))
        b = tp.recurrent("b", shape=(16,), dims=(t,))
        b[t < 8] = a
        b[t + 8] = 0.5 * b + a
        tp.output("recent", b[tp.max(t - 7, 0) : t + 1].max(axis=0)[t.size - 1])
    sizes = {"t": 5_000}
    run = tp.compile(program, sizes=sizes)
    kept = run.memory["b"]
    assert kept.storage == "window(8)"
    assert kept.bytes == 8 * 16 * 4
    run()
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_memory_without_sizes_says_what_to_do() -> None:
    with pytest.raises(tp.SizeError, match="no sizes are known yet"):
        _ = tp.compile(running_sum()).memory


def test_passes_may_be_left_out_but_for_the_one_that_makes_shapes_static() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        tp.output("sums", x[0 : t + 1].sum(axis=0))
    others = ("canonicalize", "simplify", "dce", "lift")
    for options in (tp.Options(disable=others), tp.Options(lift=False, disable=("lift",))):
        np.testing.assert_array_equal(tp.compile(program, options=options)(x=X)["sums"], X.cumsum(0))
    with pytest.raises(tp.InputError, match="'static_extents' cannot be left out: code is made for shapes that do not"):
        tp.compile(program, options=tp.Options(lift=False, disable=("recurrences", "static_extents")))


def test_what_a_run_returns_is_not_assigned_to() -> None:
    out = tp.compile(counter())(sizes={"i": 3})
    for arrays in (out, out.state):
        with pytest.raises(TypeError, match="does not support item assignment"):
            arrays["w"] = np.zeros(2, np.float32)


def test_exact_demand_is_found_once_for_all_ways_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    exact = engine.demanded

    def counted(*given: Any) -> Any:
        asked.append(given)
        return exact(*given)

    monkeypatch.setattr(engine, "demanded", counted)
    with tp.Program() as program:
        t = tp.dim("t")
        index, table = tp.input("index", (), (t,), dtype=tp.int32), tp.input("table", (5, 3), ())
        h = tp.recurrent("h", (3,), (t,))
        h[0] = tp.zeros((3,))
        looked_up = tp.tanh(table.spatial[index])
        h[t + 1] = h + tp.cases((t % 3 == 1, looked_up), (t % 5 == 0, looked_up), tp.zeros((3,)))
        tp.output("h", h)
    run = tp.compile(program)
    given = {"index": np.zeros(20, np.int32), "table": np.ones((5, 3), np.float32)}
    for chunk in (1, 4):
        for _ in run.stream("t", chunk=chunk, keep=False, **given):
            pass
    assert len(asked) == 1


def test_chunks_of_any_length_are_run_by_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_program = engine.compile_program
    monkeypatch.setattr(engine, "compile_program", lambda *given: made.append(given) or compile_program(*given))
    run = tp.compile(running_sum())
    for chunk in (1, 2, 3):
        steps = [np.atleast_2d(step["s"]) for step in run.stream("t", chunk=chunk, x=X)]
        np.testing.assert_array_equal(np.concatenate(steps), X.cumsum(0))
    assert len(made) == 1
