"""Adjoints while they are collected: sums of contributions that exist at some points only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tempo.autodiff.nodes import Guarded, Nodes
from tempo.autodiff.parts import summed
from tempo.sdg.graph import Edge, TensorType
from tempo.symbolic import TRUE, Condition, Context, conjunction, disjunction

Alternatives = tuple[Guarded, ...]
"""The value is that of the one that holds; none do where the adjoint is zero and nothing is to be computed."""


def collected(nodes: Nodes, contributions: Sequence[Guarded], type: TensorType, context: Context) -> Alternatives:
    """The sum of the contributions, so that at every point only those that exist there are computed."""
    received: dict[Condition, list[Edge]] = {}
    for condition, edge in contributions:
        received.setdefault(condition, []).append(edge)
    groups = [(condition, summed(nodes, edges)) for condition, edges in received.items()]
    found: Alternatives = ()
    for group in groups:
        joined = _joined(nodes, found, group, context)
        if joined is None:
            return (_padded(nodes, tuple(groups), type, context),)
        found = joined
    return found


def _padded(nodes: Nodes, groups: Alternatives, type: TensorType, context: Context) -> Guarded:
    """The sum where any of them exists, of each with zeros where it does not: as many cases as there are groups."""
    covered = disjunction(condition for condition, _ in groups)
    zero = TRUE, nodes.zeros(type)
    parts = [
        edge if context.implies(condition) else nodes.choice(((condition, edge), zero), type)
        for condition, edge in groups
    ]
    condition = TRUE if context.implies(covered) else context.simplify_condition(covered)
    return condition, reduce(nodes.add, parts)


def _joined(nodes: Nodes, found: Alternatives, new: Guarded, context: Context) -> Alternatives | None:
    """`found` and `new`, added where both exist; None where there are several others, and not all of them apart."""
    condition, edge = new
    if all(context.excludes(other & condition) for other, _ in found):
        return (*found, new)
    if len(found) > 1:
        return None
    ((other, value),) = found
    within = context.assume(condition)
    if within.implies(other):  # new is the narrower one
        return ((condition, nodes.add(value, edge)), (other, value))
    if context.assume(other).implies(condition):
        return ((other, nodes.add(value, edge)), (condition, edge))
    both = context.simplify_condition(conjunction((other, condition)))
    return ((both, nodes.add(value, edge)), (other, value), (condition, edge))


def choice(nodes: Nodes, found: Alternatives, type: TensorType, context: Context) -> Guarded:
    """One value and where there is one; a merge where there are several alternatives."""
    if len(found) == 1:
        return found[0]
    covered = disjunction(condition for condition, _ in found)
    if context.implies(covered):
        cases = (*found[:-1], (TRUE, found[-1][1]))
        return TRUE, nodes.choice(cases, type)
    return context.simplify_condition(covered), nodes.choice(found, type)
