"""Points that are demanded at all sizes and at which something fails at all sizes: what compiling may raise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tempo.analysis.demand.demand import Demand
from tempo.symbolic import And, Condition, Context, Eq, Expr, Ge, Or, Symbol, var

MOST_CANDIDATES = 256
_MOST_VALUES = 8


def witness(demand: Demand, holds: Condition, fails: Condition, facts: Condition) -> dict[Symbol, Expr] | None:
    """A demanded point, in sizes, at which `holds` is true and `fails` is false whatever the sizes are.

    None where there is none among the corners of the demand and the points at which conditions turn.
    """
    if not demand.exact:
        return None
    sizes = Context.of((), facts)
    box = demand.box.condition()
    for point in _candidates(demand, holds, fails):
        if not sizes.implies((box & holds).substitute(point)):
            continue
        if sizes.excludes(fails.substitute(point)):
            return {symbol: sizes.simplify(value) for symbol, value in point.items()}
    return None


def _candidates(demand: Demand, holds: Condition, fails: Condition) -> Iterator[dict[Symbol, Expr]]:
    turns = [*_turning_points(holds), *_turning_points(fails)]
    values = []
    for symbol, lo, hi in demand.box.bounds:
        found = dict.fromkeys([lo, hi - 1, *(value for turning, value in turns if turning == symbol)])
        values.append([value for value in found if not value.dims()][:_MOST_VALUES])
    points = itertools.product(*values)
    for point in itertools.islice(points, MOST_CANDIDATES):
        yield dict(zip(demand.box.dims, point))


def _turning_points(condition: Condition) -> Iterator[tuple[Symbol, Expr]]:
    """Values of a dim, in sizes, on both sides of where a comparison changes."""
    for comparison in _comparisons(condition):
        for atom, coefficient in comparison.expr.terms:
            if isinstance(atom, Symbol) and atom.kind == "dim" and abs(coefficient) == 1:
                zero = (comparison.expr - var(atom) * coefficient) * -coefficient
                yield from ((atom, zero + step) for step in (0, -coefficient, coefficient))


def _comparisons(condition: Condition) -> Iterator[Ge | Eq]:
    pending = [condition]
    while pending:
        current = pending.pop()
        if isinstance(current, Ge | Eq):
            yield current
        elif isinstance(current, And | Or):
            pending.extend(current.args)
