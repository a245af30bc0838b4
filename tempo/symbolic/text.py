"""Expressions and conditions as text that reads like the source and parses back to equal objects."""

from __future__ import annotations

import ast
from collections.abc import Callable
from threading import Lock

from tempo.symbolic.condition import And, Comparison, Condition, Eq, Or
from tempo.symbolic.expr import ZERO, Atom, Expr, FloorDiv, Max, Min, Mod, Symbol, from_terms

Names = Callable[[Symbol], str]


def to_python(value: Expr | Condition, names: Names) -> ast.expr:
    """The source tree of `value`, with `names(symbol)` for each symbol; it calls the builtins `min` and `max`.

    >>> from tempo.symbolic import dim, minimum, size
    >>> ast.unparse(to_python(minimum(dim("t") + 1, size("t")), lambda s: "T" if s.kind == "size" else s.name))
    'min(t + 1, T)'
    """
    text = expr_text(value, names) if isinstance(value, Expr) else condition_text(value, names)
    return syntax_tree(text)


_PARSING = Lock()


def syntax_tree(text: str) -> ast.expr:
    """The tree of an expression in Python's syntax; in any thread.

    Python 3.11 counts the depth of the tree that it makes for all threads at once, and where two make one it may raise
    SystemError (https://github.com/python/cpython/issues/106905).
    """
    with _PARSING:
        return ast.parse(text, mode="eval").body


def atom_text(atom: Atom, names: Names = str) -> str:
    if isinstance(atom, Symbol):
        return names(atom)
    if isinstance(atom, FloorDiv):
        return f"{_operand(atom.expr, names)}//{atom.divisor}"
    if isinstance(atom, Mod):
        return f"{_operand(atom.expr, names)} % {atom.divisor}"
    name = "min" if isinstance(atom, Min) else "max"
    return f"{name}({', '.join(expr_text(arg, names) for arg in atom.args)})"


def _operand(expr: Expr, names: Names) -> str:
    """The dividend; anything but a symbol, min or max stands in parentheses."""
    lone = expr.terms[0][0] if len(expr.terms) == 1 and expr.const == 0 and expr.terms[0][1] == 1 else None
    text = expr_text(expr, names)
    return text if isinstance(lone, Symbol | Min | Max) else f"({text})"


def _display_order(expr: Expr) -> list[tuple[Atom | None, int]]:
    """Terms as a reader wants them, the constant as `(None, value)`: a positive term first if there is one."""
    positive = [(atom, c) for atom, c in expr.terms if c > 0]
    negative = [(atom, c) for atom, c in expr.terms if c < 0]
    constant: list[tuple[Atom | None, int]] = [(None, expr.const)] if expr.const or not expr.terms else []
    if not positive and expr.const > 0:
        return [*constant, *negative]
    return [*positive, *negative, *constant]


def expr_text(expr: Expr, names: Names = str) -> str:
    first, *rest = _display_order(expr)
    more = (f" {'-' if c < 0 else '+'} {_term_text(atom, abs(c), names)}" for atom, c in rest)
    return "".join((_term_text(*first, names), *more))


def _term_text(atom: Atom | None, factor: int, names: Names) -> str:
    if atom is None:
        return str(factor)
    text = str(atom) if names is str else atom_text(atom, names)  # an atom remembers its own
    # "-t//2" is "(-t)//2" and "2*t//2" is "(2*t)//2" to Python
    if isinstance(atom, FloorDiv | Mod) and factor != 1:
        text = f"({text})"
    return text if factor == 1 else f"-{text}" if factor == -1 else f"{factor}*{text}"


def _sides(comparison: Comparison) -> tuple[Expr, str, Expr]:
    """`expr >= 0` or `expr == 0` as (left, operator, right), negative terms moved over; the first atom stands left."""
    terms, c = comparison.expr.terms, comparison.expr.const
    if terms and isinstance(terms[-1][0], Min | Max):  # parts of such a sum would take another canonical form
        return comparison.expr, "==" if isinstance(comparison, Eq) else ">=", ZERO
    positive = from_terms({atom: k for atom, k in terms if k > 0}, 0)
    negative = from_terms({atom: -k for atom, k in terms if k < 0}, 0)
    first_is_positive = bool(terms) and terms[0][1] > 0
    if isinstance(comparison, Eq):
        return (positive, "==", negative - c) if first_is_positive else (negative, "==", positive + c)
    if first_is_positive:  # positive >= negative - c
        strict = c < 0 and bool(negative.terms)
        return (positive, ">", negative - (c + 1)) if strict else (positive, ">=", negative - c)
    strict = c < 0 and bool(positive.terms)  # negative <= positive + c
    return (negative, "<", positive + (c + 1)) if strict else (negative, "<=", positive + c)


def condition_text(condition: Condition, names: Names = str) -> str:
    unequal = condition.as_unequal() if isinstance(condition, Or) else None
    if unequal is not None:
        left, _, right = _sides(unequal)
        return f"{expr_text(left, names)} != {expr_text(right, names)}"
    if isinstance(condition, Comparison):
        left, operator, right = _sides(condition)
        return f"{expr_text(left, names)} {operator} {expr_text(right, names)}"
    if isinstance(condition, And | Or):
        joint = " and " if isinstance(condition, And) else " or "
        return joint.join(_nested(arg, names) for arg in condition.args)
    return str(condition)


def _nested(condition: Condition, names: Names) -> str:
    text = condition_text(condition, names)
    compound = isinstance(condition, And) or (isinstance(condition, Or) and condition.as_unequal() is None)
    return f"({text})" if compound else text
