"""Numbers as sizes, taken for sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tempo_polyhedral.general import General
from tempo_polyhedral.isl import IslError
from tempo_polyhedral.numbered import Numbered
from tempo_polyhedral.settings import FUSING
from tempo_polyhedral.solve import solve
from tempo_polyhedral.tidy import reached

from tempo.schedule import Dependence, For, If, Interval, Run, SchedulingProblem, Sequence, runs, verify
from tempo.symbolic import Expr, Symbol, const, var
from tests.unit.schedule.problems import make
from tests.unit.schedule.random_problems import DIMS, problems


def at_numbers(problem: SchedulingProblem, numbers: dict[Symbol, int]) -> SchedulingProblem:
    """The problem with numbers for its sizes, as if they had been written so."""

    def fixed(expr: Expr) -> Expr:
        return expr.substitute({symbol: const(number) for symbol, number in numbers.items()})

    return replace(
        problem,
        dims=tuple(replace(dim, size=fixed(dim.size)) for dim in problem.dims),
        statements=tuple(
            replace(each, box=each.box.substitute(numbers), condition=each.condition.substitute(numbers))
            for each in problem.statements
        ),
        dependences=tuple(
            replace(
                each,
                relation=tuple(Interval(fixed(interval.lo), fixed(interval.hi)) for interval in each.relation),
                condition=each.condition.substitute(numbers),
            )
            for each in problem.dependences
        ),
        facts=problem.facts.substitute(numbers),
    )


PROBLEM = make(
    "i t",
    {"a": "i t", "b": "i t", "c": "i"},
    [
        "a < a(i - 1, t), b(i, t - 2) where t >= 3 and t < t.size - 2",
        "b < a(i, t..min(t + 3, t.size - 1)), a(i, t.size - 1 - t) where t >= t.size - 4",
        "c < b(i, 0..t.size - 2) where i == i.size - 1",
    ],
    boxes={"b": {"t": "0..t.size - 1"}},
)


@pytest.mark.parametrize("length", [20, 21, 500])
def test_the_number_does_not_show(length: int) -> None:
    sizes = {Symbol("i", "size"): 12, Symbol("t", "size"): length}
    general = General.of(at_numbers(PROBLEM, sizes))
    assert general.numbers == sizes
    assert general.problem.dependences == PROBLEM.dependences
    assert [statement.condition for statement in general.problem.statements] == [
        statement.condition for statement in PROBLEM.statements
    ]


def test_distances_stay_numbers() -> None:
    problem = make("t s", {"a": "t s"}, ["a < a(t - 2, s) where t - s >= 3", "a < a(t, s - 3..s - 2)"])
    sizes = {Symbol("t", "size"): 3, Symbol("s", "size"): 4}
    assert General.of(at_numbers(problem, sizes)).problem.dependences == problem.dependences


def test_symbols_stay_as_they_are() -> None:
    (form,) = General.forms(PROBLEM)
    assert form.problem is PROBLEM


def test_the_given_numbers_are_tried_where_no_order_serves_all() -> None:
    problem = at_numbers(make("t", {"a": "t"}, []), {Symbol("t", "size"): 9})
    forms = General.forms(problem)
    assert [form.problem == problem for form in forms] == [False, True]
    assert Dependence("a", "a", (Interval(const(0), const(0)),)).condition == problem.statements[0].condition


@given(problem=problems(), extents=st.tuples(*[st.integers(1, 6)] * 3))
def test_both_mean_the_same_at_the_numbers(problem: SchedulingProblem, extents: tuple[int, ...]) -> None:
    given_problem = at_numbers(problem, {Symbol(dim.symbol.name, "size"): n for dim, n in zip(DIMS, extents)})
    form = General.of(given_problem)
    numbered = Numbered.of(form.problem)
    try:
        tree = solve(numbered.problem, FUSING)
    except IslError:
        return
    at_them = form.at_numbers(numbered.named(tree))
    verify(given_problem, at_them, {})
    kept = reached(given_problem, at_them)
    verify(given_problem, kept, {})
    assert len(list(runs(kept))) <= len(list(runs(at_them)))


def test_branches_that_numbers_decide_go() -> None:
    problem = at_numbers(make("t", {"a": "t", "b": "t"}, []), {Symbol("t", "size"): 9})
    t = problem.dims[0].symbol
    both = tuple(Run(name, (var(t),)) for name in "ab")
    never, always = If(var(t).ge(9), both[0]), If(var(t).lt(9), Sequence(both))
    assert reached(problem, For(t, const(0), const(9), "forward", Sequence((never, always)))) == For(
        t, const(0), const(9), "forward", Sequence(both)
    )
