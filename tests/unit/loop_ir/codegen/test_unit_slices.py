"""One place of an axis is one view; where loops and conditions say that it is inside, nothing is clamped."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.emitter import picked


def _program(reads) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", shape=(2,), dims=(t,)), tp.input("w", shape=(2, 2), dims=())
        h = tp.recurrent("h", shape=(2,), dims=(t,))
        h[0] = x
        h[t + 1] = tp.tanh(h @ w) + reads(tp.sin(x), t)
        tp.output("h", h)
    return program


@pytest.mark.parametrize(
    ("reads", "written"),
    [
        (lambda y, t: y, "[t]"),
        (lambda y, t: y[t.size - 1 - t], "[T - t - 2]"),
        (lambda y, t: y[tp.max(t - 1, 0)], "[max(t - 1, 0)]"),
    ],
)
def test_a_place_that_is_inside_is_an_index(reads, written: str) -> None:
    program = _program(reads)
    given = {"x": np.random.default_rng(0).normal(size=(6, 2)), "w": np.eye(2)}
    run = tp.compile(program, "numpy")
    np.testing.assert_array_equal(run(**given)["h"], tp.compile(program, "reference")(**given)["h"])
    body = run.explain("all").split("for t in range(start, stop)")[1]
    assert written in body
    assert "slice" not in body
    assert "picked" not in body


@pytest.mark.parametrize(("place", "expected"), [(-2, 0), (0, 0), (2, 2), (9, 2)])
def test_what_is_outside_is_clamped(place: int, expected: int) -> None:
    array = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(picked(array, 1, place), array[:, expected])
    assert np.shares_memory(picked(array, 1, place), array)
    assert picked(np.zeros((2, 0, 3)), 1, place).shape == (2, 3)
