"""From a `SchedulingProblem` to what isl schedules: domains and relations over dims and parameters.

The sizes are parameters, so neither their values nor the number of points changes what isl is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.schedule import Dependence, SchedulingProblem, Statement
from tempo.symbolic import Condition, Symbol, conjunction, var
from tempo_polyhedral.isl import Domain, Parameters, Relation


@dataclass(frozen=True)
class Link:
    """All dependences of one kind between two statements."""

    relation: Relation
    closeness: float
    """Bytes per point that are kept while the target waits; 0 where closeness gains nothing."""


@dataclass(frozen=True)
class Encoded:
    """A problem in isl's terms."""

    parameters: Parameters
    context: Condition
    domains: tuple[Domain, ...]
    links: tuple[Link, ...]


def encode(problem: SchedulingProblem) -> Encoded:
    parameters = Parameters(tuple(sorted(problem.sizes)))
    context = conjunction((problem.facts, *(var(symbol).ge(1) for symbol in parameters.symbols)))
    domains = {each.name: _domain(parameters, each) for each in problem.statements}
    links = tuple(_links(problem, parameters, domains))
    return Encoded(parameters, context, tuple(domains.values()), links)


def _domain(parameters: Parameters, statement: Statement) -> Domain:
    return parameters.domain(statement.name, statement.dims, statement.box.condition() & statement.condition)


def _links(problem: SchedulingProblem, parameters: Parameters, domains: Mapping[str, Domain]) -> Iterator[Link]:
    """One link for each pair of statements and whether closeness matters."""
    found: dict[tuple[str, str, bool], Relation] = {}
    for dependence in dict.fromkeys(problem.dependences):
        source, target = domains[dependence.source], domains[dependence.target]
        relation = _relation(problem, parameters, dependence).within(source, target)
        key = dependence.source, dependence.target, dependence.kind == "data" and not dependence.reduction
        found[key] = found[key].union(relation) if key in found else relation
    for (name, _, close), relation in found.items():
        if not relation.is_empty():
            yield Link(relation, max(problem.by_name[name].bytes, 1.0) if close else 0.0)


def _relation(problem: SchedulingProblem, parameters: Parameters, dependence: Dependence) -> Relation:
    source, target = problem.by_name[dependence.source], problem.by_name[dependence.target]
    read = tuple(Symbol(f"{symbol.name}'", "dim") for symbol in source.dims)
    bounds = [
        bound
        for symbol, interval in zip(read, dependence.relation, strict=True)
        for bound in (var(symbol).ge(interval.lo), var(symbol).le(interval.hi))
    ]
    condition = conjunction((*bounds, dependence.condition))
    return parameters.relation((source.name, read), (target.name, target.dims), condition)
