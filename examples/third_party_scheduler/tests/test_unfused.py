"""Trees of small problems, checked against their dependences. They run against the installed packages."""

from __future__ import annotations

import numpy as np
import pytest
from tempo_unfused.scheduler import UnfusedScheduler

import tempo as tp
from tempo.plugins import API_VERSION, list_schedulers
from tempo.schedule import Dependence, Interval, SchedulingProblem, Statement, render, verify
from tempo.symbolic import Box, Dim, Symbol, parse_condition, parse_expr, var

T = Symbol("t", "dim")
SIZE = Symbol("t", "size")


def statement(name: str, condition: str = "True") -> Statement:
    return Statement(name, (T,), Box.full([Dim(T, var(SIZE))]), parse_condition(condition))


def reads(target: str, source: str, lo: str, hi: str | None = None) -> Dependence:
    """`target` at t runs after `source` at lo, ..., hi."""
    return Dependence(source, target, (Interval(parse_expr(lo), parse_expr(hi or lo)),))


def scheduled(statements: list[Statement], dependences: list[Dependence]) -> str:
    problem = SchedulingProblem((Dim(T, var(SIZE)),), tuple(statements), tuple(dependences))
    tree = UnfusedScheduler().schedule(problem)
    for size in (1, 2, 7):
        verify(problem, tree, {SIZE: size})
    return render(tree)


def test_the_scheduler_is_found_and_described() -> None:
    (listing,) = [each for each in list_schedulers() if each.name == "unfused"]
    assert listing.descriptor is not None
    assert listing.descriptor.api_version == API_VERSION


def test_what_is_in_no_cycle_has_a_loop_of_its_own() -> None:
    found = scheduled([statement("a"), statement("b")], [reads("a", "b", "t")])
    assert found == "for t in 0..t.size:\n  b(t)\nfor t in 0..t.size:\n  a(t)"


def test_recurrences_run_the_way_they_point() -> None:
    assert scheduled([statement("a")], [reads("a", "a", "t - 1")]) == "for t in 0..t.size:\n  a(t)"
    assert scheduled([statement("a")], [reads("a", "a", "t + 1")]) == "for t in t.size..0 backwards:\n  a(t)"
    assert "for t in 0..t.size:" in scheduled([statement("a")], [reads("a", "a", "0", "t - 1")])


def test_a_cycle_shares_a_loop_with_a_delay_where_one_is_needed() -> None:
    scheduled([statement("a"), statement("b")], [reads("a", "b", "t - 1"), reads("b", "a", "t")])
    found = scheduled([statement("a"), statement("b")], [reads("a", "b", "t + 2"), reads("b", "a", "t - 5")])
    assert "t - 2" in found


def test_conditions_stand_around_the_runs() -> None:
    found = scheduled([statement("a", "t >= 1")], [])
    assert "if t - 1 >= 0:" in found or "if t >= 1:" in found


def test_an_order_without_loops_is_refused_with_its_dependences() -> None:
    with pytest.raises(tp.UnsupportedError, match=r"a\(t\) after a\(t.size - t - 1\)"):
        scheduled([statement("a")], [reads("a", "a", "t.size - 1 - t")])


def test_a_program_means_the_same_as_on_the_reference() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 9)
        x = tp.input("x", shape=(3,), dims=(t,))
        total = tp.recurrent("total", shape=(3,), dims=(t,))
        total[0] = x
        total[t + 1] = total * 0.5 + x[t + 1]
        left = tp.recurrent("left", shape=(3,), dims=(t,))
        left[t.size - 1] = total
        left[t] = left[t + 1] + total
        tp.output("left", left)
    x_value = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    found = tp.compile(program, scheduler="unfused")(x=x_value)["left"]
    np.testing.assert_allclose(found, tp.compile(program, backend="reference")(x=x_value)["left"], rtol=1e-5)
