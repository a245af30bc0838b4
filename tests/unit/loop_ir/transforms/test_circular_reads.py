"""Circular buffers are read as they lie where that means the same, and in order where it does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.loop_ir.analysis.layouts import layouts

T = tp.RecurrentTensor
SIZE, WIDTH = 11, 4


def compiled(make: Callable[[T, slice, tp.Dim], T], window: int = 4) -> tuple[tp.Executable, str]:
    """A state that reads the last `window` of its points; and the source of its loop."""
    with tp.Program() as program:
        t = tp.dim("t", SIZE)
        x = tp.recurrent("x", (2, WIDTH), (t,))
        x[0] = tp.ones((2, WIDTH))
        x[t + 1] = tp.sin(make(x + tp.as_tensor(t) * 0.1, slice(tp.max(t + 1 - window, 0), t + 1), t))
        tp.output("last", x[SIZE - 1])
    run = tp.compile(program, options=tp.Options(checks=False))
    expected = tp.compile(program, backend="reference")()["last"]
    np.testing.assert_allclose(run()["last"], expected, rtol=1e-5, atol=1e-6)
    return run, str(run.explain("all"))


def total(x: T, past: slice, t: tp.Dim) -> T:
    return (x[past] * x).sum(axis=0)


def contraction(x: T, past: slice, t: tp.Dim) -> T:
    return tp.einsum("shd,shd->hd", tp.exp(x[past]), x[past])


def attention(x: T, past: slice, t: tp.Dim) -> T:
    return tp.nn.attention(x, x, tp.cos(x), t, window=4)


def latest(x: T, past: slice, t: tp.Dim) -> T:
    return tp.cumsum(x[past], axis=0).max(axis=0)


def where_it_is(x: T, past: slice, t: tp.Dim) -> T:
    return x[past].argmax(axis=0).astype(tp.float32)


def by_position(x: T, past: slice, t: tp.Dim) -> T:
    return (x[past] * tp.arange(past.stop - past.start).reshape(-1, 1, 1).astype(tp.float32)).sum(axis=0)


def two_windows(x: T, past: slice, t: tp.Dim) -> T:
    """Positions of one meet positions of the other: each is turned in its own way."""
    behind = slice(tp.max(t - 4, 0), tp.max(t, 1))
    return tp.einsum("shd,rhd->hd", x[past], x[behind]) + (x[past].sum(axis=0))


def chosen(x: T, past: slice, t: tp.Dim) -> T:
    """A case is a window as it is: what is made of it stands behind the choice among the cases."""
    return tp.cumsum(tp.cases(((t >= 3), x[t - 3 : t + 1]), 0.5), axis=0).max(axis=0)


@pytest.mark.parametrize("make", [total, contraction, attention])
def test_any_order_is_the_order_in_memory(make: Callable[[T, slice, tp.Dim], T]) -> None:
    run, source = compiled(make)
    assert any("window" in each.storage for each in run.memory.buffers), source
    assert "wrapped" not in source


@pytest.mark.parametrize("make", [latest, where_it_is, by_position, two_windows, chosen])
def test_what_depends_on_the_order_is_read_in_order(make: Callable[[T, slice, tp.Dim], T]) -> None:
    _, source = compiled(make)
    assert "wrapped" in source


def test_heads_lie_before_positions() -> None:
    """A contraction reads one head after the other, so what is kept of each lies in one piece."""
    with tp.Program() as program:
        t = tp.dim("t", SIZE)
        x = tp.recurrent("x", (2, WIDTH), (t,))
        x[0] = tp.ones((2, WIDTH))
        x[t + 1] = tp.sin(tp.nn.attention(x, x + tp.as_tensor(t) * 0.1, tp.cos(x), t))
        tp.output("last", x[SIZE - 1])
    run = tp.compile(program)
    found = layouts(run._engine.plan().loops)
    assert (1, 0, 2) in found.values()
