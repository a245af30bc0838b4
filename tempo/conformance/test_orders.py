"""Family 10, orders: programs that several orders of the same points can run, and some that few can.

What is right does not depend on the scheduler. One that finds no order must say so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers


def delayed_reader(window: int) -> tp.Program:
    """A recurrence, what lies ahead of it in a slice, a reader of that at every step, and a sum over time."""
    with tp.Program() as program:
        t = tp.dim("t")
        r = tp.input("r", (2,), (t,))
        act = tp.recurrent("act", (2,), (t,))
        act[0] = r
        act[t + 1] = tp.tanh(act * 0.5 + r[t + 1])
        ahead = act[t : tp.min(t + window, t.size)].sum(axis=0)
        update = tp.recurrent("update", (2,), (t,))
        update[0] = ahead
        update[t + 1] = update * 0.9 + ahead[t + 1]
        tp.output("update", update[-1])
        tp.output("total", ahead.sum(axis=0))
    return program


def moving_statistic(window: int) -> tp.Program:
    """A deviation from the mean of the points around, which lags behind the stream that it is of."""
    with tp.Program() as program:
        t = tp.dim("t")
        raw = tp.input("raw", (3,), (t,))
        smooth = tp.recurrent("smooth", (3,), (t,))
        smooth[0] = raw
        smooth[t + 1] = smooth * 0.75 + raw[t + 1] * 0.25
        around = smooth[tp.max(t - window, 0) : tp.min(t + window + 1, t.size)]
        alarm = tp.recurrent("alarm", (), (t,))
        alarm[0] = 0.0
        alarm[t + 1] = alarm * 0.5 + tp.abs(smooth - around.mean(axis=0)).max(axis=0)
        tp.output("alarm", alarm)
    return program


def both_directions() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        forth, back = tp.recurrent("forth", (2,), (t,)), tp.recurrent("back", (2,), (t,))
        forth[0] = x
        forth[t + 1] = forth * 0.5 + x[t + 1]
        back[t.size - 1] = x
        back[t - 1] = back * 0.5 + x[t - 1]
        tp.output("y", forth * back)
    return program


def skewed() -> tp.Program:
    """`a[i, j]` reads one row above and one below: no order of loops over i and j runs it, a skewed one does."""
    with tp.Program() as program:
        i, j = tp.dims("i j")
        x = tp.input("x", (), (i, j))
        a = tp.recurrent("a", (), (i, j))
        inside = (i >= 1) & (i < i.size - 1) & (j >= 2) & (j < j.size - 1)
        a[i, j] = tp.cases((inside, 0.5 * a[i - 1, j + 1] + 0.25 * a[i + 1, j - 2] + x), x)
        tp.output("a", a)
        tp.output("corner", a[i.size - 1, j.size - 1])
    return program


def steeper() -> tp.Program:
    """As `skewed`, but with a slope that a coefficient of 1 cannot follow."""
    with tp.Program() as program:
        i, j = tp.dims("i j")
        x = tp.input("x", (), (i, j))
        a = tp.recurrent("a", (), (i, j))
        inside = (i >= 1) & (i < i.size - 1) & (j >= 4) & (j < j.size - 2)
        a[i, j] = tp.cases((inside, 0.5 * a[i - 1, j + 2] + 0.25 * a[i + 1, j - 4] + x), x)
        tp.output("a", a)
    return program


@pytest.mark.parametrize("window", [1, 3, 6])
@pytest.mark.parametrize("steps", [1, 2, 6, 7, 20])
def test_a_reader_behind_its_producer(target: Target, window: int, steps: int) -> None:
    target.agrees(delayed_reader(window), r=numbers((steps, 2)), tolerance=4)


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("steps", [1, 4, 5, 9, 17])
def test_a_statistic_behind_its_stream(target: Target, window: int, steps: int) -> None:
    target.agrees(moving_statistic(window), raw=numbers((steps, 3)), tolerance=4)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_both_directions(target: Target, steps: int) -> None:
    target.agrees(both_directions(), x=numbers((steps, 2)), tolerance=4)


@pytest.mark.parametrize("program", [skewed, steeper])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (6, 9), (9, 6), (2, 12)])
def test_what_no_loop_over_the_dims_can_run(
    target: Target, program: Callable[[], tp.Program], shape: tuple[int, int]
) -> None:
    """It runs as the reference does, or the scheduler says that it has no order for it."""
    x = numbers(shape).astype(np.float32)
    try:
        target.agrees(program(), x=x, tolerance=4)
    except tp.UnsupportedError as error:
        if f"the scheduler {target.scheduler!r}" not in error.message:
            raise
