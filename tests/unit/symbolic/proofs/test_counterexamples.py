"""What fails at a point at which all that is known holds is not tried to be proven; such points are what they say."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo.symbolic import Box, Context, Dim, Symbol, context, dim, maximum, minimum, size
from tempo.symbolic.proofs.counterexamples import Drawn, Points
from tests.unit.symbolic.strategies import DIMS, S, T, condition_of, condition_trees, expr_of, trees, value_of

SIZES = {"T": Symbol("t", "size"), "S": Symbol("s", "size")}
t, n, m = dim("t"), size("t"), size("s")


def truths(points: Points, symbols):
    """Every point, as a dictionary by the names of trees."""
    values = {name: np.broadcast_to(points[symbol], len(points[S])) for name, symbol in symbols.items()}
    return [{name: int(array[at]) for name, array in values.items()} for at in range(len(points[S]))]


@settings(deadline=None)
@given(st.lists(condition_trees, max_size=2), trees, trees)
def test_points_lie_in_the_box_and_the_facts_hold(fact_trees, lo, hi):
    lo, hi = ({"t": "s"}.get(bound, bound) for bound in (lo, hi))
    if T in (expr_of(lo) + 2 * expr_of(hi)).symbols():
        return
    facts = [condition_of(tree) for tree in fact_trees]
    box = Box(((S, expr_of(0), size("s")), (T, expr_of(lo), expr_of(hi))))
    points = Drawn(box, {}).points(facts)
    for point in truths(points, {**SIZES, "t": T, "s": S}):
        env = {symbol: point[name] for name, symbol in {**SIZES, "t": T, "s": S}.items()}
        assert value_of(lo, point) <= point["t"] < value_of(hi, point)
        assert 0 <= point["s"] < point["S"]
        assert all(fact.evaluate(env) for fact in facts)


def test_sizes_that_are_given_are_kept():
    given_sizes = {SIZES["S"]: 2 * n - 3}
    points = Drawn(Box(), given_sizes).points([n.eq(7) | n.eq(1)])
    assert set(zip(points[SIZES["T"]], points[SIZES["S"]])) == {(7, 11)}  # at 1 the other would be below 1
    assert Drawn(Box(), {}).points([n.eq(1234567)]).exist()  # equations are solved, not guessed
    assert not Drawn(Box(), {}).points([n.eq(m), m.eq(n + 1)]).exist()
    assert min(Drawn(Box(), {}).points([n.eq(m - 9)])[SIZES["T"]]) >= 1


@pytest.mark.parametrize(
    "claim",
    [
        maximum(n - 2 * t, minimum(t, m)).ge(2),
        minimum(n - t, maximum(t - m, 5 - t)).le(n // 3),
        (2 * t).lt(n) | (3 * t).gt(2 * m),
    ],
)
def test_no_proof_is_tried_of_what_is_not_so(claim, monkeypatch):
    def proof(*_):
        raise AssertionError("tried")

    monkeypatch.setattr(context, "refuted", proof)
    here = Context.of(DIMS, n.ge(2))
    assert not here.implies(claim)
    assert not here.excludes(claim)
    assert not here.infeasible()


def test_a_bound_of_what_varies_is_not_looked_for(monkeypatch):
    """An expression is simplified to a number where it is one; most are none."""
    monkeypatch.setattr(context, "projections", lambda *_: pytest.fail("tried"))
    expr = (n - minimum(n, maximum(t, 2)) // 2 + 63) // 64
    assert Context.of([Dim(T, n)]).constant(expr) is None


def test_what_is_a_number_everywhere_is_found():
    here = Context.of(DIMS, n.le(64))
    assert here.constant((n + 63) // 64) == 1
    assert here.constant(minimum(n, 65) - n) == 0
    assert here.constant(n) is None
    assert Context.of(DIMS, n.eq(5)).constant(maximum(n, 3)) == 5


def test_a_context_that_was_asked_pickles():
    here = Context.of(DIMS, n.eq(5))
    assert not here.implies(minimum(t, m).ge(1))
    again = pickle.loads(pickle.dumps(here))
    assert not again.implies(minimum(t, m).ge(2))
    assert again.implies(t.lt(5))
