"""Family 8, calls that fail in the middle: what was made until then is not lost, and a stream does not forget it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers, typical

SIZE, NEVER = 6, 99


class Fails:
    """Doubles what it is given, and raises in the call `at`."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls > self.at:
            raise OSError("the disk is full")
        return np.float32(2 * x)


def acting(at: int, size: int | None) -> tp.Program:
    """A parameter that what was called changes, one that goes its own way, and outputs of both."""
    with tp.Program() as program:
        t = tp.dim("t", size)
        w = tp.parameter("w", (3,), np.zeros(3, np.float32), dims=(t,))
        pace = tp.parameter("pace", (), np.float32(0.5), dims=(t,))
        fixed = tp.parameter("fixed", (2,), np.array([1, 2], np.float32))
        (y,) = tp.host_call(Fails(at), w.sum() + t, out=[((), "float32")], ordered_by=(t,))
        w[t + 1] = 0.5 * w + y + fixed.sum()
        pace[t + 1] = 0.5 * pace
        tp.output("y", y)
        tp.output("w", w)
        tp.output("last", y[t.size - 1])
    return program


def logging(at: int, size: int | None) -> tp.Program:
    """The parameter is replaced, in layers, before the call that fails is made."""
    with tp.Program() as program:
        n, t = tp.dim("n"), tp.dim("t", size)
        w = tp.parameter("w", (3,), np.ones((2, 3), np.float32), dims=(n, t))
        w[n, t + 1] = 0.5 * w + n + t
        far = tp.parameter("far", (), 0.0, dims=(t,))
        (y,) = tp.host_call(Fails(at), w[0 : n.size].sum(), out=[((), "float32")], ordered_by=(t,))
        far[t + 1] = far + y
        tp.output("sum", w[0 : n.size].sum() + y)
        tp.output("mean", far)
    return program


def summing(at: int, size: int | None) -> tp.Program:
    """What is written in place, and looked back at."""
    with tp.Program() as program:
        b, t = tp.dim("b"), tp.dim("t", size)
        w = tp.parameter("w", (), 0.0, dims=(b, t))
        (y,) = tp.host_call(Fails(at), (w[0 : b.size].sum() + t), out=[((), "float32")], ordered_by=(t,))
        w[b, t + 1] = w[b, t] + tp.cases((t > 1, w[b, t - 2]), 1.0) + y * (b + 1)
        tp.output("y", y)
    return program


def behind(at: int, size: int | None) -> tp.Program:
    """No output is made in the loop of the calls; an iteration may call for the point before."""
    with tp.Program() as program:
        b, t = tp.dim("b"), tp.dim("t", size)
        w = tp.parameter("w", (2,), np.ones(2, np.float32), dims=(b, t))
        total = w[0 : b.size].sum(axis=0)
        before = tp.cases((t >= 2, total[t - 2].max()), 0.0)
        (y,) = tp.host_call(Fails(at), total.sum() + t + before, out=[((), "float32")], ordered_by=(t,))
        w[b, t + 1] = 0.5 * w + y
        tp.output("cumulated", y[0 : t + 1].sum(axis=0))
    return program


@pytest.mark.few_configurations
@pytest.mark.parametrize("program", [acting, logging, summing, behind])
@pytest.mark.parametrize("at", typical([0, 1, 3, 5], [0, 3]))
@pytest.mark.parametrize("number", [None, SIZE])
@pytest.mark.one_process
def test_a_call_that_fails_loses_nothing_that_was_whole(
    target: Target, program: Callable[[int, int | None], tp.Program], at: int, number: int | None
) -> None:
    """Outputs and parameters are those of a run of as many points, also where the program says how many there are."""
    others = {"t": SIZE} | {name: 2 for name in "bn" if name in {each.name for each in program(at, None).dims}}
    with pytest.raises(tp.HostCallError, match=f"at t = {at} failed: OSError") as caught:
        target.compile(program(at, number))(sizes=others)
    outputs, state = caught.value.outputs, caught.value.state
    assert outputs is not None
    assert outputs.sizes["t"] == at
    assert state is not None
    assert "last" not in outputs
    if at == 0:
        assert all(len(array) == 0 for name, array in outputs.items())
        return
    expected = target.compile(program(NEVER, None))(sizes={**others, "t": at})
    assert outputs or target.configuration.name == "all" or program is behind
    for name, array in outputs.items():
        np.testing.assert_allclose(target.to_numpy(array), target.to_numpy(expected[name]), rtol=1e-5, err_msg=name)
    assert set(state) == set(expected.state)
    for name, array in state.items():
        found, wanted = target.to_numpy(array), target.to_numpy(expected.state[name])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=name)


@pytest.mark.few_configurations
@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("number", [None, SIZE])
@pytest.mark.one_process
def test_what_no_whole_point_needed_has_no_value(target: Target, at: int, number: int | None) -> None:
    """Nobody reads `alone` but the end, so it is made nowhere else; a state is right, or there is none."""
    with tp.Program() as program:
        t = tp.dim("t", number)
        w, alone = (tp.parameter(name, (2,), np.ones(2, np.float32), dims=(t,)) for name in ("w", "alone"))
        (y,) = tp.host_call(Fails(at), w.sum() + t, out=[((), "float32")], ordered_by=(t,))
        w[t + 1] = 0.5 * w + y
        alone[t + 1] = tp.sin(tp.as_tensor(t) * 0.5) + tp.zeros((2,))
        tp.output("y", y)
    with pytest.raises(tp.HostCallError) as caught:
        target.compile(program)(sizes={"t": SIZE})
    state = caught.value.state
    if state is None:
        assert any("'alone'" in note for note in caught.value.__notes__)
        return
    expected = np.ones(2) if at < 2 else np.full(2, np.sin(0.5 * (at - 2)))
    np.testing.assert_allclose(target.to_numpy(state["alone"]), expected, rtol=1e-5)


@pytest.mark.few_configurations
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.one_process
def test_sizes_that_are_numbers_of_several_dims(target: Target, inner: int) -> None:
    """The value at the last whole point of the dim that the call goes along, at the last of the others."""
    with tp.Program() as program:
        i, t = tp.dim("i", SIZE), tp.dim("t", inner)
        w = tp.parameter("w", (), np.float32(1), dims=(i, t))
        (y,) = tp.host_call(Fails(4), w.at(t=0), out=[((), "float32")], ordered_by=(i,))
        w[i, t + 1] = 0.5 * w + t
        w[i + 1, 0] = w[i, t.size - 1] + y
        tp.output("y", y)
    with pytest.raises(tp.HostCallError) as caught:
        target.compile(program)()
    begun = np.float32(1)
    for _ in range(4):
        y_value, ended = 2 * begun, begun
        for point in range(inner - 1):
            ended = 0.5 * ended + point
        begun = ended + y_value
    assert caught.value.state is not None
    assert caught.value.outputs is not None
    if caught.value.outputs.sizes["t"] == 0:  # a dim of one point may be the outermost
        ended = np.float32(1)
    np.testing.assert_allclose(target.to_numpy(caught.value.state["w"]), ended, rtol=1e-6)


def learning() -> tp.Program:
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,))
        w = tp.parameter("w", (3,), np.zeros(3, np.float32), dims=(i,))
        error = ((w - x) ** 2).sum()
        w[i + 1] = w - 0.25 * tp.grad(error, w)
        tp.output("error", error)
    return program


def until(data: Array, at: int) -> Iterator[Array]:
    yield from data[:at]
    raise OSError("the network is down")


@pytest.mark.few_configurations
@pytest.mark.parametrize(("size", "at"), [(8, 5), (70, 32), (70, 66)])
def test_data_that_fails_loses_no_training(target: Target, size: int, at: int) -> None:
    """Whether it is taken point by point or some points ahead."""
    x_data, run = numbers((size, 3)), target.compile(learning())
    expected = run(x=x_data[:at])
    for given, kind in ((until(x_data, at), tp.HostCallError), (iter(x_data[:at]), tp.InputError)):
        with pytest.raises(kind) as caught:
            run(x=given, sizes={"i": size})
        error = caught.value
        assert isinstance(error, tp.TempoError)
        assert error.outputs is not None
        assert error.outputs.sizes["i"] == at
        np.testing.assert_allclose(
            target.to_numpy(error.outputs["error"]), target.to_numpy(expected["error"]), rtol=1e-5
        )
        np.testing.assert_allclose(target.to_numpy(error.state["w"]), target.to_numpy(expected.state["w"]), rtol=1e-5)
        run(x=x_data, state=error.state)  # it goes on from there


@pytest.mark.planned
@pytest.mark.few_configurations
@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.one_process
def test_a_stream_that_failed_fails_again(target: Target, chunk: int) -> None:
    x_data, run = numbers((8, 3)), target.compile(learning())
    expected = run(x=x_data[:5])
    for keep in (True, False):
        stream = run.stream("i", chunk=chunk, keep=keep, x=until(x_data, 5), sizes={"i": 8})
        with pytest.raises(tp.HostCallError, match="the network is down") as caught:
            list(stream)
        with pytest.raises(tp.HostCallError) as again:
            next(stream)
        assert again.value is caught.value
        assert caught.value.outputs is not None
        assert ("error" in caught.value.outputs) == keep
        found, wanted = target.to_numpy(caught.value.state["w"]), target.to_numpy(expected.state["w"])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.planned
@pytest.mark.few_configurations
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_a_stream_without_an_end_ends_with_its_data(target: Target, chunk: int) -> None:
    x_data, run = numbers((9, 3)), target.compile(learning())
    expected = run(x=x_data)
    for given in (x_data, iter(x_data)):
        stream = run.stream("i", chunk=chunk, x=given, sizes={"i": None})
        errors = [np.atleast_1d(target.to_numpy(step["error"])) for step in stream]
        np.testing.assert_allclose(np.concatenate(errors), target.to_numpy(expected["error"]), rtol=1e-5)
        assert stream.result is not None
        assert stream.result.sizes == {"i": 9}
        found, wanted = target.to_numpy(stream.result.state["w"]), target.to_numpy(expected.state["w"])
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert next(stream, None) is None


@pytest.mark.few_configurations
def test_a_parameter_over_a_dim_of_one_point(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 1)
        w = tp.parameter("w", (3,), init=np.zeros(3, np.float32), dims=(t,))
        w[True] = tp.cases((t >= 2, tp.tanh(w[t - 2])), 0.5)
        tp.output("y", w[0 : t.size].sum(axis=0))
    target.agrees(program, {"y": np.full(3, 0.5)})
    np.testing.assert_array_equal(target.to_numpy(target.compile(program)().state["w"]), np.full((1, 3), 0.5))


@pytest.mark.few_configurations
@pytest.mark.one_process
def test_what_was_made_beforehand_is_cut_as_well(target: Target) -> None:
    """Whatever lies in what order, the outputs are those of as many points as `sizes` says."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (3,), (b, t))
        y = tp.sin(x)  # of all points at once
        (z,) = tp.host_call(Fails(4), y, out=[((3,), "float32")], ordered_by=(t,))
        tp.output("y", y)
        tp.output("z", z)
    x_data = numbers((2, SIZE, 3))
    with pytest.raises(tp.HostCallError) as caught:
        target.compile(program)(x=x_data)
    outputs = caught.value.outputs
    assert outputs is not None
    rows, steps = outputs.sizes["b"], outputs.sizes["t"]
    expected = {"y": np.sin(x_data)[:rows, :steps], "z": 2 * np.sin(x_data)[:rows, :steps]}
    for name, array in outputs.items():
        np.testing.assert_allclose(target.to_numpy(array), expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.few_configurations
@pytest.mark.one_process
def test_an_index_out_of_range_in_a_loop_of_the_host_is_that_error(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        index, table = tp.stream_input("index", (2,), (t,), "int32"), tp.input("table", (5,), ())
        tp.output("y", tp.cases((t % 2 == 0, tp.take(table, index, axis=0).sum()), 0.0))
    indices = np.array([[1, 2], [99, 9], [3, 4], [99, 9], [3, 5]], np.int32)
    run = target.compile(program, checks=True)
    with pytest.raises(tp.IndexOutOfRangeError, match="index 5 is out of range"):
        run(index=iter(indices), table=numbers((5,)), sizes={"t": 5})
