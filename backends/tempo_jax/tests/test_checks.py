"""Checked indices: what is out of range at a point that is needed is said after the run, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tempo_jax.backend import JaxBackend

import tempo as tp
from tempo.backends.base import CompiledSegment, SegmentRequest

CHECKED = tp.Options(checks=True)
WAYS: list[dict[str, Any]] = [{}, {"lift": False}, {"mapping": 2}]
V = np.arange(4, dtype=np.float32)


def compiled(build: Callable[[Any, Any, Any], None], indices: str = "int32", **options: Any) -> Any:
    with tp.Program() as program:
        t = tp.dim("t")
        build(t, tp.input("v", (4,)), tp.input("index", (), (t,), dtype=indices))
    return tp.compile(program, backend="jax", options=tp.Options(checks=True, **options))


def looped(t: Any, v: Any, index: Any) -> None:
    h = tp.recurrent("h", (), (t,))
    h[0] = 0.0
    h[t] = tp.tanh(h[t - 1]) + v.spatial[index]
    tp.output("h", h)


def read(t: Any, v: Any, index: Any) -> None:
    tp.output("h", v.spatial[index])


def in_a_case(t: Any, v: Any, index: Any) -> None:
    h = tp.recurrent("h", (), (t,))
    h[0] = 0.0
    h[t] = tp.tanh(h[t - 1]) + tp.cases((t % 2 == 0, v.spatial[index]), 1.0)
    tp.output("h", h)


@pytest.mark.parametrize("build", [looped, read], ids=["looped", "read"])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64", "uint32"])
def test_the_first_index_out_of_range_is_told(build: Callable[..., None], way: dict[str, Any], dtype: str):
    run = compiled(build, dtype, **way)
    wrong = -7 if dtype[0] == "i" else 200
    index = np.array([0, 3, 1, wrong, 4, 2], dtype)
    with pytest.raises(tp.IndexOutOfRangeError) as caught:
        run(v=V, index=index)
    assert f"index {wrong} is out of range for an axis of size 4 of 'v' at" in str(caught.value)
    assert "test_checks.py" in str(caught.value)
    if "mapping" not in way:
        assert "at t = 3\n" in str(caught.value)
    assert np.asarray(run(v=V, index=index % 4)["h"]).shape == (6,)  # it stays usable


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_not_needed_may_be_out_of_range(way: dict[str, Any]):
    run = compiled(in_a_case, **way)
    found = np.asarray(run(v=V, index=np.array([9, 9, 1, 9, 2], np.int32))["h"])
    expected = [0.0]
    for value in (1.0, 1.0, 1.0, 2.0):
        expected.append(np.tanh(expected[-1]) + value)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(tp.IndexOutOfRangeError, match="index 9 "):
        run(v=V, index=np.array([9, 9, 1, 9, 9], np.int32))


def test_both_sides_of_a_small_branch_are_computed_and_one_counts():
    """Its condition is known at run time only, and selected from: see `SegmentTracer._selects`."""
    with tp.Program() as program:
        t, n = tp.dims("t n")
        v, index = tp.input("v", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        w = tp.input("w", (64, 64))
        h = tp.recurrent("h", (64,), (t,))
        h[0] = tp.zeros((64,))
        h[t] = tp.tanh(h[t - 1] @ w) + tp.cases(((t * 3) % 7 < n.size, v.spatial[index]), 0.5)
        tp.output("h", h)
    run = tp.compile(program, backend="jax", options=CHECKED)
    index = np.array([9 if (t * 3) % 7 >= 3 else 1 for t in range(20)], np.int32)
    w = np.eye(64, dtype=np.float32)
    run(v=V, w=w, index=index, sizes={"n": 3})
    with pytest.raises(tp.IndexOutOfRangeError, match="index 9 .* at t = "):
        run(v=V, w=w, index=index, sizes={"n": 4})


def test_pairs_of_indices_and_places_among_them():
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (3, 4), (b,))
        i, j = (tp.input(name, (2,), (b,), dtype=tp.int32) for name in "ij")
        tp.output("y", x.spatial[i, j])
    run = tp.compile(program, backend="jax", options=CHECKED)
    x, low, high = np.zeros((5, 3, 4), np.float32), np.zeros((5, 2), np.int32), np.full((5, 2), 3, np.int32)
    run(x=x, i=low, j=high)
    high[2, 1] = 4
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 4 .* axis of size 4 of 'x' at b = 2, element 1 of the"):
        run(x=x, i=low, j=high)
    low[1, 0] = 3
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 3 .* axis of size 3 of 'x' at b = 1, element 0 of the"):
        run(x=x, i=low, j=high)


def test_a_stream_raises_at_the_chunk():
    run = compiled(looped)
    stream = run.stream("t", chunk=2, v=V, index=np.array([0, 1, 2, 3, 9, 0], np.int32))
    next(stream)
    next(stream)
    with pytest.raises(tp.IndexOutOfRangeError, match="at t = 4"):
        next(stream)


def test_a_host_call_is_not_given_what_an_index_out_of_range_made():
    seen: list[float] = []
    with tp.Program() as program:
        t = tp.dim("t")
        v, index = tp.input("v", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        h = tp.recurrent("h", (), (t,))
        (answer,) = tp.host_call(
            lambda x: seen.append(float(x)) or x, h + v.spatial[index], out=[((), tp.float32)], ordered_by=(t,)
        )
        h[0] = 0.0
        h[t] = tp.tanh(answer[t - 1])
        tp.output("h", h)
    run = tp.compile(program, backend="jax", options=tp.Options(checks=True, mapping="sequential"))
    with pytest.raises(tp.IndexOutOfRangeError, match="index 5 .* at t = 2"):
        run(v=V, index=np.array([0, 1, 5, 1], np.int32))
    assert len(seen) <= 2


def test_by_default_an_index_is_clamped_and_costs_nothing():
    results: list[bool] = []

    class Counter(JaxBackend):
        def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
            made = super().compile_segment(request)
            results.append(made.function._whole._word is not None)  # type: ignore[attr-defined]
            return made

    for options in (tp.Options(), tp.Options(checks=False), CHECKED):
        with tp.Program() as program:
            t = tp.dim("t")
            looped(t, tp.input("v", (4,)), tp.input("index", (), (t,), dtype=tp.int32))
        run = tp.compile(program, backend=Counter(), options=options)
        if options.checks:
            with pytest.raises(tp.IndexOutOfRangeError):
                run(v=V, index=np.array([0, -100], np.int32))
            continue
        np.testing.assert_array_equal(run(v=V, index=np.array([0, -100], np.int32))["h"], [0, 0])
    assert results[:3] == [False, False, True]  # what raised is compiled once more, without speculation
