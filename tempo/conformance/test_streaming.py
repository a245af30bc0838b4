"""Family 11, streams in constant memory: outputs that nobody keeps, dims that have no end, what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers


@pytest.mark.planned
@pytest.mark.few_configurations
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_stream_need_not_keep_what_it_gave(target: Target, chunk: int) -> None:
    """Outputs that are complete at different times, one that lies in another order, one that is read as a whole."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (2,), (b, t))
        s = tp.recurrent("s", (2,), (b, t))
        s[b, 0] = x
        s[b, t + 1] = 0.5 * s + x[b, t + 1]
        tp.output("s", s)
        tp.output("ahead", s[b, t : tp.min(t + 3, t.size)].sum(axis=0))
        tp.output("half", s[b, t // 2])
        tp.output("back", s[b, 0 : t + 1].max(axis=0) - s[b, t - t % 2])
        tp.output("last", s[b, t.size - 1])
    run, x_data = target.compile(program), numbers((3, 8, 2))
    expected = target.arrays(run(x=x_data))
    try:
        run.stream("t", chunk=chunk, x=x_data)
    except tp.UnsupportedError as error:
        pytest.skip(f"this scheduler makes no one loop of it: {error.message}")
    stream = run.stream("t", chunk=chunk, keep=False, x=x_data)
    steps = [target.arrays(step) for step in stream]
    for name in ("s", "ahead", "half", "back"):
        joined = np.stack if chunk == 1 else np.concatenate
        found = joined([step[name] for step in steps], axis=1)
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert stream.result is not None
    assert list(stream.result) == ["last"]
    np.testing.assert_allclose(target.to_numpy(stream.result["last"]), expected["last"], rtol=1e-5)
    assert stream.memory["half"].shape[1] < 8


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_stream_may_have_no_end(target: Target, chunk: int) -> None:
    """Random draws, values of the index, host calls with a memory of their own: as in a run of a known size."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.stream_input("x", (3,), (t,))
        w = tp.parameter("w", (3,), np.zeros(3, np.float32), dims=(t,))
        error = ((w - x) ** 2).sum()
        w[t + 1] = w - 0.25 * tp.grad(error, w)
        noise = tp.random.normal((2,), dims=(b, t))
        tp.output("error", error)
        tp.output("walk", noise[b, tp.max(t - 2, 0) : t + 1].sum(axis=0) + 2 * t)
    run, x_data = target.compile(program, sizes={"b": 2}), numbers((60, 3))
    stream = run.stream("t", chunk=chunk, sizes={"t": None}, x=iter(x_data))
    steps = [target.arrays(step) for step, _ in zip(stream, range(12))]
    size = 12 * chunk
    expected = target.arrays(run(x=x_data[:size]))
    joined = np.stack if chunk == 1 else np.concatenate
    for name, axis in (("error", 0), ("walk", 1)):
        found = joined([step[name] for step in steps], axis=axis)
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-5)
    assert stream.memory.peak_bytes < 2000


def read_the_size(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x / t.size)


def read_the_future(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[tp.min(t + 1, t.size - 1)])


def read_the_end(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x)
    tp.output("last", x[t.size - 1])


def keep_all(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", tp.softmax(x[0 : t + 1], axis=0).max(axis=0))


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("body", [read_the_size, read_the_future, read_the_end, keep_all])
def test_what_a_stream_without_an_end_cannot_be(target: Target, body: Callable[..., None]) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        body(t, tp.stream_input("x", (3,), (t,)))
    run = target.compile(program)
    with pytest.raises(tp.UnsupportedError, match="t has no end") as caught:
        run.stream("t", sizes={"t": None}, x=iter(()))
    assert "tp.output(" in str(caught.value) or "tp.stream_input" in str(caught.value)


def _too_long(calls: list[int]) -> tp.Program:
    """A history that fits into no memory; not even a few of its calls are to be made."""

    def call() -> Any:
        calls.append(1)
        assert len(calls) < 10
        return np.float32(1)

    with tp.Program() as program:
        t = tp.dim("t")
        (c,) = tp.host_call(call, out=[((), "float32")], ordered_by=(t,))
        s = tp.recurrent("s", (1000, 1000), (t,))
        s[0] = tp.zeros((1000, 1000))
        s[t + 1] = s + c
        tp.output("history", s)
    return program


@pytest.mark.planned
@pytest.mark.one_configuration
def test_what_is_larger_than_memory_is_refused_before_anything_runs(target: Target) -> None:
    calls: list[int] = []
    with pytest.raises(tp.MemoryLimitError, match=r"history: float32\[1000000000, 1000, 1000\]") as caught:
        target.compile(_too_long(calls))(sizes={"t": 10**9})
    assert 'tp.output("history", s)' in str(caught.value)
    assert not calls


@pytest.mark.planned
@pytest.mark.one_configuration
def test_a_step_is_made_of_more_than_memory_has_room_for(target: Target) -> None:
    step = next(target.compile(_too_long([])).stream("t", sizes={"t": 10**9}, keep=False))
    assert target.to_numpy(step["history"]).shape == (1000, 1000)


@pytest.mark.planned
@pytest.mark.one_configuration
def test_a_dim_without_an_end_is_ordered_or_refused_without_its_points(target: Target) -> None:
    """There would be 2**30 of them. Schedulers differ in whether they find an order."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        h = tp.recurrent("h", (2,), (i, t))
        h[i < 1] = 0.25
        h[i, t] = tp.tanh(tp.prod(tp.tanh(h[0:i, t]), axis=0))
        tp.output("h", h)
        x = tp.stream_input("x", (3,), (i,))
        tp.output("y", tp.tanh(x[(i // 3) * 3 : i + 1]).sum(axis=0))
    run = target.compile(program)
    values = numbers((5, 3))
    try:
        steps = run.stream("t", sizes={"i": 5, "t": None}, keep=False, x=values)
    except tp.UnsupportedError:
        return
    expected = target.compile(program)(sizes={"i": 5, "t": 4}, x=values)["h"]
    for at, step in zip(range(4), steps, strict=False):
        np.testing.assert_allclose(target.to_numpy(step["h"]), target.to_numpy(expected[:, at]), rtol=1e-5)
