"""Expressions: canonical form, arithmetic, evaluation, text."""

from __future__ import annotations

import ast
import pickle

import numpy as np
import pytest
from hypothesis import given

from tempo.symbolic import (
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    NonAffineError,
    Symbol,
    as_expr,
    const,
    dim,
    maximum,
    minimum,
    parse_condition,
    parse_expr,
    size,
    to_python,
    var,
)
from tests.unit.symbolic.strategies import SYMBOLS, S, T, env_of, expr_of, points, trees, value_of

t, s = dim("t"), dim("s")
T_, S_ = size("t"), size("s")
POINTS = list(points(4))


@given(trees)
def test_an_expression_has_the_value_of_its_tree(tree):
    expr = expr_of(tree)
    assert [expr.evaluate(env_of(point)) for point in POINTS] == [value_of(tree, point) for point in POINTS]


@given(trees)
def test_arrays_are_evaluated_elementwise(tree):
    arrays = {SYMBOLS[name]: np.array([point[name] for point in POINTS]) for name in SYMBOLS}
    values = np.broadcast_to(expr_of(tree).evaluate(arrays), (len(POINTS),))
    assert values.tolist() == [value_of(tree, point) for point in POINTS]


@given(trees)
def test_text_parses_back_to_an_equal_expression(tree):
    expr = expr_of(tree)
    again = parse_expr(str(expr))
    assert again == expr
    assert hash(again) == hash(expr)


@given(trees)
def test_python_source_has_the_same_value(tree):
    names = lambda symbol: symbol.name if symbol.kind == "dim" else symbol.name.upper()  # noqa: E731
    code = compile(ast.unparse(to_python(expr_of(tree), names)), "<test>", "eval")
    assert [eval(code, {}, point) for point in POINTS[:40]] == [value_of(tree, point) for point in POINTS[:40]]


@given(trees, trees)
def test_substitution_evaluates_to_the_value_at_the_substituted_point(tree, replacement):
    substituted = expr_of(tree).substitute({T: expr_of(replacement)})
    for point in POINTS[:40]:
        moved = {**point, "t": value_of(replacement, point)}
        assert substituted.evaluate(env_of(point)) == value_of(tree, moved)


@given(trees)
def test_a_difference_with_itself_is_zero(tree):
    assert expr_of(tree) - expr_of(tree) == const(0)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (2 * t + T_ - 1, "2*t + t.size - 1"),
        (minimum(t + 4, T_), "min(t + 4, t.size)"),
        (maximum(0, t - 3), "max(t - 3, 0)"),
        ((t + 1) // 2, "(t + 1)//2"),
        (t % 3, "t % 3"),
        (T_ - 1 - t, "t.size - t - 1"),
        (3 - t, "3 - t"),
        (-(t // 2), "-(t//2)"),
        (2 * (t // 2), "2*(t//2)"),
        (t - 3 * (t // 3) - T_, "t - t.size - 3*(t//3)"),
        (const(-2), "-2"),
        (const(0), "0"),
    ],
)
def test_text(expr, text):
    assert str(expr) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (t + s - t, s),
        (t + 1 + minimum(t, s), minimum(2 * t + 1, t + s + 1)),
        (-maximum(t, s), minimum(-t, -s)),
        (t - maximum(t - 3, 0), minimum(3, t)),
        (minimum(t, minimum(s, t + 1)), minimum(t, s)),
        (maximum(t, t - 2), t),
        ((3 * t + 4) // 3, t + 1 + const(1) // 3),
        ((4 * t + 2) // 4, t),
        ((4 * t + s) % 2, s % 2),
        ((t // 2) // 3, t // 6),
        ((t % 6) % 3, t % 3),
        ((t % 3) // 3, const(0)),
        ((t - 1) // 2 + 1, (t + 1) // 2),
        ((2 * t + 3) % 4, 2 * ((t + 1) % 2) + 1),
        (t // 1, t),
        (t % 1, const(0)),
    ],
)
def test_equal_meaning_gives_equal_objects(one, other):
    assert one == other
    assert hash(one) == hash(other)


def test_equality_is_structural_and_does_not_compare():
    assert t == var(Symbol("t", "dim"))
    assert t != T_
    assert t != s
    assert (t == 3) is False
    assert len({t, dim("t"), t + 0, T_}) == 2


def test_as_expr_takes_integers_of_numpy_and_symbols():
    assert as_expr(np.int64(3)) == const(3)
    assert as_expr(T) == t
    assert t + np.int32(2) == t + 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: t * s,
        lambda: t // s,
        lambda: t % T_,
        lambda: t // 0,
        lambda: t % -2,
        lambda: t * 1.5,
        lambda: t + 0.5,
        lambda: t + "1",
    ],
)
def test_what_is_not_affine_is_a_type_error(make):
    with pytest.raises(NonAffineError):
        make()
    assert issubclass(NonAffineError, TypeError)


def test_parts():
    expr = minimum(t + 1, T_) + 2 * (s // 3)
    assert expr.symbols() == {T, S, Symbol("t", "size")}
    assert expr.dims() == {T, S}
    assert expr.sizes() == {Symbol("t", "size")}
    assert const(3).is_const
    assert const(3).as_int() == 3
    with pytest.raises(ValueError, match="t is no number"):
        t.as_int()
    with pytest.raises(KeyError):
        expr.evaluate({T: 1})


def test_extrema_that_sum_to_an_expression_without_them():
    t, s = dim("t"), dim("s")
    assert maximum(t - 3, 0) + minimum(t, 3) == t
    assert 2 * maximum(t, s) + 2 * minimum(s, t) + 1 == 2 * t + 2 * s + 1
    assert maximum(t - 3, 0) - maximum(t - 2 * s, 3 - 2 * s) == 2 * s - 3
    assert minimum(t, s) + minimum(t + 1, s + 1) != 2 * t + 1
    kept = maximum(t - 3, 0) + minimum(t, 4)
    assert {type(atom) for atom, _ in kept.terms} == {Min, Max}


def test_atoms_are_reachable_by_type():
    kinds = [type(atom) for atom, _ in (t // 2 + t % 2 + 2 * minimum(t, s) + 3 * maximum(t, s)).terms]
    assert sorted(kind.__name__ for kind in kinds) == sorted(kind.__name__ for kind in (FloorDiv, Mod, Min, Max))


def test_pickling_keeps_equality_and_recomputes_the_hash():
    expr = minimum(t + 4, T_) // 2 + t % 3
    hash(expr)
    copy = pickle.loads(pickle.dumps(expr))
    assert copy._hash == 0
    assert copy == expr
    assert hash(copy) == hash(expr)


def test_frozen():
    with pytest.raises(AttributeError):
        t.const = 3  # type: ignore[misc]
    assert isinstance(t, Expr)


@pytest.mark.parametrize(
    "text", ["t +", "t / 2", "t.size.bound", "max()", "1.5", "t if t else s", "f(t)", "t < 2", "True"]
)
def test_what_is_no_expression_is_a_value_error(text):
    with pytest.raises(ValueError, match="cannot read|no index expression"):
        parse_expr(text)


@pytest.mark.parametrize("name", ["µ", "μ", "𝑡", "x１", "℘", "and", "True", "lambda", "of", "min", "size", "_utf8_ff"])
def test_any_identifier_is_read_back_as_it_was(name):
    here, far = dim(name), size(name)
    for expr in (here, far, here + 2 * far - dim("t") // 3, minimum(here, far) % 2):
        assert parse_expr(str(expr)) == expr
    condition = here.ge(dim("t")) & (here.eq(3) | ~far.eq(4))
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize("text", ["(" * 3000 + "t" + ")" * 3000, "-" * 100000 + "t", "t\0", "$", "µ µ"])
def test_no_text_breaks_the_reader(text):
    with pytest.raises(ValueError, match="cannot read"):
        parse_expr(text)
