"""What a call costs beside its segments: nothing else is compiled, and nothing twice."""

from __future__ import annotations

import gc
import linecache
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring
from tempo_jax.backend import JaxBackend, JittedSegment
from tempo_jax.executables import Calls, JittedFunction, Meter
from tempo_jax.segments import SegmentTracer

import tempo as tp
from tempo.backends.base import CompiledSegment, SegmentRequest
from tempo.caches import CACHE_VARIABLE

COMPILED = "/jax/core/compile/backend_compile_duration"


class Compilations(list[str]):
    """Grows by one with each executable that JAX makes; an operator outside of a segment is one too."""

    listens = True

    def __call__(self, event: str, seconds: float, **_: Any) -> None:
        if self.listens and event == COMPILED:
            self.append(event)


@pytest.fixture
def compilations() -> Iterator[Compilations]:
    found = Compilations()
    monitoring.register_event_duration_secs_listener(found)
    yield found
    found.listens = False  # listeners cannot be taken away


def recurrence(width: int) -> tp.Program:
    with tp.Program("recurrence") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(width, width), dims=())
        start = tp.input("start", shape=(width,), dims=())
        h = tp.recurrent("h", shape=(width,), dims=(t,))
        h[0] = start
        h[t + 1] = tp.tanh(h @ w)
        tp.output("h", h)
        tp.output("last", h[t.size - 1])
        tp.output("total", h[t.size - 1].sum())
    return program


def test_an_eager_operator_counts(compilations: Compilations):
    jnp.ones((37, 41)) + 1.0
    assert len(compilations) > 0


def test_a_call_compiles_its_segments_and_nothing_else(compilations: Compilations):
    run = tp.compile(recurrence(17), backend="jax", sizes={"t": 23})
    w, start = np.eye(17, dtype=np.float32), np.ones(17, np.float32)
    run(w=w, start=start)
    assert len(compilations) <= 2  # the loop, and what follows it


def test_what_a_run_returns_goes_into_another_without_compiling(compilations: Compilations):
    run = tp.compile(recurrence(18), backend="jax", sizes={"t": 23})
    w, start = np.eye(18, dtype=np.float32), np.ones(18, np.float32)
    out = run(w=w, start=start)
    matrix = jnp.asarray(w)
    del compilations[:]
    out = run(w=w, start=out["last"])
    again = run(w=matrix, start=out["last"])
    assert compilations == []
    np.testing.assert_array_equal(out["last"], np.asarray(out["h"])[-1])
    assert np.isfinite(np.asarray(again["h"])).all()


def test_a_run_that_ends_elsewhere_compiles_nothing(compilations: Compilations):
    """Outputs are cut to the points that were kept; each count would be another slice."""
    with tp.Program() as program:
        t = tp.dim("t")
        limit = tp.input("limit", shape=(), dims=(), dtype="int32")
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = 0
        h[t + 1] = h[t] + 1
        tp.stop_when(t, tp.as_tensor(t) >= limit)
        tp.output("h", h)
    run = tp.compile(program, backend="jax", sizes={"t": 29})
    first = run(limit=np.int32(4))
    del compilations[:]
    second = run(limit=np.int32(7))
    assert compilations == []
    for out, count in ((first, 5), (second, 8)):
        assert isinstance(out["h"], jax.Array)
        np.testing.assert_array_equal(out["h"], np.repeat(np.arange(count, dtype=np.float32)[:, None], 3, axis=1))


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was put on the device by a call of its own."""
    found: list[Any] = []
    put = jax.device_put

    def noted(array: Any, *rest: Any, **more: Any) -> Any:
        found.append(array)
        return put(array, *rest, **more)

    monkeypatch.setattr(jax, "device_put", noted)
    return found


def test_a_call_takes_arrays_of_the_host_to_the_device_itself(moved: list[Any]):
    run = tp.compile(recurrence(15), backend="jax", sizes={"t": 9})
    w, start = np.eye(15, dtype=np.float32), np.ones(15, np.float32)
    del moved[:]
    first, second = run(w=w, start=start), run(w=jnp.asarray(w), start=start)
    assert moved == []
    np.testing.assert_array_equal(first["h"], second["h"])


def test_chunks_take_arrays_of_the_host_to_the_device_once(moved: list[Any]):
    run = tp.compile(recurrence(14), backend="jax", sizes={"t": 9})
    w, start = np.eye(14, dtype=np.float32), np.ones(14, np.float32)
    whole = run(w=w, start=start)
    for steps in (1, 2):
        del moved[:]
        stream = run.stream("t", chunk=steps, w=w, start=start)
        assert len(list(stream)) == -(-9 // steps)
        assert sum(np.shape(each) == (14, 14) for each in moved) == 1
        assert stream.result is not None
        np.testing.assert_array_equal(stream.result["h"], whole["h"])


def test_a_loop_of_the_host_takes_arrays_of_the_host_to_the_device_once(moved: list[Any]):
    with tp.Program() as program:
        t = tp.dim("t")
        w = tp.input("w", (13, 13), ())
        x = tp.recurrent("x", (13,), (t,))
        (following,) = tp.host_call(lambda y: y + np.float32(1), x @ w, out=[((13,), "float32")], ordered_by=(t,))
        x[0], x[t + 1] = tp.zeros((13,)), following
        tp.output("x", x)
    run = tp.compile(program, backend="jax", sizes={"t": 6})
    x_found = run(w=np.eye(13, dtype=np.float32))["x"]
    assert sum(np.shape(each) == (13, 13) for each in moved) == 1
    np.testing.assert_array_equal(x_found, np.repeat(np.arange(6.0)[:, None], 13, 1))


def test_steps_of_a_host_loop_compile_nothing(compilations: Compilations):
    def answer(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts.append(len(compilations))
        seen.append(x)
        return x + np.float32(1), np.float64(len(seen))

    seen: list[np.ndarray] = []
    counts: list[int] = []
    with tp.Program("host") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", shape=(19,), dims=(t,))
        following, count = tp.host_call(answer, x * 0.5, out=[((19,), tp.float32), ((), tp.float64)], ordered_by=(t,))
        x[0] = tp.zeros((19,))
        x[t + 1] = following
        tp.output("x", x)
        tp.output("count", count)
        tp.output("last", following[t.size - 1])
    out = tp.compile(program, backend="jax", sizes={"t": 9})()
    assert len(set(counts[2:])) == 1  # the first steps compile the segments
    assert all(isinstance(array, jax.Array) for array in out.values())
    np.testing.assert_array_equal(np.asarray(out["count"]), np.arange(1.0, 10.0))
    np.testing.assert_array_equal(np.asarray(out["last"]), np.asarray(out["x"])[-1] * np.float32(0.5) + 1)


def test_many_arrays_of_a_streamed_input_are_one_call(compilations: Compilations, monkeypatch: pytest.MonkeyPatch):
    """The first point is a stretch of its own. What was given to a call is not written to while it may still run."""
    calls: list[int] = []
    called = JittedFunction.__call__

    def counted(self: JittedFunction, *arguments: Any) -> Any:
        calls.append(len(compilations))
        return called(self, *arguments)

    monkeypatch.setattr(JittedFunction, "__call__", counted)
    with tp.Program("averages") as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (20,), (i,))
        w = tp.parameter("w", (20,), np.zeros(20, np.float32), dims=(i,))
        w[i + 1] = 0.5 * (w + x)
        tp.output("w", w)
    run, size = tp.compile(program, backend="jax", sizes={"i": 300}), 300
    data = np.random.default_rng(0).normal(size=(size, 20)).astype(np.float32)
    out = run(x=iter(data))
    assert len(calls) <= size // 32 + 4
    assert len(set(calls)) <= 4
    np.testing.assert_allclose(out["w"], tp.compile(program, backend="reference")(x=data)["w"], rtol=1e-5)
    before = len(compilations)
    run(x=iter(data))
    assert len(compilations) == before


def test_a_host_loop_leaves_the_switches_of_the_process_alone():
    """XLA looks at this one when its client is made, which was long ago: for others it would change, here nothing."""
    jax.config.update("jax_cpu_enable_async_dispatch", True)
    with tp.Program() as program:
        i = tp.dim("i")
        tp.output("y", tp.stream_input("x", (), (i,)) + 1)
    run = tp.compile(program, backend="jax")
    np.testing.assert_array_equal(run(x=np.arange(4, dtype=np.float32))["y"], [1, 2, 3, 4])
    assert jax.config.read("jax_cpu_enable_async_dispatch")


class Kept(JaxBackend):
    """Remembers every call of a segment, as the optimised HLO of what runs all of it; of a part as nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        made = super().compile_segment(request)
        assert isinstance(made.function, JittedSegment)

        def call(*arguments: Any) -> tuple[Any, ...]:
            whole = made.function.executable(*arguments[:2])  # type: ignore[attr-defined]
            self.texts.append(whole.function.lower(*arguments).compile().as_text() if whole else "")
            return made.function(*arguments)

        return CompiledSegment(call, made.source)


def test_a_program_without_host_calls_is_one_executable():
    """The user's axes are (b, t, ...), those of the buffers (t, b, ...): what is in between is part of it too."""
    with tp.Program("rows") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(3,), dims=(b, t))
        h = tp.recurrent("h", shape=(3,), dims=(b, t))
        h[b, 0] = x[b, 0]
        h[b, t + 1] = tp.tanh(h[b, t]) + x[b, t + 1]
        tp.output("h", h)
        tp.output("total", (h**2)[:, :].sum())
    x = np.random.default_rng(0).normal(size=(4, 9, 3)).astype(np.float32)
    backend = Kept()
    run = tp.compile(program, backend=backend, sizes={"b": 4, "t": 9})
    out = run(x=x)
    assert len(backend.texts) == 1
    expected = tp.compile(program, backend="reference")(x=x)
    np.testing.assert_allclose(np.asarray(out["h"]), expected["h"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(out["total"]), expected["total"], rtol=1e-5)
    run(x=x, progress=lambda done, total: None)
    assert len(backend.texts) > 2  # in parts, so that there is something to tell


def test_a_loop_that_runs_whole_has_a_known_trip_count():
    backend = Kept()
    run = tp.compile(recurrence(16), backend=backend, sizes={"t": 50})
    inputs = {"w": np.eye(16, dtype=np.float32), "start": np.ones(16, np.float32)}
    expected = np.asarray(run(**inputs)["h"])
    assert ['"known_trip_count":' in text for text in backend.texts] == [True]
    seen: list[tuple[int, int]] = []
    chunks = run(progress=lambda done, total: seen.append((done, total)), **inputs)
    assert len(seen) > 1
    assert "" in backend.texts[1:], "parts have executables of their own"
    np.testing.assert_array_equal(np.asarray(chunks["h"]), expected)


def test_threads_that_call_at_once_compile_once(monkeypatch: pytest.MonkeyPatch):
    traces: list[str] = []
    inner = SegmentTracer.__call__

    def slow(self: SegmentTracer, *arguments: Any) -> Any:
        traces.append(self.__name__)
        threading.Event().wait(0.05)
        return inner(self, *arguments)

    monkeypatch.setattr(SegmentTracer, "__call__", slow)
    for dtype in ("float32", "float64"):  # 64 bits are a switch of each thread
        with tp.Program("sums") as program:
            t = tp.dim("t")
            x = tp.input("x", shape=(3,), dims=(t,), dtype=dtype)
            tp.output("s", x[0 : t + 1].sum(axis=0))
        run, barrier = tp.compile(program, backend="jax"), threading.Barrier(4)

        def call(number: int, run: Any = run, barrier: threading.Barrier = barrier, dtype: str = dtype) -> Any:
            x = np.full((5, 3), 0.1 * number, dtype)
            barrier.wait()
            return x, np.asarray(run(x=x)["s"])

        traces.clear()
        with ThreadPoolExecutor(4) as pool:
            for x, found in pool.map(call, range(4)):
                assert found.dtype == dtype
                np.testing.assert_allclose(found, x.cumsum(0), rtol=1e-6)
        assert len(traces) == 1


def test_a_first_call_says_that_it_compiles(caplog: pytest.LogCaptureFixture):
    run = tp.compile(recurrence(5), backend="jax", sizes={"t": 4})
    with caplog.at_level("INFO", "tempo"):
        run(w=np.eye(5, dtype=np.float32), start=np.ones(5, np.float32))
        said = [record.getMessage() for record in caplog.records]
        run(w=np.eye(5, dtype=np.float32), start=np.ones(5, np.float32))
    assert any(message.startswith("XLA compiles segment_0") for message in said)
    assert len(caplog.records) == len(said)


def test_nothing_is_kept_of_what_is_dropped():
    def compiled() -> Any:
        run = tp.compile(recurrence(5), backend="jax", sizes={"t": 4})
        run(w=np.eye(5, dtype=np.float32), start=np.ones(5, np.float32))
        return run

    def kept() -> tuple[int, int]:
        gc.collect()
        tracers = sum(type(each) is SegmentTracer for each in gc.get_objects())
        return tracers, sum(name.startswith("<tempo ") for name in linecache.cache)

    before = kept()
    run = compiled()
    assert all(now > then for now, then in zip(kept(), before, strict=True))
    for _ in range(4):
        run = compiled()
    del run
    assert kept() == before


# -- ahead of time -----------------------------------------------------------------------------------------------------


def scaled(layers: int) -> tp.Program:
    """Two passes over layers, and a recurrence that begins with what these have made."""
    with tp.Program() as program:
        l, t = tp.dim("l", layers), tp.dim("t")
        w = tp.input("w", (3, 3), (l,))
        x, y = tp.recurrent("x", (3,), (l,)), tp.recurrent("y", (3,), (t,))
        x[0], x[l + 1] = tp.ones(3), tp.tanh(x @ w)
        y[0], y[t + 1] = x[l.size - 1], tp.sin(y)
        tp.output("y", y)
    return program


@pytest.mark.parametrize("has_cache", [True, False])
@pytest.mark.parametrize("fuses", [True, False])
def test_nothing_is_left_to_compile_for_a_run(
    fuses: bool,
    has_cache: bool,
    compilations: Compilations,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    """Where each segment is an executable, too, and where no file is kept."""
    monkeypatch.setattr(JaxBackend, "fuses_segments", fuses)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path) if has_cache else "")
    w = [np.full((3, 3), at / 7, np.float32) for at in range(4)]
    expected = np.asarray(tp.compile(scaled(4), "numpy", sizes={"t": 5})(w=w)["y"])
    for _ in range(2):
        run = tp.compile(scaled(4), "jax", sizes={"t": 5})
        before = len(compilations)
        run.compile_ahead(w=w)
        made = len(compilations)
        assert (made > before) or has_cache
        np.testing.assert_allclose(np.asarray(run(w=w)["y"]), expected, rtol=1e-6)
        run.compile_ahead(w=w)
        assert len(compilations) == made


def test_what_is_compiled_ahead_without_sizes_is_told():
    run = tp.compile(recurrence(3), backend="jax")
    with pytest.raises(tp.SizeError, match="no sizes are known"):
        run.compile_ahead()
    with pytest.raises(tp.InputError, match="no input 'v'"):
        run.compile_ahead(v=1)


def test_an_error_of_the_compiler_is_raised_ahead(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: Any, **__: Any) -> None:
        raise ValueError("refused")

    run = tp.compile(recurrence(3), backend="jax", sizes={"t": 4})
    with monkeypatch.context() as patched:
        patched.setattr(jax.stages.Lowered, "compile", refused)
        with pytest.raises(ValueError, match="refused"):
            run.compile_ahead()
    found = run(w=np.eye(3, dtype=np.float32), start=np.ones(3, np.float32))["h"]
    assert np.asarray(found).shape == (4, 3)


def test_work_for_other_arguments_is_not_mixed_up():
    """Two threads that compile one function ahead, before either has begun."""
    waiting = list[Callable[[], None]]()

    def submit(work: Callable[[], None]) -> Callable[[], None]:
        waiting.append(work)
        return lambda: None

    function = JittedFunction(lambda x: (x + 1,), "plus", None, Calls((), Meter()), own="plus")
    for size in (3, 4):
        function.make((jax.ShapeDtypeStruct((size,), np.float32),), submit)
    for work in waiting:
        work()
    for size in (4, 3):
        np.testing.assert_array_equal(function(jnp.zeros(size, jnp.float32))[0], np.ones(size))


def test_an_input_that_is_needed_for_nothing_is_not_looked_at():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.input("spare", (), (t,))
        tp.output("y", x + 1)
    run = tp.compile(program, "jax", sizes={"t": 3})
    run.compile_ahead(spare=[np.float32(1)] * 3)
    assert np.asarray(run(x=np.ones(3, np.float32), spare=np.ones(3, np.float32))["y"]).tolist() == [2, 2, 2]
