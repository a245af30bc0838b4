"""Points of rows that no point reads, and that have no finite gradient: they add nothing to any.

What that means is what it means for each row alone, as a dense program of the row's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.rows_of_lengths import PACKED
from tempo.conformance.target import Array, Target, numbers

Make = Callable[[tp.Dim, tp.Dim, tp.RecurrentTensor, tp.RecurrentTensor], tp.RecurrentTensor]

LENGTHS = np.array([3, 1, 0, 4, 2], np.int32)
SIZE = 4


def definition(
    b: tp.Dim, t: tp.Dim, first: tp.RecurrentTensor, step: Callable[[tp.RecurrentTensor], Any], by: int
) -> tp.RecurrentTensor:
    """Forwards from the first point, or with steps `by` no points backwards from the last one."""
    h = tp.recurrent("h", (), (b, t))
    h[b, 0 if by else t.last] = first
    h[b, t + by] = step(h)
    return h


def in_turn(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, w: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """`g` is read one point later alone, by `h` and by itself."""
    h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
    h[b, 0] = x
    h[b, t + 1] = tp.tanh(h + g * w) + x[b, t + 1]
    g[b, 0] = w / x
    g[b, t + 1] = tp.sin(g + h * w) / x[b, t + 1]
    return h


def in_turn_backwards(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, w: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
    h[b, t.last] = x
    h[b, t] = tp.tanh(h[b, t + 1] + g[b, t + 1] * w) + x
    g[b, t.last] = w / x
    g[b, t] = tp.sin(g[b, t + 1] + h * w) / x
    return h


def printed(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, w: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """An output reads more than the loss."""
    ratio = w / x
    tp.output("ratio", ratio)
    return definition(b, t, x, lambda h: tp.tanh(h + ratio) + x[b, t + 1], 1)


AT_THE_LAST: Mapping[str, Make] = {
    "forwards": lambda b, t, x, w: definition(b, t, x, lambda h: tp.tanh(h + 1 / x) + x[b, t + 1], 1),
    "products": lambda b, t, x, w: definition(b, t, x, lambda h: h * (w / x) * x[b, t + 1], 1),
    "states": lambda b, t, x, w: definition(b, t, x, lambda h: w / h + x[b, t + 1], 1),
    "in turn": in_turn,
    "printed": printed,
    "in a case": lambda b, t, x, w: tp.cases((t < t.last, tp.log(x) * w), x),
    "behind others": lambda b, t, x, w: tp.cases((t == 0, x * w), (t < t.last, tp.sqrt(x) / x * w), x),
    "two back": lambda b, t, x, w: tp.cases((t >= 2, (w / x)[b, t - 2]), x),
    "before": lambda b, t, x, w: tp.cases((t >= 1, (tp.log(x) * w)[b, 0:t].sum()), x),
    "a selection of data": lambda b, t, x, w: tp.cases(
        (t < t.last, tp.where(x > -1, tp.log(x) * w, 0) * x[b, t + 1]), x
    ),
    "a selection of data behind": lambda b, t, x, w: tp.cases(
        (t < t.last - 1, tp.where(x > -1, tp.log(x[b, t + 1]), 0) * w), x
    ),
    "the first": lambda b, t, x, w: x + tp.cases((t.last >= 1, (w / x)[b, 0]), 1.0),
    "a row": lambda b, t, x, w: tp.cases((t.last >= 1, tp.log(x[b, 0]) * w * x), x),
    "half way": lambda b, t, x, w: tp.cases((t.last >= 1, (tp.log(x) * w)[b, t // 2]), x),
    "no gradient goes through it": lambda b, t, x, w: (
        tp.cases((t < t.last, tp.log(x) * w), x) * tp.where(tp.stop_gradient(tp.log(x) * w) < 0, w, 1)
    ),
}
NOT_AT_THE_LAST: Mapping[str, Make] = {
    "the last alone": lambda b, t, x, w: tp.cases((t == t.last, tp.log(x) * w), x * w),
    "read at it": lambda b, t, x, w: (tp.log(x) * w)[b, t.last],
    "never": lambda b, t, x, w: tp.cases((t < t.last, tp.log(x) * w), x)[b, t.last],
    "begins there": lambda b, t, x, w: definition(b, t, w / x, lambda h: tp.tanh(h[b, t + 1]) + x, 0),
}
NOT_AT_THE_FIRST: Mapping[str, Make] = {
    "backwards": lambda b, t, x, w: definition(b, t, x, lambda h: tp.tanh(h[b, t + 1] + w / x[b, t + 1]) + x, 0),
    "in turn, backwards": in_turn_backwards,
}
BEHIND: Mapping[str, Make] = {
    "read in a case": lambda b, t, x, w: tp.cases((t < t.last, tp.log(x[b, t + 1]) * w), x),
    "further on": lambda b, t, x, w: tp.cases((t < t.last, tp.exp(x) / (x[b, t + 1] * w) * x), x),
    "from the last": lambda b, t, x, w: tp.cases((t.last >= 1, tp.log(x[b, t.last - 1]) * w), x),
    "of the row": lambda b, t, x, w: tp.cases((t.last >= 0, x[b, :].max() / x[b, t.last] * w), 0),
    "read forwards": lambda b, t, x, w: definition(b, t, x, lambda h: tp.tanh(h + tp.sqrt(x[b, t + 1] * w)), 1),
    "products forwards": lambda b, t, x, w: definition(b, t, x, lambda h: tp.tanh(h * (w / x[b, t + 1])), 1),
    "read backwards": lambda b, t, x, w: definition(b, t, x * w, lambda h: tp.tanh(h[b, t + 1] / x[b, t + 1]), 0),
    "running product": lambda b, t, x, w: tp.cases(
        (t < t.last, tp.cumprod(tp.stack([x, w * x[b, t + 1], x]), axis=0).sum()), x
    ),
}
"""What is made of the zeros that a read behind a row shows."""

NOT_READ = {**BEHIND, **AT_THE_LAST, **NOT_AT_THE_LAST, **NOT_AT_THE_FIRST}


def unread(name: str, x: Array, counts: Array) -> Array:
    """Which points have a zero."""
    at, last = np.arange(x.shape[1]), counts[:, None] - 1
    if name in BEHIND:
        return np.zeros(x.shape, np.bool_)
    places = at == last if name in AT_THE_LAST else at != last if name in NOT_AT_THE_LAST else at == 0
    return np.broadcast_to(places, x.shape)


def program_of(make: Make, ragged: bool, computed: bool = False) -> tp.Program:
    with tp.Program() as program:
        b = tp.dim("b")
        n = tp.input("n", (), (b,), "int32") if ragged else None
        t = tp.dim("t") if n is None else tp.dim("t", lengths=n * 1 if computed else n)
        x, w = tp.input("x", (), (b, t)), tp.input("w", ())
        y = make(b, t, x, w)
        if ragged and len(y.domain) == 1:  # a row of none has no last point
            y = tp.cases((t.last >= 0, y), 0.0)
        tp.output("y", y)
        loss = (y * y)[tuple(slice(None) for _ in y.domain)].sum()
        for each, gradient in tp.grad(loss, {"dx": x, "dw": w}).items():
            tp.output(each, gradient)
    return program


def check(target: Target, name: str, options: Mapping[str, Any], computed: bool = False) -> None:
    n, w = LENGTHS, np.float32(0.7)
    inside = np.arange(SIZE) < n[:, None]
    x = np.abs(numbers((len(n), SIZE))) + 0.5
    x = np.where(unread(name, x, n), 0, x)
    alone = tp.compile(program_of(NOT_READ[name], ragged=False), "reference")
    dx, dw = np.zeros(x.shape, np.float32), np.float32(0)
    for row, count in enumerate(n):
        if count:
            found = alone(x=x[[row], :count].astype(np.float32), w=w)
            dx[row, :count], dw = found["dx"][0], dw + found["dw"]
    assert np.isfinite(dx).all()
    given = np.where(inside, x, np.nan).astype(np.float32)
    outputs = target.agrees(
        program_of(NOT_READ[name], True, computed), None, tolerance=5, n=n, x=given, w=w, options=options
    )
    found = target.arrays(outputs)
    np.testing.assert_allclose(found["dx"], dx, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["dw"], dw, rtol=1e-4, atol=1e-5)


@pytest.mark.planned
@pytest.mark.parametrize("options", [{}, PACKED], ids=str)
@pytest.mark.parametrize("name", NOT_READ)
def test_points_that_no_point_reads(target: Target, name: str, options: dict[str, Any]) -> None:
    check(target, name, options)


@pytest.mark.parametrize("name", ["forwards", "in a case", "read at it"])
def test_in_rows_of_computed_lengths(target: Target, name: str) -> None:
    check(target, name, {}, computed=True)


@pytest.mark.planned
@pytest.mark.parametrize("options", [{}, {"mapping": {"u": 2}}], ids=str)
def test_last_points_of_rows_in_rows(target: Target, options: dict[str, Any]) -> None:
    """Words of sentences, and a recurrence over the sentences' sums."""
    with tp.Program() as program:
        b = tp.dim("b")
        s = tp.dim("s", lengths=tp.input("n", (), (b,), "int32"))
        u = tp.dim("u", lengths=tp.input("m", (), (b, s), "int32"))
        x, w = tp.input("x", (), (b, s, u)), tp.input("w", ())
        h, g = tp.recurrent("h", (), (b, s, u)), tp.recurrent("g", (), (b, s))
        h[b, s, 0] = x
        h[b, s, u + 1] = tp.tanh(h + w / x) + x[b, s, u + 1]
        kept = tp.cases((u < u.last, tp.log(x) * h), h)
        sums = kept[b, s, :].sum()
        g[b, 0] = sums
        g[b, s + 1] = tp.tanh(g + w / x[b, s, 0]) + sums[b, s + 1]
        tp.output("g", g)
        for name, gradient in tp.grad((g * g)[:, :].sum(), {"dx": x, "dw": w}).items():
            tp.output(name, gradient)
    n, m = np.array([3, 0, 2], np.int32), np.array([[2, 3, 1], [1, 1, 1], [3, 2, 2]], np.int32)
    there = (np.arange(3)[:, None] < n[:, None, None]) & (np.arange(3) < m[..., None])
    words = np.where(np.arange(3) == m[..., None] - 1, 0, np.abs(numbers((3, 3, 3))) + 0.5)
    given = np.where(there, words, np.nan).astype(np.float32)
    outputs = target.agrees(program, tolerance=20, n=n, m=m, x=given, w=np.float32(0.7), options=options)
    found = target.arrays(outputs)
    assert np.isfinite(found["dx"]).all()
    assert np.isfinite(found["dw"])


def test_gradients_of_gradients(target: Target) -> None:
    def program_of_rows(ragged: bool) -> tp.Program:
        with tp.Program() as program:
            b = tp.dim("b")
            t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32")) if ragged else tp.dim("t")
            x = tp.input("x", (), (b, t))
            h = definition(b, t, x, lambda h: tp.tanh(h + 1 / x) + x[b, t + 1], 1)
            slope = tp.grad((h * h)[:, :].sum(), x)
            tp.output("curvature", tp.grad((slope * slope)[:, :].sum(), x))
        return program

    n, x = np.array([3, 2], np.int32), np.array([[1, 2, 0], [1.5, 0, np.nan]], np.float32)
    alone = tp.compile(program_of_rows(False), "reference")
    expected = np.zeros((2, 3), np.float32)
    for row, count in enumerate(n):
        expected[row, :count] = alone(x=x[[row], :count])["curvature"][0]
    target.agrees(program_of_rows(True), {"curvature": expected}, tolerance=20, n=n, x=x)
