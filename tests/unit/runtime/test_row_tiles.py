"""Points of rows in tiles: each once, behind what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tempo as tp
from tempo.runtime.dynamic.inspector import row_tiles

Array = np.ndarray[Any, Any]


@given(st.data(), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_each_point_lies_behind_what_it_reads(data: st.DataObject, size: int, lanes: int, backward: bool) -> None:
    lengths = np.array(data.draw(st.lists(st.integers(0, size), min_size=1, max_size=12)))
    found = row_tiles(lengths, size, lanes, backward)
    if found is None:
        assert lengths.max() < 2
        return
    rows, times, steps = (each.ravel() for each in (found.row, found.time, found.step))
    points = [(row, time) for row, length in enumerate(lengths) for time in range(length)]
    places = [found.position[point] for point in points]
    assert len(set(places)) == len(places)
    for (row, time), place in zip(points, places):
        assert (rows[place], times[place]) == (row, time)
        reads = time + 1 < size if backward else time > 0
        assert (place // lanes >= found.base) == reads
        before = time + 1 if backward else time - 1
        if 0 <= before < lengths[row]:
            assert steps[place] == found.position[row, before]
            assert steps[place] // lanes < place // lanes
    behind = slice(found.base * lanes, None)
    assert (times[behind] < lengths[rows[behind]]).all()
    chains = lengths - ((lengths == size) if backward else (lengths > 0))
    assert len(found.row) - found.base == max(chains.max(), -(-chains.sum() // lanes))  # no order takes fewer


@pytest.mark.parametrize("backward", [False, True])
def test_rows_that_fill_tiles_leave_no_gap(backward: bool) -> None:
    lengths = np.full(8, 4)
    found = row_tiles(lengths, 4, 4, backward)
    assert found is not None
    assert len(found.row) == 8


Step = Callable[[tp.RecurrentTensor, tp.RecurrentTensor, tp.RecurrentTensor], tp.RecurrentTensor]
IN_TILES: dict[str, Step] = {
    "a state that is normed": lambda w, h, x: w @ tp.layer_norm(h) + x,
    "an input that is normed": lambda w, h, x: w @ h + tp.layer_norm(x),
    "halves": lambda w, h, x: (w @ h) / 2 + x / 2,
    "a gate": lambda w, h, x: h * tp.exp(-h * h) + x,
    "exponentials": lambda w, h, x: w @ h + tp.exp(x) + tp.softmax(x),
    "an infinite input behind the row": lambda w, h, x: (w @ h) * tp.log(x),
}


@pytest.mark.parametrize("step", IN_TILES.values(), ids=IN_TILES)
def test_gradients_of_finite_steps_are_in_tiles(step: Step) -> None:
    """Divisions and exponentials take none out of tiles that are finite in each of their lanes."""
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, w, h = tp.input("x", (2,), (b, t)), tp.input("w", (2, 2)), tp.recurrent("h", (2,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(step(w, h, x[b, t + 1]))
        for name, gradient in tp.grad((h * h)[:, :].sum(), {"x": x, "w": w}).items():
            tp.output(name, gradient)
    draw, n = np.random.default_rng(0), np.array([3, 1, 0, 4], np.int32)
    x_, w_ = draw.uniform(0.5, 1.5, (4, 4, 2)).astype(np.float32), draw.normal(size=(2, 2)).astype(np.float32)
    run = tp.compile(program, "numpy", options=tp.Options(mapping={"t": 2}))
    found, meant = (each(n=n, x=x_, w=w_) for each in (run, tp.compile(program, "reference")))
    assert "t: in tiles" in run.explain()
    for name in "xw":
        np.testing.assert_allclose(found[name], meant[name], rtol=1e-4, atol=1e-5)
