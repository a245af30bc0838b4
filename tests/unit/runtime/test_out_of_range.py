"""What the error of an index out of range says: the tensor, the line, the point, and the place among the indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.sdg.operators.located import point_of
from tempo.symbolic import Symbol, size, var

X = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize("backend", ["numpy", "reference"])
@pytest.mark.parametrize("options", [{}, {"lift": False}, {"mapping": "full"}], ids=str)
@pytest.mark.parametrize("looped", [False, True])
def test_a_row_of_indices(backend: str, options: dict[str, Any], looped: bool):
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (4,), (b,))
        index = tp.input("index", (2, 3), (b, t), dtype=tp.int64)
        found = x.spatial[index].sum()
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = 0.0
        h[b, t] = tp.tanh(h[b, t - 1]) + found[b, t - 1]
        tp.output("h", h if looped else found)
    run = tp.compile(program, backend=backend, options=tp.Options(**options))
    index = np.zeros((3, 5, 2, 3), np.int64)
    index[2, 3, 1, 2] = 2**40
    with pytest.raises(tp.IndexOutOfRangeError) as caught:
        run(x=X, index=index)
    said = "index 1099511627776 is out of range for an axis of size 4 of 'x' at b = 2, t = 3, element (1, 2) of the"
    assert said in str(caught.value)
    assert "found = x.spatial[index].sum()" in str(caught.value)


def test_the_second_of_two_indices():
    with tp.Program() as program:
        x = tp.input("x", (3, 4), ())
        i, j = (tp.input(name, (2,), (), dtype=tp.int32) for name in "ij")
        tp.output("y", x.spatial[i, j])
    with pytest.raises(
        tp.IndexOutOfRangeError, match="index -1 is out of range for an axis of size 4 of 'x', element 1"
    ):
        tp.compile(program)(x=X, i=np.array([0, 2]), j=np.array([3, -1]))


@pytest.mark.parametrize("options", [{}, {"lift": False}], ids=str)
def test_a_stretch_that_begins_where_a_size_says(options: dict[str, Any]):
    """The size is no shape's, so nothing that is compiled knows it."""
    with tp.Program() as program:
        t = tp.dim("t")
        v = tp.input("v", (4,), ())
        found = v.spatial[tp.as_tensor(t.size - 1 - t) * 3]
        tp.output("y", found[t.size - 3 : t.size])
    with pytest.raises(tp.IndexOutOfRangeError, match="index 6 is out of range for an axis of size 4 of 'v'"):
        tp.compile(program, options=tp.Options(**options))(v=X[0], sizes={"t": 9})


def test_a_point_of_a_stretch_whose_begin_is_not_known_is_left_out():
    t, n = Symbol("t", "dim"), size("n")
    layout = (var(t) - n + 3, 0)
    assert point_of((2, 1), layout, {Symbol("n", "size"): 9}) == ({t: 8}, [1])
    assert point_of((2, 1), layout, {}) == ({}, [1])
