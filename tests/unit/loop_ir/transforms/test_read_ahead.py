"""Streamed inputs in strips: one call of the segment for many arrays, where nobody can tell the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.base import CompiledSegment, SegmentRequest
from tempo.backends.numpy.backend import NumpyBackend
from tempo.loop_ir.ir import CallSegment, Loop
from tempo.loop_ir.passes import MOST_POINTS
from tempo.loop_ir.transforms.read_ahead import MOST_BYTES

SIZE = 2 * MOST_POINTS + 7


class Fusing(NumpyBackend):
    """NumPy as if it compiled loops. Keeps from where to where each segment was called."""

    static_buffers, fuses_segments = True, True

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        made, is_loop = super().compile_segment(request), request.segment.loop is not None

        def call(start: int, stop: int, *arguments: Any) -> tuple[Any, ...]:
            if is_loop:
                self.calls.append((request.segment.name, start, stop))
            return made.function(start, stop, *arguments)

        return CompiledSegment(call, made.source)


def learning(shape: tuple[int, ...] = (3,)) -> tp.Program:
    """A parameter, the mean of what came, a window, and the last of all."""
    with tp.Program("learning") as program:
        i = tp.dim("i")
        x = tp.stream_input("x", shape, (i,))
        w = tp.parameter("w", shape, np.zeros(shape, np.float32), dims=(i,))
        w[i + 1] = 0.75 * w + 0.25 * x
        tp.output("w", w)
        tp.output("pair", x[tp.max(i - 1, 0) : i + 1].sum(axis=0))
        tp.output("last", x[i.size - 1])
    return program


def reading_ahead() -> tp.Program:
    """A state that is made an iteration before its point is whole."""
    with tp.Program("reading_ahead") as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,))
        w = tp.parameter("w", (3,), np.ones(3, np.float32), dims=(i,))
        v = tp.parameter("v", (3,), np.zeros(3, np.float32), dims=(i,))
        w[i + 1] = 0.5 * w + x[i + 1]
        v[i + 1] = 0.5 * v + w[i + 1]
        tp.output("v", v)
    return program


DATA = np.random.default_rng(0).normal(size=(SIZE, 3)).astype(np.float32)


@pytest.mark.parametrize("made", [learning, reading_ahead])
def test_a_strip_is_one_call_of_the_segment(made: Callable[[], tp.Program]) -> None:
    backend = Fusing()
    out = tp.compile(made(), backend=backend)(x=iter(DATA), sizes={"i": SIZE})
    expected = tp.compile(made(), backend="reference")(x=DATA)
    for name, value in {**expected, **expected.state}.items():
        np.testing.assert_allclose({**out, **out.state}[name], value, rtol=1e-5)
    points = [at for _, start, stop in backend.calls for at in range(start, stop)]
    assert points == list(range(points[0], points[0] + len(points)))
    assert len(points) >= SIZE - 1
    assert len(backend.calls) <= SIZE // MOST_POINTS + 3


def until(data: np.ndarray[Any, Any], at: int) -> Iterator[np.ndarray[Any, Any]]:
    yield from data[:at]
    raise OSError("the disk went away")


@pytest.mark.parametrize("made", [learning, reading_ahead])
@pytest.mark.parametrize("at", [1, 2, MOST_POINTS - 1, MOST_POINTS, MOST_POINTS + 1, MOST_POINTS + 2, SIZE - 1])
def test_an_iterator_that_fails_loses_nothing(made: Callable[[], tp.Program], at: int) -> None:
    run = tp.compile(made(), backend=Fusing())
    with pytest.raises(tp.HostCallError, match=f"at i = {at} failed: OSError") as caught:
        run(x=until(DATA, at), sizes={"i": SIZE})
    error = caught.value
    assert error.outputs is not None
    whole = error.outputs.sizes["i"]
    assert at - 2 <= whole <= at
    if whole == 0:
        return
    expected = tp.compile(made(), backend="reference")(x=DATA[:whole])
    assert error.outputs
    assert error.state
    for name, value in {**error.outputs, **error.state}.items():
        np.testing.assert_allclose(value, {**expected, **expected.state}[name], rtol=1e-5, err_msg=name)


def test_streams_of_one_iterator_take_turns() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        x, y = tp.stream_input("x", (3,), (i,)), tp.stream_input("y", (3,), (i,))
        tp.output("difference", x - y)
    shared = iter(DATA)
    backend = Fusing()
    out = tp.compile(program, backend=backend)(x=shared, y=shared, sizes={"i": SIZE // 2})
    pairs = DATA[: SIZE // 2 * 2].reshape(-1, 2, 3)
    found = out["difference"]
    assert len(backend.calls) < SIZE // 4
    np.testing.assert_array_equal(np.abs(found), np.abs(pairs[:, 0] - pairs[:, 1]))


def test_no_more_is_taken_than_is_asked_for() -> None:
    taken: list[int] = []

    def given() -> Iterator[np.ndarray[Any, Any]]:
        for at, value in enumerate(DATA):
            taken.append(at)
            yield value

    backend = Fusing()
    run = tp.compile(learning(), backend=backend)
    for chunk in (1, 4):
        taken.clear()
        backend.calls.clear()
        for step in run.stream("i", chunk=chunk, x=given(), sizes={"i": SIZE}):
            assert len(taken) <= step.stop
            if step.stop == 12:
                break
        assert len(backend.calls) <= 12 // chunk


def calling(program: tp.Program, x: tp.RecurrentTensor, i: tp.Dim) -> None:
    (y,) = tp.host_call(np.sin, x, out=[((3,), "float32")], ordered_by=(i,))
    tp.output("y", y)


def stopping(program: tp.Program, x: tp.RecurrentTensor, i: tp.Dim) -> None:
    tp.output("y", x)
    tp.stop_when(i, x.sum() > 2)


def looking_up(program: tp.Program, x: tp.RecurrentTensor, i: tp.Dim) -> None:
    tp.output("y", tp.take(tp.constant(DATA), tp.floor(x).astype("int32") * 0, axis=0))


@pytest.mark.parametrize("body", [calling, stopping, looking_up])
def test_where_more_depends_on_a_point_they_come_one_by_one(body: Callable[..., None]) -> None:
    """On another call, on whether there is a next, on an index that may be out of range."""
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,))
        body(program, x, i)
    run = tp.compile(program, backend=Fusing(), sizes={"i": SIZE})
    assert strips(run) == [1]
    expected = tp.compile(program, backend="reference", sizes={"i": SIZE})(x=DATA)
    np.testing.assert_allclose(run(x=iter(DATA))["y"], expected["y"], rtol=1e-5)


def test_large_arrays_come_one_by_one() -> None:
    rows = MOST_BYTES // 4 // 1024
    found = {n: strips(tp.compile(learning((n, 1024)), backend=Fusing(), sizes={"i": 9})) for n in (rows, rows // 8)}
    assert found == {rows: [1], rows // 8: [8]}


def strips(run: tp.Executable) -> list[int]:
    engine: Any = run._engine
    sizes: Any = run._sizes
    program = engine.at(engine.plan_for(sizes), sizes).compiled.program
    loops = [each for each in program.items if isinstance(each, Loop)]
    assert all(isinstance(each.body[-1], CallSegment) for each in loops if each.strip > 1)
    return [each.strip for each in loops]
