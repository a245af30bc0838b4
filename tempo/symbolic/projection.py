"""What is left of conditions where some symbols may be anything (Fourier and Motzkin)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tempo.symbolic.condition import TRUE, And, Comparison, Condition, Eq, Or, conjunction, disjunction
from tempo.symbolic.expr import Expr, Symbol, var

_MOST_CLAUSES = 64


def projected(symbols: Collection[Symbol], conditions: Collection[Condition]) -> Condition:
    """What holds of the other symbols where all of these hold for some values of these symbols. What is not affine in
    one says nothing, and neither does what has too many alternatives."""
    clauses = _together(map(_clauses, conditions))
    for symbol in symbols:
        clauses = [_without(symbol, clause) for clause in clauses]
    return disjunction(conjunction(expr.ge(0) for expr in clause) for clause in clauses)


def _clauses(condition: Condition) -> list[list[Expr]]:
    """Of which one holds: expressions that are all at least 0."""
    if isinstance(condition, Or):
        found = [clause for each in condition.args for clause in _clauses(each)]
        return found if len(found) <= _MOST_CLAUSES else [[]]
    if isinstance(condition, And):
        return _together(map(_clauses, condition.args))
    if isinstance(condition, Comparison):
        return [[condition.expr, -condition.expr] if isinstance(condition, Eq) else [condition.expr]]
    return [[]] if condition == TRUE else []


def _together(alternatives: Iterable[list[list[Expr]]]) -> list[list[Expr]]:
    found: list[list[Expr]] = [[]]
    for each in alternatives:
        if len(found) * len(each) <= _MOST_CLAUSES:
            found = [[*clause, *more] for clause in found for more in each]
    return found


def _without(symbol: Symbol, exprs: Sequence[Expr]) -> list[Expr]:
    kept = [expr for expr in exprs if symbol not in expr.symbols()]
    affine = [expr for expr in exprs if _is_affine(expr, symbol)]
    for low in (expr for expr in affine if expr.coefficient(symbol) > 0):
        for high in (expr for expr in affine if expr.coefficient(symbol) < 0):
            kept.append(low * -high.coefficient(symbol) + high * low.coefficient(symbol))
    return kept


def _is_affine(expr: Expr, symbol: Symbol) -> bool:
    factor = expr.coefficient(symbol)
    return factor != 0 and symbol not in (expr - var(symbol) * factor).symbols()
