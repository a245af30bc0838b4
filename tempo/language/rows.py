"""Conditions on the last point of a row (`t < t.last`), in cases: a selection where some rows take the case and others
do not, and a case of its own where all do, whatever their lengths.

    h[b, t.last] = x                         t == t.size - 1: x
    h[b, t] = f(h[b, t + 1])         ->      True: where(t == last[b], x, f(h[b, t + 1]))
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tempo.errors import DefinitionError, user_location
from tempo.language.conversion import condition_value
from tempo.language.indexing.expression import lasts
from tempo.language.program import Program
from tempo.sdg.graph import Case
from tempo.symbolic import (
    TRUE,
    And,
    Comparison,
    Condition,
    Context,
    Eq,
    Expr,
    Or,
    Symbol,
    conjunction,
    const,
    disjunction,
    over_counts,
    var,
)


def dims_of(program: Program, condition: Condition) -> set[Symbol]:
    """Along which it varies, as the lengths of its rows do."""
    rows = (program.builder.rows(symbol.of_kind("dim")) for symbol in lasts(condition))
    return {*condition.dims(), *(symbol for each in rows for symbol in each)}


def _known(program: Program, domain: Collection[Symbol], *facts: Condition) -> Context:
    """What holds at a point of a row: it is not behind the row's last."""
    dims = {symbol: symbol.of_kind("last") for symbol in program.builder.lengths if symbol in domain}
    inside = (var(dim).le(var(last)) for dim, last in dims.items())
    return program.builder.context.assume(*map(over_counts, (*inside, *facts)))


def without_lasts(
    program: Program, cases: tuple[Case, ...], domain: Collection[Symbol], earlier: tuple[Condition, ...] = ()
) -> tuple[Case, ...]:
    """The cases of what varies along `domain`, without conditions on last points. `earlier` are cases before them.

    Raises `DefinitionError` where rows may take none of them.
    """
    place = next((place for place, case in enumerate(cases) if lasts(case.condition)), None)
    if place is None:
        return cases
    before, case, builder = cases[:place], cases[place], program.builder
    condition, earlier = case.condition, (*earlier, *(each.condition for each in before))
    if _known(program, domain, *(~each for each in earlier)).implies(over_counts(condition)):
        return (*before, replace(case, condition=TRUE))
    rest = without_lasts(program, cases[place + 1 :], domain, (*earlier, condition))
    if not rest:
        raise DefinitionError(
            f"some points are not known to have a case: the last one is {condition}",
            location=case.location or user_location(),
            hint="write the last case for all points that are left: h[b, t] = ...",
        )
    some, others = (builder.context.simplify_condition(_possible(program, each)) for each in (condition, ~condition))
    type, located = builder.seen_type(case.edge), lambda: case.location or user_location()
    otherwise = rest[0].edge if rest[0].condition == TRUE else builder.cases(rest, type, locate=located)
    selected = builder.pure("where", (condition_value(condition).edge, case.edge, otherwise), {}, located)
    builder.guards[selected.node] = condition
    every = () if others == TRUE else (replace(case, condition=some & ~others),)
    outside = builder.context.assume(~some, *(~each.condition for each in before))
    left = (each for each in rest if not outside.excludes(each.condition))
    return (*before, *every, replace(case, condition=some, edge=selected), *left)


def _possible(program: Program, condition: Condition) -> Condition:
    """Where it may hold for some lengths."""
    if isinstance(condition, (And, Or)):
        join = conjunction if isinstance(condition, And) else disjunction
        return join(_possible(program, each) for each in condition.args)
    if not isinstance(condition, Comparison) or not lasts(condition):
        return condition
    bounds = (condition.expr, -condition.expr) if isinstance(condition, Eq) else (condition.expr,)
    return conjunction(_greatest(program, each).ge(0) for each in bounds)


def _greatest(program: Program, expr: Expr) -> Expr:
    """What it is at most, whatever the lengths with which the row has the point; 0 where that is not known."""
    if any(lasts(atom) and not isinstance(atom, Symbol) for atom, _ in expr.terms):
        return const(0)
    at: dict[Symbol, Expr] = {}
    for symbol in lasts(expr):
        dim = symbol.of_kind("dim")
        least = var(dim) if dim in expr.dims() else const(-1)
        at[symbol] = program.builder.size(dim) - 1 if expr.coefficient(symbol) > 0 else least
    return expr.substitute(at)
