"""Programs of rows that end each by itself, for several test modules."""

from __future__ import annotations

import numpy as np

import tempo as tp

START = np.array([1, 0.5, 4, 0.1], np.float32)
LENGTHS = np.array([3, 2, 5, 1], np.int32)
"""How often START is halved until it is below 0.3, and one more."""


def halves(b: tp.Dim, t: tp.Dim) -> tp.RecurrentTensor:
    x = tp.recurrent("x", (), (b, t))
    x[b, 0] = tp.input("start", (), (b,))
    x[b, t + 1] = x / 2
    return x


def halves_of_rows() -> tuple[tp.Dim, tp.Dim, tp.Dim, tp.RecurrentTensor]:
    """Dims b, t and s, of which rows have `n` points, and `x` halved along t, one value for each point of s."""
    b, t = tp.dim("b"), tp.dim("t")
    s = tp.dim("s", lengths=tp.input("n", (), (b,), tp.int32))
    h = tp.recurrent("h", (), (b, t, s))
    h[b, 0, s] = tp.input("x", (), (b, s))
    h[b, t, s] = h[b, t - 1, s] / 2
    return b, t, s, h
