"""Expressions and conditions as text that reads like the source and parses back to equal objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempo.symbolic.expr import ZERO, Atom, Expr, FloorDiv, Max, Min, Mod, Symbol, from_terms

if TYPE_CHECKING:
    from tempo.symbolic.condition import Comparison, Condition


def atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return str(atom)
    if isinstance(atom, FloorDiv):
        return f"{_operand(atom.expr)}//{atom.divisor}"
    if isinstance(atom, Mod):
        return f"{_operand(atom.expr)} % {atom.divisor}"
    name = "min" if isinstance(atom, Min) else "max"
    return f"{name}({', '.join(map(expr_text, atom.args))})"


def _operand(expr: Expr) -> str:
    """The dividend; anything but a symbol, min or max stands in parentheses."""
    lone = expr.terms[0][0] if len(expr.terms) == 1 and expr.const == 0 and expr.terms[0][1] == 1 else None
    text = expr_text(expr)
    return text if isinstance(lone, Symbol | Min | Max) else f"({text})"


def display_order(expr: Expr) -> list[tuple[Atom | None, int]]:
    """Terms as a reader wants them, the constant as `(None, value)`: a positive term first if there is one."""
    positive = [(atom, c) for atom, c in expr.terms if c > 0]
    negative = [(atom, c) for atom, c in expr.terms if c < 0]
    constant: list[tuple[Atom | None, int]] = [(None, expr.const)] if expr.const or not expr.terms else []
    if not positive and expr.const > 0:
        return [*constant, *negative]
    return [*positive, *negative, *constant]


def expr_text(expr: Expr) -> str:
    parts: list[str] = []
    for atom, c in display_order(expr):
        sign = "-" if c < 0 else "+"
        if parts:
            parts.append(f" {sign} {_term_text(atom, abs(c))}")
        else:
            parts.append(f"-{_term_text(atom, -c, leading_minus=True)}" if c < 0 else _term_text(atom, c))
    return "".join(parts)


def _term_text(atom: Atom | None, factor: int, leading_minus: bool = False) -> str:
    if atom is None:
        return str(factor)
    text = str(atom)
    # "-t//2" is "(-t)//2" and "2*t//2" is "(2*t)//2" to Python
    if isinstance(atom, FloorDiv | Mod) and (factor != 1 or leading_minus):
        text = f"({text})"
    return text if factor == 1 else f"{factor}*{text}"


def sides(comparison: Comparison) -> tuple[Expr, str, Expr]:
    """`expr >= 0` or `expr == 0` as (left, operator, right), negative terms moved over; the first atom stands left."""
    from tempo.symbolic.condition import Eq

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


def condition_text(condition: Condition) -> str:
    from tempo.symbolic.condition import And, Comparison, Or

    if isinstance(condition, Comparison):
        left, operator, right = sides(condition)
        return f"{expr_text(left)} {operator} {expr_text(right)}"
    if isinstance(condition, And):
        return " and ".join(_nested(arg) for arg in condition.args)
    if isinstance(condition, Or):
        unequal = condition.as_unequal()
        if unequal is None:
            return " or ".join(_nested(arg) for arg in condition.args)
        left, _, right = sides(unequal)
        return f"{expr_text(left)} != {expr_text(right)}"
    return str(condition)


def _nested(condition: Condition) -> str:
    from tempo.symbolic.condition import And, Or

    text = condition_text(condition)
    compound = isinstance(condition, And) or (isinstance(condition, Or) and condition.as_unequal() is None)
    return f"({text})" if compound else text
