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
from tempo.language.indexing.expression import fail, lasts
from tempo.language.program import Program
from tempo.sdg.graph import Case, Edge, Port, identity_map
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import (
    TRUE,
    Condition,
    Context,
    Symbol,
    over_counts,
    projected,
    var,
)


def of_those_there(program: Program, lengths: Edge) -> Edge:
    """Lengths that are 0 for rows that are points of other rows, and not there."""
    from tempo.analysis.rows import Mask, Rows, exists, selected  # needed only where rows are in rows

    builder, domain = program.builder, program.builder.nodes[lengths.node].domain
    tensors = Tensors(builder, user_location())
    for end in (builder.outputs[Port("rows", symbol.name)] for symbol in domain if symbol in builder.lengths):
        rows = Rows(identity_map(end.domain), ())
        lengths = selected(tensors, exists(end, tensors, rows), lengths, Mask(rows, 0), in_row=True)
    return lengths


def check_known(program: Program, condition: Condition) -> None:
    """Raises `IndexExpressionError` for a case on a last point that is known when a loop has ended."""
    for symbol in lasts(condition):
        if symbol.of_kind("dim") not in program.builder.lengths:
            fail(
                f"a case on {condition}, and {symbol} is known when the loop over {symbol.name} has ended",
                f"select by its value: tp.where(tp.as_tensor({symbol}) > 0, a, b)",
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
    left = [~each for each in earlier]
    some, others = (_possible(program, domain, *left, each) for each in (condition, ~condition))
    type, located = builder.seen_type(case.edge), lambda: case.location or user_location()
    both = builder.context.assume(some, others)
    otherwise = rest[0].edge if both.implies(rest[0].condition) else builder.cases(rest, type, locate=located)
    selected = builder.pure("where", (condition_value(condition).edge, case.edge, otherwise), {}, located)
    builder.guards[selected.node] = condition
    outside, found = builder.context.assume(*(~each.condition for each in before)), list(before)
    for where, edge in ((some & ~others, case.edge), (some, selected)):
        if not outside.excludes(where):
            found.append(replace(case, condition=where, edge=edge))
            outside = outside.assume(~where)
    if len(found) == len(before):  # no row takes it: an error
        found.append(replace(case, condition=some))
    for each in rest:
        where = _possible(program, domain, *left, ~condition, each.condition)
        if not outside.excludes(where):
            found.append(replace(each, condition=where))
            outside = outside.assume(~where)
    return tuple(found)


def _possible(program: Program, domain: Collection[Symbol], *conditions: Condition) -> Condition:
    """Where all of them may hold, for some lengths with which the row has the point: last points are eliminated
    (Fourier and Motzkin), and what is not affine in them is taken to hold."""
    context = program.builder.context
    symbols = sorted({symbol for each in conditions for symbol in lasts(each)})
    inside: list[Condition] = []
    for symbol in symbols:
        dim = symbol.of_kind("dim")
        inside += (var(symbol).lt(program.builder.size(dim)), var(symbol).ge(var(dim) if dim in domain else -1))
    return context.simplify_condition(projected(symbols, (*inside, *conditions)))
