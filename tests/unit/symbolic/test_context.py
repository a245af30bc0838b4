"""What a context proves, against brute force over all small sizes, and the questions that the compiler asks."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tempo.symbolic import (
    FALSE,
    TRUE,
    Box,
    Context,
    Dim,
    Symbol,
    const,
    dim,
    maximum,
    minimum,
    parse_condition,
    parse_expr,
    size,
)
from tests.unit.symbolic.strategies import (
    DIMS,
    affine_trees,
    condition_of,
    condition_trees,
    difference_conditions,
    env_of,
    expr_of,
    points,
    trees,
    truth_of,
    value_of,
)

t, s = dim("t"), dim("s")
T, S, P, n = size("t"), size("s"), size("p"), size("n")
POINTS = list(points(4))
MANY_POINTS = list(points(9))
WITHIN = Context.of(DIMS)

facts = st.lists(condition_trees, max_size=2)


def where(fact_trees, candidates=POINTS):
    return [point for point in candidates if all(truth_of(tree, point) for tree in fact_trees)]


def context_of(fact_trees):
    return WITHIN.assume(*(condition_of(tree) for tree in fact_trees))


@settings(deadline=None)
@given(facts, condition_trees)
def test_what_is_implied_holds_and_what_is_excluded_does_not(fact_trees, tree):
    context, condition = context_of(fact_trees), condition_of(tree)
    truths = [truth_of(tree, point) for point in where(fact_trees)]
    assert all(truths) or not context.implies(condition)
    assert not any(truths) or not context.excludes(condition)
    assert not truths or not context.infeasible()


@settings(deadline=None)
@given(st.lists(difference_conditions, max_size=2), difference_conditions)
def test_differences_of_two_symbols_are_decided_exactly(fact_trees, tree):
    context, condition = context_of(fact_trees), condition_of(tree)
    truths = [truth_of(tree, point) for point in where(fact_trees, MANY_POINTS)]
    assert context.implies(condition) is all(truths)
    assert context.excludes(condition) is not any(truths)


@settings(deadline=None)
@given(facts, trees)
def test_bounds_hold(fact_trees, tree):
    context, expr = context_of(fact_trees), expr_of(tree)
    low, high = context.constant_bounds(expr)
    symbolic_low, symbolic_high = context.range_of(expr)
    for point in where(fact_trees):
        value, env = value_of(tree, point), env_of(point)
        assert low is None or low <= value
        assert high is None or value <= high
        assert symbolic_low is None or symbolic_low.evaluate(env) <= value
        assert symbolic_high is None or value <= symbolic_high.evaluate(env)


@settings(deadline=None)
@given(trees)
def test_ranges_are_in_sizes_only(tree):
    for bound in WITHIN.range_of(expr_of(tree)):
        assert bound is None or not bound.dims()


def range_at_sizes(tree, sizes):
    values = [value_of(tree, p) for p in POINTS if (p["T"], p["S"]) == sizes]
    return min(values), max(values)


@settings(deadline=None)
@given(affine_trees)
def test_affine_bounds_are_attained(tree):
    expr = expr_of(tree)
    low, high = WITHIN.range_of(expr)
    for sizes in ((1, 1), (3, 2), (4, 4)):
        env = env_of({"T": sizes[0], "S": sizes[1]})
        assert (low.evaluate(env), high.evaluate(env)) == range_at_sizes(tree, sizes)
    values = [value_of(tree, point) for point in MANY_POINTS]
    constant_low, constant_high = WITHIN.constant_bounds(expr)
    assert constant_low is None or constant_low == min(values)
    assert constant_high is None or constant_high == max(values)


@pytest.mark.parametrize("outer", [minimum, maximum])
@given(left=affine_trees, right=affine_trees)
@settings(deadline=None)
def test_an_extremum_attains_its_far_bound(outer, left, right):
    """The least of a min is the least of its arguments, and the largest of a max the largest of its arguments."""
    low, high = WITHIN.range_of(outer(expr_of(left), expr_of(right)))
    for sizes in ((1, 1), (3, 2), (4, 4)):
        env = env_of({"T": sizes[0], "S": sizes[1]})
        tree = ("min" if outer is minimum else "max", left, right)
        bound, attained = (low, 0) if outer is minimum else (high, 1)
        assert bound.evaluate(env) == range_at_sizes(tree, sizes)[attained]


@settings(deadline=None)
@given(facts, trees)
def test_a_simplified_expression_has_the_same_value(fact_trees, tree):
    simplified = context_of(fact_trees).simplify(expr_of(tree))
    for point in where(fact_trees):
        assert simplified.evaluate(env_of(point)) == value_of(tree, point)


@settings(deadline=None)
@given(facts, condition_trees)
def test_a_simplified_condition_has_the_same_truth(fact_trees, tree):
    simplified = context_of(fact_trees).simplify_condition(condition_of(tree))
    for point in where(fact_trees):
        assert bool(simplified.evaluate(env_of(point))) is truth_of(tree, point)


@settings(deadline=None)
@given(st.one_of(trees, st.integers(0, 2)), trees, condition_trees, trees)
def test_symbolic_boxes(lo, hi, claim, tree):
    """The bounds of t may be anything over s and the sizes."""
    lo, hi = ({"t": "s"}.get(bound, bound) for bound in (lo, hi))
    assume(Symbol("t", "dim") not in (expr_of(lo) + 2 * expr_of(hi)).symbols())
    context = Context.of(DIMS, box=Box(((Symbol("t", "dim"), expr_of(lo), expr_of(hi)),)))
    low, high = context.range_of(expr_of(tree))
    constant_low, constant_high = context.constant_bounds(expr_of(tree))
    implied, excluded = context.implies(condition_of(claim)), context.excludes(condition_of(claim))
    for outside in points(3):
        for t_value in range(value_of(lo, outside), value_of(hi, outside)):
            point = {**outside, "t": t_value}
            value, env, truth = value_of(tree, point), env_of(point), truth_of(claim, point)
            assert not context.infeasible()
            assert truth if implied else not (excluded and truth)
            assert low is None or low.evaluate(env) <= value
            assert high is None or value <= high.evaluate(env)
            assert constant_low is None or constant_low <= value
            assert constant_high is None or value <= constant_high


@pytest.mark.parametrize(
    ("known", "claim"),
    [
        ("True", "t + 1 <= t.size"),
        ("True", "min(t + n.size, t.size) <= t.size"),
        ("True", "min(t + n.size, t.size) - t - 1 <= n.size - 1"),
        ("True", "max(t - 3, 0) >= 0"),
        ("True", "t - max(t - 3, 0) <= 3"),
        ("True", "(t//2)*2 <= t"),
        ("True", "t % 3 <= 2"),
        ("True", "t % 2 == t - 2*(t//2)"),
        ("True", "min(t + 8, t.size) > t"),
        ("True", "t < 4 or t >= 4"),
        ("True", "t.size >= 1"),
        ("True", "max(0, t.size) == t.size"),
        ("True", "min(t, s)//2 <= t//2"),
        ("True", "max(t, s) % 2 <= 1"),
        ("t >= 1", "t - 1 >= 0"),
        ("t >= 1", "t.size >= 2"),
        ("p.size <= t.size", "p.size <= t.size"),
        ("p.size <= t.size and t >= t.size - 1", "t + 1 >= p.size"),
        ("4*t + 6*s == 2*t.size", "t.size % 2 == 0 or t.size % 2 == 1"),
        ("t != 0 and t != 1 and t != 2", "t >= 3"),
        ("t == s or t == s + 1", "t >= s"),
        ("t >= 1 and t >= s and (t < 3 or s > 5)", "t <= 2 or s >= 6"),
        ("max(t - 3, s) <= 4", "t <= 7 and s <= 4"),
        ("t < 0", "s == 17"),
    ],
)
def test_implies(known, claim):
    context = WITHIN.assume(parse_condition(known))
    assert context.implies(parse_condition(claim))
    assert context.excludes(~parse_condition(claim))


@pytest.mark.parametrize(
    ("known", "claim"),
    [
        ("True", "t >= 1"),
        ("True", "t + 2 <= t.size"),
        ("True", "t <= s"),
        ("True", "t % 3 <= 1"),
        ("t >= 1", "t >= 2"),
        ("t == s or t == s + 1", "t == s"),
        ("t % 2 == 0", "t % 4 == 0"),
        ("min(t, s) <= 4", "t <= 4"),
    ],
)
def test_does_not_imply(known, claim):
    assert not WITHIN.assume(parse_condition(known)).implies(parse_condition(claim))


@pytest.mark.parametrize(
    "claim",
    [
        "t < 0",
        "t >= t.size",
        "t < 4 and t >= 4",
        "t % 2 != 0 and t % 2 != 1",
        "t.size == 0",
        "t % 2 == 1 and t % 4 == 2",
    ],
)
def test_excludes(claim):
    assert WITHIN.excludes(parse_condition(claim))
    assert WITHIN.assume(parse_condition(claim)).infeasible()


def test_a_case_that_is_empty_only_at_some_sizes_is_not_excluded():
    assert not WITHIN.excludes(t.ge(1))
    assert not WITHIN.assume(t.ge(1)).infeasible()


@pytest.mark.parametrize(
    ("expr", "bounds"),
    [
        ("t + 3 - t", (3, 3)),
        ("t - (min(t + 8, t.size) - 1)", (-7, 0)),
        ("t - (t.size - 1)", (None, 0)),
        ("t", (0, None)),
        ("min(t, 5)", (0, 5)),
        ("max(t, 3 - t)", (2, None)),
        ("t % 4 - 2", (-2, 1)),
        ("t - 2*(t//2)", (0, 1)),
        ("t - t % 3", (0, None)),
        ("t + 1 - t % 3", (1, None)),
        ("t % 3 - t", (None, 0)),
        ("t.size", (1, None)),
        ("max(t - 3, 0) - t", (-3, 0)),
        ("s - t", (None, None)),
    ],
)
def test_constant_bounds(expr, bounds):
    assert WITHIN.constant_bounds(parse_expr(expr)) == bounds


@pytest.mark.parametrize(
    ("known", "expr", "low", "high"),
    [
        ("True", "t", "0", "t.size - 1"),
        ("True", "t - s", "1 - s.size", "t.size - 1"),
        ("True", "2*t + 1", "1", "2*t.size - 1"),
        ("True", "min(t + n.size, t.size)", "min(n.size, t.size)", "t.size"),
        ("True", "max(t - 3, 0)", "0", "max(t.size - 4, 0)"),
        ("True", "min(t.size - t, n.size)", "1", "min(n.size, t.size)"),
        ("True", "t//2", "0", "(t.size + 1)//2 - 1"),
        ("True", "t % 3", "0", "2"),
        ("t >= 1", "t - 1", "0", "t.size - 2"),
        ("t == 0", "t + s", "0", "s.size - 1"),
        ("t <= s", "t", "0", "min(s.size - 1, t.size - 1)"),
    ],
)
def test_range_of(known, expr, low, high):
    context = WITHIN.assume(parse_condition(known))
    assert context.range_of(parse_expr(expr)) == (parse_expr(low), parse_expr(high))


def test_the_range_of_an_unbounded_dim_is_unknown():
    assert WITHIN.range_of(dim("u")) == (None, None)
    assert WITHIN.range_of(minimum(dim("u"), t)) == (None, T - 1)


@pytest.mark.parametrize(
    ("known", "expr", "simplified"),
    [
        ("True", "min(t, t.size)", "t"),
        ("True", "max(0, t.size)", "t.size"),
        ("True", "min(t + 1, t.size, t.size + s)", "t + 1"),
        ("t == 3", "min(t + 5, t.size)", "min(8, t.size)"),
        ("t == 3", "t", "3"),
        ("t < 4", "t//4", "0"),
        ("t < 4", "t % 4", "t"),
        ("t >= 4 and t < 8", "t % 4", "t - 4"),
        ("True", "min(t, s)", "min(t, s)"),
    ],
)
def test_simplify(known, expr, simplified):
    assert WITHIN.assume(parse_condition(known)).simplify(parse_expr(expr)) == parse_expr(simplified)


@pytest.mark.parametrize(
    ("condition", "simplified"),
    [
        ("t >= 0 and t < t.size and t >= 2", "t >= 2"),
        ("t == 0 or t >= 1", "True"),
        ("t < 1", "t == 0"),
        ("t >= t.size - 1", "t == t.size - 1"),
        ("t < 0 or s == 1", "s == 1"),
        ("t < min(t.size, s)", "t < s"),
        ("t >= 3 and (t >= 2 or s == 1)", "t >= 3"),
    ],
)
def test_simplify_condition(condition, simplified):
    assert WITHIN.simplify_condition(parse_condition(condition)) == parse_condition(simplified)


def test_a_size_that_is_a_number_is_known():
    context = Context.of([Dim(Symbol("t", "dim"), const(8))])
    assert context.range_of(t) == (const(0), const(7))
    assert context.constant_bounds(t) == (0, 7)
    assert context.simplify(T - 1) == const(7)
    assert context.implies(t.lt(T))
    assert context.excludes(t.eq(8))


def test_a_size_that_is_an_expression_of_sizes_is_known():
    context = Context.of([Dim(Symbol("t", "dim"), P - 3)])
    assert context.implies(t.lt(P - 3))
    assert context.implies(P.ge(4))
    assert context.simplify(minimum(T, P)) == T
    assert context.range_of(t) == (const(0), P - 4)


def test_a_box_replaces_the_full_interval_of_its_dims():
    box = Box(((Symbol("t", "dim"), const(2), minimum(T, P)),))
    context = Context.of(DIMS, box=box)
    assert context.implies(t.ge(2) & t.lt(P) & t.lt(T) & s.ge(0))
    assert context.range_of(t) == (const(2), minimum(P, T) - 1)
    assert context.implies(P.ge(3))


def test_bounds_of_a_box_may_depend_on_other_dims():
    context = Context.of(DIMS, box=Box(((Symbol("t", "dim"), s, maximum(s, S)),)))
    assert context.implies(t.ge(s))
    assert context.implies(t.lt(S))
    assert context.range_of(t) == (const(0), S - 1)


def test_an_empty_box_is_infeasible():
    context = Context.of(DIMS, box=Box(((Symbol("t", "dim"), const(3), const(3)),)))
    assert context.infeasible()
    assert context.implies(FALSE)
    assert context.excludes(TRUE)


def test_assume_leaves_the_context_as_it_was():
    narrowed = WITHIN.assume(t.ge(1))
    assert narrowed.implies(t.ge(1))
    assert not WITHIN.implies(t.ge(1))
    assert narrowed.assume(t.ge(1)) is narrowed
    assert WITHIN.assume(TRUE) is WITHIN


def test_many_cases_are_decided_within_the_budget():
    context = WITHIN.assume(*(t.ne(i) for i in range(12)), *(s.ne(i) for i in range(12)))
    assert context.implies(t.ge(12))
    assert context.implies((t + s).ge(24))
    assert not context.implies(t.ge(13))


def test_boxes():
    a = Box(((Symbol("t", "dim"), const(0), T),))
    b = Box(((Symbol("t", "dim"), const(2), T + 3),))
    assert a.contains({Symbol("t", "dim"): s + 1}) == s.ge(-1) & (s + 1).lt(T)
    assert str(b) == "2 <= t < t.size + 3"
    assert b.substitute({Symbol("t", "size"): 5}).evaluate({}) == ((2, 8),)
    with pytest.raises(KeyError):
        a.lo(Symbol("s", "dim"))


def test_the_bound_of_a_greatest_is_that_of_its_arguments_where_the_whole_is_too_much() -> None:
    """Lengths in blocks of a gradient: no bound was found, and the program was refused with these names."""
    most = "max(b.size - 2, 1)"
    dims = (
        Dim(Symbol("b_block", "dim"), parse_expr(f"({most} + 63) // 64")),
        Dim(Symbol("b_in", "dim"), parse_expr(f"min({most}, 64)")),
    )
    context = Context.of(dims)
    start = "64*b_block + b_in"
    tail = f"min({most}, 64) - b_in - {most}"
    expr = parse_expr(f"max(-({start}), b.size - 2 - ({start}), b.size - 2 + {tail}, {tail})")
    low, high = context.range_of(expr)
    assert high == parse_expr("max(b.size - 2, 0)")
    assert low is not None
    low, high = context.range_of(-expr)
    assert low == parse_expr("min(2 - b.size, 0)")
    assert high is not None
