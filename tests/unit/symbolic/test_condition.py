"""Conditions: negation normal form, evaluation, text."""

from __future__ import annotations

import ast
import pickle

import numpy as np
import pytest
from hypothesis import given

from tempo.symbolic import FALSE, TRUE, And, Eq, Ge, Or, const, dim, maximum, minimum, parse_condition, size, to_python
from tests.unit.symbolic.strategies import SYMBOLS, T, condition_of, condition_trees, env_of, points, truth_of

t, s = dim("t"), dim("s")
T_, P = size("t"), size("p")
POINTS = list(points(4))


@given(condition_trees)
def test_a_condition_has_the_truth_of_its_tree(tree):
    condition = condition_of(tree)
    assert [bool(condition.evaluate(env_of(point))) for point in POINTS] == [truth_of(tree, p) for p in POINTS]


@given(condition_trees)
def test_negation_is_the_complement(tree):
    condition = condition_of(tree)
    negated = ~condition
    for point in POINTS:
        assert bool(negated.evaluate(env_of(point))) is not bool(condition.evaluate(env_of(point)))


@given(condition_trees)
def test_arrays_are_evaluated_elementwise(tree):
    arrays = {SYMBOLS[name]: np.array([point[name] for point in POINTS]) for name in SYMBOLS}
    values = np.broadcast_to(condition_of(tree).evaluate(arrays), (len(POINTS),))
    assert values.tolist() == [truth_of(tree, point) for point in POINTS]


@given(condition_trees)
def test_text_parses_back_to_an_equal_condition(tree):
    condition = condition_of(tree)
    assert parse_condition(str(condition)) == condition


@given(condition_trees)
def test_python_source_has_the_same_truth(tree):
    names = lambda symbol: symbol.name if symbol.kind == "dim" else symbol.name.upper()  # noqa: E731
    code = compile(ast.unparse(to_python(condition_of(tree), names)), "<test>", "eval")
    assert [eval(code, {}, point) for point in POINTS[:40]] == [truth_of(tree, point) for point in POINTS[:40]]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (t.ge(1), "t >= 1"),
        (t.eq(0), "t == 0"),
        (t.ne(3), "t != 3"),
        (t.lt(T_ - 2), "t < t.size - 2"),
        (s.le(t), "s <= t"),
        (t.lt(P) & ((t % 2).eq(0) | s.ge(t)), "t < p.size and (t % 2 == 0 or s >= t)"),
        (t.eq(0) | t.ne(3) & s.eq(1), "t == 0 or (t != 3 and s == 1)"),
        (t.lt(minimum(s, P)), "s > t and t < p.size"),
        (~(t % 2).eq(1), "t % 2 == 0"),
        (TRUE, "True"),
        (FALSE, "False"),
    ],
)
def test_text(condition, text):
    assert str(condition) == text
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (t.ge(0) & t.lt(0), FALSE),
        (t.ge(3) | t.lt(3), TRUE),
        (t.ge(3) & t.ge(5), t.ge(5)),
        (t.ge(3) | t.ge(5), t.ge(3)),
        (t.ge(3) & TRUE, t.ge(3)),
        (t.ge(3) & t.ge(3), t.ge(3)),
        ((2 * t).ge(3), t.ge(2)),
        ((2 * t).eq(3), FALSE),
        ((2 * t).eq(4), t.eq(2)),
        (t.eq(s), s.eq(t)),
        ((t % 3).lt(3), TRUE),
        ((t % 3).eq(3), FALSE),
        ((t % 3).le(0), (t % 3).eq(0)),
        (maximum(t, s).ge(4), s.ge(4) | t.ge(4)),
        (~(t.ge(1) & s.ge(1)), t.le(0) | s.le(0)),
        (const(3).ge(3), TRUE),
    ],
)
def test_equal_meaning_gives_equal_objects(one, other):
    assert one == other


def test_a_condition_has_no_truth_value():
    with pytest.raises(TypeError, match=r"`t >= 1` has no truth value"):
        bool(t.ge(1))
    assert bool(TRUE) is True
    assert bool(FALSE) is False


def test_parts():
    condition = t.lt(P) & ((t % 2).eq(0) | s.ge(t))
    assert isinstance(condition, And)
    assert isinstance(condition.args[0], Ge)
    assert isinstance(condition.args[1], Or)
    assert isinstance(condition.args[1].args[0], Eq)
    assert {symbol.name for symbol in condition.dims()} == {"t", "s"}
    assert {symbol.name for symbol in condition.sizes()} == {"p"}
    assert condition.substitute({T: 0}) == P.ge(1)
    assert pickle.loads(pickle.dumps(condition)) == condition


@pytest.mark.parametrize("text", ["t", "t <", "t in s", "t < s or 3", "1 < 2 < x.y.z", "t + 1"])
def test_what_is_no_condition_is_a_value_error(text):
    with pytest.raises(ValueError, match="cannot read|no condition|no index expression"):
        parse_condition(text)


def test_chains_and_negations_are_read():
    assert parse_condition("0 <= t < t.size") == t.ge(0) & t.lt(T_)
    assert parse_condition("not (t < 3)") == t.ge(3)
