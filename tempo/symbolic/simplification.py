"""Simplification by what a context proves; `Context.simplify` and `Context.simplify_condition` are the entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tempo.symbolic.condition import FALSE, TRUE, And, Condition, Ge, Or, conjunction, disjunction, nonnegative, zero
from tempo.symbolic.expr import Atom, Expr, FloorDiv, Max, Min, Mod, const, of_atom, total

if TYPE_CHECKING:
    from tempo.symbolic.context import Context


def simplify(context: Context, expr: Expr) -> Expr:
    simpler = total((const(expr.const), 1), *((_simplify_atom(context, atom), c) for atom, c in expr.terms))
    if not simpler.terms:
        return simpler
    decided = context.constant(simpler)
    return simpler if decided is None else const(decided)


def _simplify_atom(context: Context, atom: Atom) -> Expr:
    if isinstance(atom, Min | Max):
        return _simplify_extremum(context, atom)
    if isinstance(atom, FloorDiv):
        inner = context.simplify(atom.expr)
        decided = context.constant(inner // atom.divisor)
        return inner // atom.divisor if decided is None else const(decided)
    if isinstance(atom, Mod):
        inner = context.simplify(atom.expr)
        decided = context.constant(inner // atom.divisor)
        return inner % atom.divisor if decided is None else inner - atom.divisor * decided
    return of_atom(atom)


def _simplify_extremum(context: Context, atom: Min | Max) -> Expr:
    """Drop every argument that another one beats everywhere; of equal ones the simplest stays, which sorts first."""
    sign = 1 if isinstance(atom, Min) else -1
    args = list(dict.fromkeys(context.simplify(arg) for arg in atom.args))
    kept = list(args)
    for arg in reversed(args):
        others = [other for other in kept if other != arg]
        if any(context.implies(nonnegative((arg - other) * sign)) for other in others):
            kept.remove(arg)
    return atom.rebuild(kept)


def simplify_condition(context: Context, condition: Condition) -> Condition:
    simpler = condition.map_exprs(context.simplify)
    if context.implies(simpler):
        return TRUE
    if context.excludes(simpler):
        return FALSE
    if isinstance(simpler, And):
        return conjunction(_simplify_each(context, simpler.args, negate=False))
    if isinstance(simpler, Or):
        return disjunction(_simplify_each(context, simpler.args, negate=True))
    if isinstance(simpler, Ge) and context.implies(nonnegative(-simpler.expr)):
        return zero(simpler.expr)
    return simpler


def _simplify_each(context: Context, args: tuple[Condition, ...], negate: bool) -> list[Condition]:
    """Each argument where the others hold (of a conjunction), or where they do not (of a disjunction)."""
    result = list(args)
    for at in range(len(result) - 1, -1, -1):
        others = result[:at] + result[at + 1 :]
        assumed = context.assume(*(~other if negate else other for other in others))
        result[at] = simplify_condition(assumed, result[at])
    return result
