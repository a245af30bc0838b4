"""isl's scheduler: an order of all instances from domains and relations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import islpy as isl

from tempo.symbolic import Condition
from tempo_polyhedral.isl.errors import IslError, told
from tempo_polyhedral.isl.sets import Domain, Parameters, Relation
from tempo_polyhedral.settings import Settings


@dataclass(frozen=True)
class Order:
    """A schedule as isl has it."""

    parameters: Parameters
    context: Any = field(repr=False)
    tree: Any = field(repr=False)

    def __str__(self) -> str:
        return str(self.tree)


def schedule(
    parameters: Parameters,
    context: Condition,
    domains: Sequence[Domain],
    before: Iterable[Relation],
    near: Iterable[Relation],
    settings: Settings,
) -> Order:
    """An order in which every pair of `before` has its source first, those of `near` as close as can be."""
    with told():
        _set_options(settings)
        known = parameters.context(context)
        space = known.get_space()
        everything = isl.UnionSet.empty(space)
        for domain in domains:
            everything = everything.union(isl.UnionSet.from_set(domain.points))
        constraints = (
            isl.ScheduleConstraints.on_domain(everything)
            .set_context(known)
            .set_validity(_union(space, before))
            .set_proximity(_union(space, near))
        )
        order = constraints.compute_schedule()
        _check(order, constraints.get_validity().intersect_params(known))
        return Order(parameters, known, order)


def _check(order: Any, before: Any) -> None:
    """IslError unless the order has every pair's source first, at all sizes: isl leaves cycles out without a word."""
    time = order.get_map()
    pairs = before.apply_domain(time).apply_range(time)
    found = pairs.deltas().get_set_list()
    for steps in (found.get_at(place) for place in range(found.n_set())):
        forward = isl.Map.lex_lt(steps.get_space()).deltas()
        if not steps.is_subset(forward):
            raise IslError("the dependences have a cycle, or no affine order serves them")


def _set_options(settings: Settings) -> None:
    context = isl.DEFAULT_CONTEXT
    algorithm = isl.schedule_algorithm
    context.set_schedule_algorithm(algorithm.FEAUTRIER if settings.algorithm == "feautrier" else algorithm.ISL)
    context.set_schedule_whole_component(int(settings.whole_component))
    context.set_schedule_max_coefficient(settings.max_coefficient)
    context.set_schedule_max_constant_term(settings.max_constant)
    # Coalescing saves loops over tiles of which there are none here, and works against shifts.
    context.set_schedule_treat_coalescing(0)


def _union(space: Any, relations: Iterable[Relation]) -> Any:
    found = isl.UnionMap.empty(space)
    for relation in relations:
        found = found.union(isl.UnionMap.from_map(relation.pairs))
    return found
