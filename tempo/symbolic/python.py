"""Expressions and conditions as Python source trees, for code generation."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tempo.symbolic.condition import And, Comparison, Condition, Constant, Or
from tempo.symbolic.expr import Atom, Expr, FloorDiv, Min, Mod, Symbol
from tempo.symbolic.text import display_order, sides

Names = Callable[[Symbol], str]

_COMPARISONS: dict[str, ast.cmpop] = {
    ">=": ast.GtE(),
    ">": ast.Gt(),
    "<=": ast.LtE(),
    "<": ast.Lt(),
    "==": ast.Eq(),
    "!=": ast.NotEq(),
}


def to_python(value: Expr | Condition, names: Names) -> ast.expr:
    """The tree of `value`, with `names(symbol)` for each symbol; it calls the builtins `min` and `max`.

    >>> from tempo.symbolic import dim, minimum, size
    >>> ast.unparse(to_python(minimum(dim("t") + 1, size("t")), lambda s: "T" if s.kind == "size" else s.name))
    'min(t + 1, T)'
    """
    return _expr(value, names) if isinstance(value, Expr) else _condition(value, names)


def _expr(expr: Expr, names: Names) -> ast.expr:
    result: ast.expr | None = None
    for atom, c in display_order(expr):
        if result is None:
            result = _term(atom, c, names)
            continue
        result = ast.BinOp(result, ast.Add() if c > 0 else ast.Sub(), _term(atom, abs(c), names))
    assert result is not None
    return result


def _term(atom: Atom | None, factor: int, names: Names) -> ast.expr:
    if atom is None:
        return _number(factor)
    tree = _atom(atom, names)
    if factor == 1:
        return tree
    if factor == -1:
        return ast.UnaryOp(ast.USub(), tree)
    return ast.BinOp(_number(factor), ast.Mult(), tree)


def _number(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _atom(atom: Atom, names: Names) -> ast.expr:
    if isinstance(atom, Symbol):
        return ast.Name(names(atom), ast.Load())
    if isinstance(atom, FloorDiv):
        return ast.BinOp(_expr(atom.expr, names), ast.FloorDiv(), _number(atom.divisor))
    if isinstance(atom, Mod):
        return ast.BinOp(_expr(atom.expr, names), ast.Mod(), _number(atom.divisor))
    function = ast.Name("min" if isinstance(atom, Min) else "max", ast.Load())
    return ast.Call(function, [_expr(arg, names) for arg in atom.args], [])


def _condition(condition: Condition, names: Names) -> ast.expr:
    if isinstance(condition, Constant):
        return ast.Constant(condition.value)
    if isinstance(condition, Comparison):
        return _comparison(condition, None, names)
    if isinstance(condition, Or):
        unequal = condition.as_unequal()
        if unequal is not None:
            return _comparison(unequal, "!=", names)
    assert isinstance(condition, And | Or)
    operator = ast.And() if isinstance(condition, And) else ast.Or()
    return ast.BoolOp(operator, [_condition(arg, names) for arg in condition.args])


def _comparison(comparison: Comparison, operator: str | None, names: Names) -> ast.expr:
    left, own_operator, right = sides(comparison)
    return ast.Compare(_expr(left, names), [_COMPARISONS[operator or own_operator]], [_expr(right, names)])
