"""The segments of a program without host calls, as one."""

from __future__ import annotations

from typing import Any

import numpy as np

import tempo as tp
from tempo.backends.base import CompiledSegment, SegmentRequest
from tempo.backends.numpy.backend import NumpyBackend
from tempo.loop_ir.ir import Compute, Loop, LoopProgram


class Fusing(NumpyBackend):
    """NumPy as if one segment were better than many. Keeps the programs that it compiles."""

    static_buffers, fuses_segments = True, True

    def __init__(self) -> None:
        self.programs: list[LoopProgram] = []

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        self.programs.append(request.program)
        return super().compile_segment(request)


def there_and_back() -> tp.Program:
    """Two loops in opposite directions, with operations over all of time between them and after them."""
    with tp.Program("there_and_back") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(3,), dims=(b, t))
        h = tp.recurrent("h", shape=(3,), dims=(b, t))
        g = tp.recurrent("g", shape=(3,), dims=(b, t))
        h[b, 0], g[b, -1] = x[b, 0], h[b, -1]
        h[b, t] = tp.tanh(h[b, t - 1]) + x
        g[b, t] = g[b, t + 1] * h
        tp.output("g", g)
        tp.output("total", (g**2)[:, :].sum())
    return program


X = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)


def test_one_segment_reads_what_the_user_gives_and_writes_what_the_user_gets() -> None:
    backend = Fusing()
    out = tp.compile(there_and_back(), backend=backend)(x=X)
    (program,) = backend.programs
    (segment,) = program.segments
    assert sum(isinstance(each, Loop) for each in segment.body) == 2
    assert set(segment.results) == set(program.outputs.values())  # what is between the loops stays inside
    expected = tp.compile(there_and_back(), backend="reference")(x=X)
    for name, value in expected.items():
        np.testing.assert_allclose(out[name], value, rtol=1e-5)


def test_axes_in_another_order_are_put_in_order_inside() -> None:
    """A loop over i with j lifted inside keeps [j, ...] apart; the user's array has i and j as declared."""
    with tp.Program("columns") as program:
        i, j = tp.dims("i j")
        x = tp.input("x", shape=(), dims=(i, j))
        h = tp.recurrent("h", shape=(), dims=(i, j))
        h[i, 0] = 0
        h[i, j + 1] = h[i, j] * 0.5 + x
        tp.output("h", h)
    backend = Fusing()
    x = X[..., 0]
    out = tp.compile(program, backend=backend)(x=x)
    (made,) = backend.programs
    moved = [each for each in made.segments[0].body if isinstance(each, Compute) and each.op == "transpose"]
    assert moved
    assert not any(buffer.layout for buffer in made.buffers.values() if buffer.from_user != buffer.to_user)
    np.testing.assert_allclose(out["h"], tp.compile(program, backend="reference")(x=x)["h"], rtol=1e-5)


def test_a_run_in_chunks_keeps_its_segments() -> None:
    backend = Fusing()
    told: list[tuple[int, int]] = []
    run = tp.compile(there_and_back(), backend=backend)
    whole = run(x=X)
    chunks = run(x=X, progress=lambda done, total: told.append((done, total)))
    assert len(told) == 2 * 7
    assert len(backend.programs[-1].segments) > 1
    np.testing.assert_array_equal(whole["g"], chunks["g"])
    assert run.executables == 1


def test_a_program_with_host_calls_is_left_alone() -> None:
    def more(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return value + np.float32(1)

    with tp.Program("host") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", shape=(2,), dims=(t,))
        x[0] = tp.zeros((2,))
        (x[t + 1],) = tp.host_call(more, x, out=[((2,), tp.float32)], ordered_by=(t,))
        tp.output("x", x)
        tp.output("sum", x[:].sum())
    backend = Fusing()
    out = tp.compile(program, backend=backend, sizes={"t": 4})()
    assert len(backend.programs) > 1
    np.testing.assert_array_equal(out["x"][:, 0], np.arange(4))


def test_a_loop_that_reads_a_large_part_of_an_input_in_each_iteration_stays_apart() -> None:
    """Layers, of which each has an array of its own: a loop over one stacked array would copy every one."""
    for width, count in ((128, 3), (4, 1)):
        with tp.Program("layers") as program:
            n = tp.dim("n", 4)
            w = tp.input("w", shape=(width, width), dims=(n,))
            h = tp.recurrent("h", shape=(width,), dims=(n,))
            h[0] = tp.ones((width,))
            h[n + 1] = tp.tanh(w @ h)
            tp.output("h", h[n.size - 1])
        backend = Fusing()
        weights = np.random.default_rng(0).normal(size=(4, width, width)).astype(np.float32)
        out = tp.compile(program, backend=backend)(w=weights)
        assert len(backend.programs[0].segments) >= count
        assert (len(backend.programs[0].segments) == 1) is (count == 1)
        np.testing.assert_allclose(out["h"], tp.compile(program, backend="reference")(w=weights)["h"], rtol=1e-4)
