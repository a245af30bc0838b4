"""Family 9, memory: what is kept follows from the order, and is given back when nobody needs it any more."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

STEPS = 8
WIDTH = 64


def returns_over_a_trajectory(steps: int | None) -> tp.Program:
    """Act, sum the rewards of the next `steps` steps (None: all that follow), learn from the sum at every step.

    All that leaves the program is a sum over time and what was learned.
    """
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        act = tp.recurrent("act", (WIDTH,), (t,))
        act[0] = tp.ones((WIDTH,)) * x
        act[t + 1] = tp.tanh(act * 0.9 + x[t + 1])
        reward = tp.recurrent("reward", (WIDTH,), (t,))
        reward[t] = tp.sin(act * 2.0)
        end = t.size if steps is None else tp.min(t + steps, t.size)
        value = reward[t:end].sum(axis=0)
        learned = tp.recurrent("learned", (WIDTH,), (t,))
        learned[0] = value
        learned[t + 1] = learned * 0.99 + tp.tanh(value[t + 1])
        total = tp.recurrent("total", (WIDTH,), (t,))
        total[0] = value
        total[t + 1] = total + value[t + 1]
        tp.output("learned", learned[-1])
        tp.output("total", total[-1])
    return program


def delayed_statistic() -> tp.Program:
    """A sensor is filtered; each step is compared with the spread of the values around it, ahead and behind."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        level = tp.recurrent("level", (WIDTH,), (t,))
        level[0] = tp.ones((WIDTH,)) * x
        level[t + 1] = level * 0.5 + tp.cos(level * x[t + 1])
        around = level[tp.max(t - 2, 0) : tp.min(t + STEPS, t.size)]
        spread = around.max(axis=0) - around.min(axis=0)
        alarms = tp.recurrent("alarms", (WIDTH,), (t,))
        alarms[0] = spread
        alarms[t + 1] = tp.maximum(alarms * 0.9, tp.abs(level[t + 1]) - spread[t + 1])
        tp.output("alarms", alarms[-1])
    return program


def points(kept: Any, name: str) -> int:
    """How many points of a tensor are kept at most."""
    return int(np.prod(kept[name].shape) // WIDTH)


@pytest.mark.planned
@pytest.mark.few_configurations
@pytest.mark.parametrize("length", [1_000, 10_000])
def test_a_consumer_that_looks_ahead_keeps_a_window(target: Target, length: int) -> None:
    for program, name, width in (
        (returns_over_a_trajectory(STEPS), "reward", STEPS),
        (delayed_statistic(), "level", STEPS + 2),
    ):
        kept = target.compile(program, {"t": length}, lift=False).memory
        assert width <= points(kept, name) <= width + 3
        assert kept.peak_bytes < 250 * WIDTH * 4 + length * 4


@pytest.mark.planned
@pytest.mark.few_configurations
def test_a_consumer_of_the_whole_future_keeps_it(target: Target) -> None:
    kept = target.compile(returns_over_a_trajectory(None), {"t": 1_000}, lift=False, disable=("recurrences",)).memory
    assert points(kept, "reward") == 1_000


@pytest.mark.parametrize("length", [1, STEPS, 29])
def test_programs_that_look_ahead_mean_what_they_say(target: Target, length: int) -> None:
    for program in (returns_over_a_trajectory(STEPS), returns_over_a_trajectory(None), delayed_statistic()):
        target.agrees(program, x=numbers((length,)), tolerance=30)


def continued_sequence() -> tp.Program:
    """What follows a known prefix is told by the features of all before it."""
    with tp.Program() as program:
        b, t, p = tp.dims("b t p")
        known = tp.input("known", (WIDTH,), (b, p))
        w = tp.input("w", (WIDTH, WIDTH))
        x = tp.recurrent("x", (WIDTH,), (b, t))
        feature = tp.tanh(x @ w)
        x[t < p.size] = known[b, t]
        x[b, t + 1] = tp.sin(x * tp.abs(feature[b, 0 : t + 1] @ x).max(axis=0))
        tp.output("x", x)
    return program


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.one_device
def test_a_known_prefix_is_made_in_the_buffer_of_what_follows(target: Target) -> None:
    """Its features are made at once, and no other buffer holds them."""
    sizes = {"b": 2, "t": 40, "p": 30}
    kept = target.compile(continued_sequence(), sizes).memory.buffers
    large = [each for each in kept if each.role == "internal" and np.prod(each.shape) >= 2 * 30 * WIDTH]
    assert [np.prod(each.shape) for each in large] == [2 * 40 * WIDTH]


@pytest.mark.parametrize(("size", "known"), [(9, 4), (5, 5), (6, 5), (4, 6), (1, 2)])
def test_a_known_prefix_means_what_it_says(target: Target, size: int, known: int) -> None:
    target.agrees(
        continued_sequence(),
        sizes={"t": size},
        known=numbers((2, known, WIDTH)),
        w=numbers((WIDTH, WIDTH), seed=1) / WIDTH**0.5,
        tolerance=100,
    )


def stages() -> tp.Program:
    """Three histories, each needed whole by the next and by nothing else."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (WIDTH,), ())
        values = x
        for name in ("first", "second", "third"):
            stage = tp.recurrent(name, (WIDTH,), (t,))
            stage[0] = values
            stage[t + 1] = tp.tanh(stage * 0.9 + values)
            values = stage[0 : t.size].max(axis=0) + stage[-1]
        tp.output("end", values)
    return program


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.one_device
def test_what_nobody_needs_any_more_is_given_back(target: Target) -> None:
    length = 1_000
    kept = target.compile(stages(), {"t": length}, lift=False).memory
    histories = [buffer.bytes for buffer in kept.buffers if buffer.storage == "full" and buffer.role == "internal"]
    assert sum(histories) >= 3 * length * WIDTH * 4
    assert kept.peak_bytes <= 2 * length * WIDTH * 4
    target.agrees(stages(), sizes={"t": 13}, x=numbers((WIDTH,)), tolerance=4)


@pytest.mark.one_configuration
@pytest.mark.parametrize("m", [1, 3, 9])
@pytest.mark.parametrize("lift", [True, False])
def test_two_values_that_become_a_state_are_both_kept(target: Target, m: int, lift: bool) -> None:
    """Beyond the points of `h` that anybody asks for, both would have the same places in its buffer."""
    with tp.Program() as program:
        t, size = tp.dim("t"), tp.dim("m").size
        one, other, h = (tp.recurrent(name, (2,), (t,)) for name in ("one", "other", "h"))
        a, b = tp.tanh(one) * 3.0, tp.tanh(other) * 5.0
        one[0], other[0] = tp.ones((2,)), tp.ones((2,))
        one[t + 1], other[t + 1] = tp.sin(one) + t, tp.sin(other) - t
        h[t] = tp.cases((t == 0, tp.zeros((2,))), (t < size, a[t - 1]), b[t - 1])
        tp.output("h", h[0:size].sum(axis=0))
        tp.output("a", (a[0 : t.size] ** 2 + a[0 : t.size]).sum(axis=0))
        late = b[size - 1 : t.size]
        tp.output("b", (late**2 + late).sum(axis=0))
    target.agrees(program, sizes={"t": 9, "m": m}, options={"lift": lift}, tolerance=4)


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("length", [1_000, 10_000])
def test_what_is_measured_was_predicted(target: Target, length: int) -> None:
    """By the backend's own measure, of what lives at once."""
    if not hasattr(target.backend, "measured_peak"):
        pytest.skip("the backend does not say how much memory its arrays take")
    cases: tuple[tuple[tp.Program, Mapping[str, Any]], ...] = (
        (returns_over_a_trajectory(STEPS), {"x": numbers((length,))}),
        (delayed_statistic(), {"x": numbers((length,))}),
        (stages(), {"x": numbers((WIDTH,))}),
    )
    for program, inputs in cases:
        run = target.compile(program, {"t": length}, lift=False, poison=False)
        run(sizes={"t": length}, **inputs)
        given = run.device_put(**inputs)
        gc.collect()
        measured = target.backend.measured_peak(lambda: run(sizes={"t": length}, **given))  # noqa: B023
        made = run.memory.peak_bytes - run.memory.given_bytes
        reducing = getattr(target.backend, "reducing", 0.0) * max(each.bytes for each in run.memory.buffers)
        assert measured - SLACK <= 1.1 * made + reducing
        assert made <= 1.1 * measured + SLACK


SLACK = 64 * 1024
"""Bytes of what stands around arrays: Python's objects, code that is made at the first call."""


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("forwards", [True, False])
def test_what_an_iteration_wrote_is_what_it_reads_afterwards(target: Target, distance: int, forwards: bool) -> None:
    """The point `distance` before it lay in the same place of a circle, and is over."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        h = tp.recurrent("h", (), (t,))
        end, before = (t, t - distance) if forwards else (t.size - 1 - t, t + distance)
        h[end < distance] = x
        h[t] = h[before] * 0.5 + x
        tp.output("h", h)
        tp.output("twice", h * 2)
        tp.output("either", tp.where(x > 0, h, h * x))
    target.agrees(program, x=numbers((7,)))
