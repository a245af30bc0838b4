"""Adjoints while they are collected: sums of contributions that exist at some points only."""

from __future__ import annotations

from collections.abc import Sequence

from tempo.autodiff.nodes import Guarded, Nodes
from tempo.sdg.graph import TensorType
from tempo.symbolic import TRUE, Context, conjunction, disjunction

Alternatives = tuple[Guarded, ...]
"""The value is that of the one that holds; none do where the adjoint is zero and nothing is to be computed."""


def collected(nodes: Nodes, contributions: Sequence[Guarded], type: TensorType, context: Context) -> Alternatives:
    """The sum of the contributions, so that at every point only those that exist there are computed."""
    groups: dict[object, Guarded] = {}
    for condition, edge in contributions:
        known = groups.get(condition)
        groups[condition] = (condition, edge if known is None else nodes.add(known[1], edge))
    found: Alternatives = ()
    for group in groups.values():
        found = _joined(nodes, found, group, type, context)
    return found


def _joined(nodes: Nodes, found: Alternatives, new: Guarded, type: TensorType, context: Context) -> Alternatives:
    """`found` and `new`, added where both exist."""
    condition, edge = new
    if all(context.excludes(other & condition) for other, _ in found):
        return (*found, new)
    if len(found) > 1:
        known = choice(nodes, found, type, context)
        return _joined(nodes, (known,), new, type, context)
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
