"""The generated source: readable, and free of clashes with what users name things."""

from __future__ import annotations

import gc
import linecache
import traceback
from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from tempo.backends.base import define
from tests.unit.lowering.planned import sources
from tests.unit.lowering.storage.test_assignment import BACKWARD, RUNNING_SUM


def test_a_loop_is_what_one_would_write() -> None:
    assert sources(RUNNING_SUM, t=5).splitlines()[:9] == [
        "def segment_0(start, stop, b0, b1, b3):",
        "    for t in range(start, stop):",
        "        if t == 0:",
        "            h_3 = b1",
        "        else:",
        "            h_3 = b3",
        "        sum_4 = add(h_3, b0[t])",
        "        b3 = sum_4",
        "    return (b3,)",
    ]


def test_a_loop_backward_in_time_counts_down() -> None:
    assert "for t in range(stop - 1, start - 1, -1):" in sources(BACKWARD, t=5)


@pytest.mark.parametrize(
    "name", ["add", "range", "start", "b0", "v1", "lambda_", "min", "buffers", "T", "fresh", "x_1"]
)
def test_a_dim_may_be_called_anything(name: str) -> None:
    with tp.Program() as program:
        t = tp.dim(name)
        x = tp.input("x", shape=(2,), dims=(t,))
        s = tp.recurrent("s", shape=(2,), dims=(t,))
        s[0] = x
        s[t + 1] = tp.minimum(s, 10.0) + x[t + 1]
        tp.output("s", s)
        tp.output("recent", x[tp.max(t - 1, 0) : t + 1].sum(axis=0))
    x = np.ones((4, 2), np.float32)
    out = tp.compile(program)(x=x)
    np.testing.assert_array_equal(out["s"], x.cumsum(0))
    np.testing.assert_array_equal(out["recent"][:, 0], [1, 2, 2, 2])


@pytest.mark.parametrize("name", ["table", "mul", "start", "b0", "v", "def"])
def test_tensors_may_be_called_anything(name: str) -> None:
    with tp.Program() as program:
        t, s = tp.dims("t s")
        x = tp.input("x", shape=(2,), dims=(t,))
        first = tp.recurrent(name, shape=(2,), dims=(t,))
        first[t < 5] = x * x
        first[t == 7] = x  # not covered in between, so tables guard the loop over t
        second = tp.recurrent(name, shape=(2, 2), dims=(t,))
        second[t % 2 == 0] = first.reshape((2, 1)) * first
        tp.output("second", second[2 * s])
        tp.output("first", first[2 * s])
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    out = tp.compile(program, sizes={"s": 3}, options=tp.Options(lift=False))(x=x)
    np.testing.assert_array_equal(out["first"], x[::2] ** 2)
    np.testing.assert_array_equal(out["second"], x[::2, :, None] ** 2 * x[::2, None] ** 2)


def test_tracebacks_show_the_generated_line() -> None:

    function = define("def segment_0(x):\n    return x + missing\n", "segment_0", {})
    with pytest.raises(NameError) as caught:
        function(1)
    assert "return x + missing" in "".join(traceback.format_exception(caught.value))


def test_the_source_is_saved_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_DUMP", str(tmp_path))
    sources(RUNNING_SUM, t=3)
    saved = [path.read_text() for path in sorted(tmp_path.iterdir())]
    assert any("sum_4 = add(h_3, b0[t])" in text for text in saved)


def test_a_host_call_may_read_what_is_ahead() -> None:
    rows: list[list[float]] = []
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.sink(lambda ahead: rows.append(ahead.tolist()), x[t : t.size], ordered_by=(t,))
    run = tp.compile(program)
    run(x=np.arange(3, dtype=np.float32))
    run(x=np.arange(2, dtype=np.float32))
    assert rows == [[0, 1, 2], [1, 2], [2], [0, 1], [1]]


@pytest.mark.slow
def test_sources_are_forgotten_with_their_functions() -> None:
    def kept() -> int:
        gc.collect()
        return sum(name.startswith("<tempo ") for name in linecache.cache)

    before = kept()
    for size in range(2):
        with tp.Program() as program:
            t = tp.dim("t", size + 2)
            s = tp.recurrent("s", shape=(), dims=(t,))
            s[0] = 0.0
            s[t + 1] = s + 1.0
            tp.output("s", s)
        run = tp.compile(program)
        run()
        assert kept() > before
        del run
        assert kept() == before


def _differences(backward: bool) -> tp.Program:
    """What one and two points before were: a circular buffer of a few places, of scalars and of rows."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, y = tp.input("x", shape=(), dims=(t,)), tp.input("y", shape=(2,), dims=(t,))
        s, r = tp.recurrent("s", shape=(), dims=(t,)), tp.recurrent("r", shape=(2,), dims=(t,))
        step = -1 if backward else 1
        edge = t >= t.size - 2 if backward else t < 2
        s[edge], r[edge] = x, y
        s[True] = 0.5 * s[t - step] + tp.sin(s[t - 2 * step]) - x
        r[True] = r[t - step] * s[t - step] - tp.cos(r[t - 2 * step]) + y
        tp.output("doubled", s * 2.0)
        tp.output("row", r + 1.0)
    return program


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_what_iterations_before_wrote_has_a_name(backward: bool, steps: int) -> None:
    program, draw = _differences(backward), np.random.default_rng(0)
    given = {"x": draw.normal(size=steps), "y": draw.normal(size=(steps, 2))}
    options = tp.Options(poison=True, lift=False)  # lifted readers would want all points
    run = tp.compile(program, "numpy", options=options)
    found, wanted = run(**given), tp.compile(program, "reference")(**given)
    body = run.explain("all").split("for t in range")[1].split("    return")[0]
    assert "%" not in body.split("\n    t = ")[0], body
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
        if not backward:
            chunks = tp.compile(program, "numpy", options=options).stream("t", chunk=3, **given)
            np.testing.assert_array_equal(np.concatenate([chunk[name] for chunk in chunks]), wanted[name])
