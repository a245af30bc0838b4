"""Random programs as users run them: the conformance suite poisons buffers, so there no segment makes its own."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.random_programs import random_program
from tempo.conformance.random_programs.agreement import Mode, Situation, check


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_make_their_buffers_mean_what_the_reference_says(seed: int):
    program = random_program(seed)
    dims = program.build().program.graph().dims
    sizes = {dim.symbol.name: 1 + (seed + at) % 5 for at, dim in enumerate(dims) if not dim.size.is_const}
    mode = Mode("jax", tp.Options(checks=False, lift=seed % 2 == 0, debug=True))
    check(program, [Situation(sizes, seed), Situation(sizes, seed + 1, continued=True)], [mode])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("backward", "stops"), [(False, False), (False, True), (True, False)])
def test_what_a_loop_leaves_in_a_circular_buffer(size: int, backward: bool, stops: bool):
    """The last two points are handed on from iteration to iteration; after the loop they are where others read them."""
    with tp.Program("two_back") as program:
        t = tp.dim("t")
        u = tp.recurrent("u", shape=(3,), dims=(t,))
        first, back = (t >= t.size - 2, 1) if backward else (t < 2, -1)
        u[first] = tp.constant(np.arange(3, dtype=np.float32))
        u[t] = 0.5 * u[t + back] + u[t + 2 * back] + 1
        if not stops:
            tp.output("last", u[0] if backward else u[t.size - 1])
        tp.output("norm", (u**2).sum())
        if stops:
            tp.stop_when(t, u.sum() > 9)
    expected = tp.compile(program, backend="reference", sizes={"t": size})()
    run = tp.compile(program, backend="jax", sizes={"t": size})
    for found in (run(), run(progress=lambda done, total: None)):
        for name, value in expected.items():
            np.testing.assert_allclose(np.asarray(found[name]), value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("points", [2, 4, 5])
def test_an_input_that_lies_in_another_order_for_a_contraction(points: int):
    """In one function with the loop, the input is a buffer that is written as a whole: in the order it lies in."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x = tp.input("x", (2,), (i, t))
        seen = x[i, tp.max(t - 1, 0) : t + 1]
        tp.output("most", tp.argmax(seen, axis=0))
        tp.output("sums", (seen @ x).sum(axis=0))
    given = np.random.default_rng(0).normal(size=(4, points, 2)).astype(np.float32)
    expected = tp.compile(program, backend="reference")(x=given)
    found = tp.compile(program, backend="jax", sizes={"i": 4, "t": points})(x=given)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
