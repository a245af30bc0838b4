"""From a program to its results: what the order makes of memory, and what isl is asked."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from tempo_polyhedral.cache import Cache
from tempo_polyhedral.client import Worker
from tempo_polyhedral.messages import Answer, Request
from tempo_polyhedral.scheduler import PolyhedralScheduler

import tempo as tp
from tempo.conformance.test_orders import moving_statistic, skewed, steeper
from tempo.errors import UnsupportedError

STEPS = 8
WIDE = 64


def trajectory(end: Callable[[tp.Dim], object]) -> tp.Program:
    """`act`, a return over what is to come until `end(t)`, a consumer of it at every step, and a sum over time."""
    with tp.Program() as program:
        t = tp.dim("t")
        act = tp.recurrent("act", (WIDE,), (t,))
        act[0] = tp.ones((WIDE,))
        act[t + 1] = tp.tanh(act * 0.5 + t)
        ahead = act[t : end(t)].sum(axis=0)
        learnt = tp.recurrent("learnt", (WIDE,), (t,))
        learnt[0] = ahead
        learnt[t + 1] = learnt * 0.9 + ahead[t + 1]
        total = tp.recurrent("total", (), (t,))
        total[0] = learnt.sum()
        total[t + 1] = total + learnt[t + 1].sum()
        tp.output("learnt", learnt[-1])
        tp.output("total", total[-1])
    return program


def n_steps() -> tp.Program:
    return trajectory(lambda t: tp.min(t + STEPS, t.size))


def monte_carlo() -> tp.Program:
    return trajectory(lambda t: t.size)


def compiled(program: tp.Program, options: tp.Options | None = None, **sizes: int) -> tp.Executable:
    return tp.compile(program, scheduler=PolyhedralScheduler(cache=Cache(None)), sizes=sizes, options=options)


def agrees(program: tp.Program, **arrays: object) -> bool:
    found = tp.compile(program, scheduler=PolyhedralScheduler(cache=Cache(None)))(**arrays)
    wanted = tp.compile(program, backend="reference")(**arrays)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)
    return True


def peak_bytes(run: tp.Executable) -> int:
    run()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_learning_runs_behind_acting_and_keeps_a_window(size: int) -> None:
    run = compiled(n_steps(), t=size)
    assert run.memory["act"].storage == f"window({STEPS})"
    assert run.memory.peak_bytes < 20_000
    point = WIDE * 4
    assert peak_bytes(run) < 150 * point  # far from 1,000 points


def test_returns_over_all_that_is_to_come_keep_everything() -> None:
    run = compiled(monte_carlo(), t=1_000)
    assert run.memory["act"].storage == "full"
    assert peak_bytes(run) > 1_000 * WIDE * 4


def test_a_statistic_over_a_stream_of_sensors_keeps_a_window() -> None:
    step_by_step = tp.Options(mapping={"t": "sequential"})
    for size in (1_000, 10_000):
        assert compiled(moving_statistic(5), step_by_step, t=size).memory["smooth"].storage == "window(11)"


@pytest.mark.parametrize("size", [1, 3, 8, 21])
def test_they_mean_what_the_reference_says(size: int) -> None:
    for program in (n_steps(), monte_carlo()):
        found = compiled(program, t=size)()
        wanted = tp.compile(program, backend="reference", sizes={"t": size})()
        np.testing.assert_allclose(found["learnt"], wanted["learnt"], rtol=1e-5)
        np.testing.assert_allclose(found["total"], wanted["total"], rtol=1e-5)


def test_what_only_skewed_loops_run_is_run() -> None:
    x = np.random.default_rng(0).normal(size=(7, 11)).astype(np.float32)
    with pytest.raises(UnsupportedError, match="'greedy' finds no dim"):
        tp.compile(skewed(), scheduler="greedy")(x=x)
    assert agrees(skewed(), x=x)


def test_a_slope_beyond_the_bounds_of_the_first_rung_is_found_too() -> None:
    assert agrees(steeper(), x=np.random.default_rng(0).normal(size=(7, 13)).astype(np.float32))


# -- what isl is asked -------------------------------------------------------------------------------------------------


class Listening(Worker):
    """Keeps the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def ask(self, request: Request, seconds: float) -> Answer:
        self.requests.append(request)
        return super().ask(request, seconds)


def asked(program: tp.Program, **sizes: int) -> list[Request]:
    worker, options = Listening(), tp.Options(mapping="sequential")  # what is lifted, numbers as sizes may decide
    tp.compile(program, scheduler=PolyhedralScheduler(worker, Cache(None)), sizes=sizes, options=options).explain("all")
    worker.close()
    return worker.requests


def test_values_of_sizes_do_not_change_what_isl_is_asked() -> None:
    assert asked(n_steps(), t=10) == asked(n_steps(), t=10_000) == asked(n_steps())


def layers(depth: int | None, length: int | None) -> tp.Program:
    """A dim of layers, and one of steps; numbers as sizes where they are given."""
    with tp.Program() as program:
        layer, t = tp.dim("layer", depth), tp.dim("t", length)
        w = tp.input("w", (), (layer,))
        h = tp.recurrent("h", (), (layer, t))
        h[0, t] = t * tp.ones(())
        h[layer + 1, t] = tp.tanh(h * w + tp.cases((t >= 1, h[layer + 1, t - 1]), 0.0))
        last = h[layer.size - 1, t]
        tp.output("last", last[tp.max(t - 3, 0) : t + 1].sum(axis=0))
        tp.output("end", last[t.size - 1])
    return program


def test_neither_does_a_dim_of_layers_nor_numbers_as_sizes() -> None:
    first = asked(layers(12, 100))
    assert first == asked(layers(96, 3_000))
    assert all(not dim.size.is_const for request in first for dim in request.problem.dims)


@pytest.mark.parametrize(("depth", "length"), [(1, 1), (2, 3), (3, 2), (5, 9)])
def test_numbers_as_sizes_mean_what_they_say(depth: int, length: int) -> None:
    assert agrees(layers(depth, length), w=np.linspace(0, 1, depth, dtype=np.float32))
