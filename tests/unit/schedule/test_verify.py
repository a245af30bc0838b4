"""The verifier: right trees pass, and each way to be wrong is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo.errors import ScheduleError, SizeError
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence, verify
from tempo.symbolic import Symbol, const, size, var
from tests.unit.schedule.problems import make

I, T = Symbol("i", "dim"), Symbol("t", "dim")
HERE = var(T)


def loop(*body: ScheduleTree, lo: int = 0, late: int = 0, direction: str = "forward", dim: Symbol = T) -> For:
    return For(dim, const(lo), size(dim.name) + late, direction, Sequence(body))  # type: ignore[arg-type]


def sizes(**given: int) -> dict[Symbol, int]:
    return {Symbol(name, "size"): value for name, value in given.items()}


def rnn() -> SchedulingProblem:
    return make("t", {"x": "t", "h": "t"}, ["h < h(t - 1), x(t)"])


X, H = Run("x", (HERE,)), Run("h", (HERE,))


@pytest.mark.parametrize(
    "tree",
    [
        loop(X, H),
        Sequence((loop(X), loop(H))),
        Sequence((loop(X, direction="backward"), loop(H))),
        loop(If(HERE.lt(size("t")), X), If(HERE.ge(2), Run("h", (HERE - 2,))), late=2),
    ],
)
def test_right_orders_pass(tree: ScheduleTree) -> None:
    for extent in (1, 2, 5):
        verify(rnn(), tree, sizes(t=extent))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (loop(H, X), r"h\(0\) runs before x\(0\), which it depends on: h\(t\) after x\(t\)"),
        (loop(X, H, direction="backward"), r"h\(1\) runs before h\(0\), which it depends on: h\(t\) after h\(t - 1\)"),
        (loop(X), r"h\(0\) never runs"),
        (loop(X, H, lo=1), r"x\(0\) never runs"),
        (loop(X, H, X), r"x\(0\) runs more than once"),
        (loop(X, H, late=1), r"x\(5\) runs, which is outside of its domain"),
        (loop(X, Run("h", (var(I),))), r"the schedule uses i in `i`, where no loop around it has it"),
        (loop(X, H, Run("y", ())), r"the schedule runs y\(\), but the problem has no such statement"),
        (loop(X, Run("h", (HERE, HERE))), r"the schedule runs h\(t, t\), but h has 1 dims"),
    ],
)
def test_wrong_orders_are_named(tree: ScheduleTree, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        verify(rnn(), tree, sizes(t=5))


def test_an_instance_that_the_problem_does_not_have_must_not_run() -> None:
    problem = make("t", {"x": "t"}, [], boxes={"x": {"t": "1..t.size"}}, conditions={"x": "t % 2 == 1"})
    verify(problem, loop(If((HERE % 2).eq(1), X)), sizes(t=5))
    with pytest.raises(ScheduleError, match=r"x\(2\) runs, but the problem has no such instance"):
        verify(problem, loop(X, lo=1), sizes(t=5))


def test_a_need_of_oneself_is_named() -> None:
    problem = make("t", {"x": "t"}, ["x < x(t - 1..t)"])
    with pytest.raises(ScheduleError, match=r"x\(0\) depends on itself"):
        verify(problem, loop(X), sizes(t=3))


def test_conditions_and_points_outside_the_domain_constrain_nothing() -> None:
    problem = make("t", {"x": "t"}, ["x < x(t + 1) where t >= 4", "x < x(t + 10)", "x < x(t + 1..t - 1)"])
    verify(problem, loop(X), sizes(t=4))
    with pytest.raises(ScheduleError, match=r"x\(4\) runs before x\(5\)"):
        verify(problem, loop(X), sizes(t=6))


def test_a_statement_without_dims_is_checked_too() -> None:
    problem = make("t", {"x": "t", "y": ""}, ["y < x(0..t.size - 1)"])
    verify(problem, Sequence((loop(X), Run("y"))), sizes(t=4))
    with pytest.raises(ScheduleError, match=r"y\(\) runs before x\(3\)"):
        verify(problem, Sequence((Run("y"), loop(X))), sizes(t=4))


def test_sizes_must_fit_the_facts() -> None:
    with pytest.raises(SizeError, match="p.size"):
        verify(make("p t", {}, [], facts="p.size <= t.size"), Sequence(), sizes(p=3, t=2))


# Against an executor that walks the tree point by point.


def _order(tree: ScheduleTree, env: Mapping[Symbol, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(tree, Run):
        yield tree.statement, tuple(index.evaluate(env) for index in tree.point)
    elif isinstance(tree, If):
        yield from _order(tree.body, env) if tree.condition.evaluate(env) else ()
    elif isinstance(tree, Sequence):
        for item in tree.items:
            yield from _order(item, env)
    else:
        span = range(tree.lo.evaluate(env), tree.hi.evaluate(env))
        for value in span if tree.direction == "forward" else reversed(span):
            yield from _order(tree.body, {**env, tree.var: value})


def _is_right(problem: SchedulingProblem, tree: ScheduleTree, env: Mapping[Symbol, int]) -> bool:
    order = list(_order(tree, env))
    when = {instance: place for place, instance in enumerate(order)}
    wanted = set()
    for statement in problem.statements:
        for point in product(*(range(problem.dim(dim).size.evaluate(env)) for dim in statement.dims)):
            here = {**env, **dict(zip(statement.dims, point))}
            if (statement.box.condition() & statement.condition).evaluate(here):
                wanted.add((statement.name, point))
    if len(order) != len(wanted) or set(order) != wanted:
        return False
    for dependence in problem.dependences:
        for name, point in wanted:
            here = {**env, **dict(zip(problem.by_name[dependence.target].dims, point))}
            if name != dependence.target or not dependence.condition.evaluate(here):
                continue
            spans = [range(i.lo.evaluate(here), i.hi.evaluate(here) + 1) for i in dependence.relation]
            needed = [(dependence.source, q) for q in product(*spans)]
            if any(when.get(q, -1) >= when[name, point] for q in needed):
                return False
    return True


_NAMES = ("a", "b", "c")
_POINTS = [(var(I), HERE), (var(I), HERE - 1), (var(I) - 1, HERE)]


@st.composite
def _trees(draw: st.DrawFn) -> ScheduleTree:
    """Loops over i and t in some order and direction, with the three statements distributed in some way."""
    names = draw(st.permutations(_NAMES))
    split = draw(st.integers(0, 3))
    parts = [part for part in (names[:split], names[split:]) if part]
    return Sequence(tuple(_nest(draw, part) for part in parts))


def _nest(draw: st.DrawFn, names: list[str]) -> ScheduleTree:
    tree: ScheduleTree = Sequence(tuple(_guarded_run(draw, name) for name in names))
    for dim in draw(st.permutations([I, T])):
        tree = loop(tree, late=1, direction=draw(st.sampled_from(["forward", "forward", "backward"])), dim=dim)
    return tree


def _guarded_run(draw: st.DrawFn, name: str) -> ScheduleTree:
    point = draw(st.sampled_from(_POINTS))
    inside = [index.ge(0) & index.lt(size(dim.name)) for index, dim in zip(point, (I, T))]
    condition = inside[0] & inside[1]
    return If(condition & HERE.ge(1) if draw(st.integers(0, 9)) == 0 else condition, Run(name, point))


_READS = ["a(i, t)", "b(i, t)", "a(i, t - 1)", "c(i - 1, 0..t.size - 1)", "b(0..i, t)", "b(i, t..t + 1)", "c(i, 0..t)"]


@given(_trees(), st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_READS)), max_size=3))
def test_it_agrees_with_an_executor_that_goes_point_by_point(tree: ScheduleTree, reads: list[tuple[str, str]]) -> None:
    problem = make("i t", dict.fromkeys(_NAMES, "i t"), [f"{target} < {read}" for target, read in reads])
    for env in (sizes(i=1, t=1), sizes(i=2, t=3), sizes(i=3, t=2)):
        try:
            verify(problem, tree, env)
            found = True
        except ScheduleError:
            found = False
        assert found == _is_right(problem, tree, env)
