"""Trees over other variables, and with other names."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.schedule import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Expr, Symbol


def substituted(tree: ScheduleTree, values: Mapping[Symbol, Expr]) -> ScheduleTree:
    """The tree with symbols replaced, but for the variables of its own loops."""
    if isinstance(tree, Sequence):
        return Sequence(tuple(substituted(item, values) for item in tree.items))
    if isinstance(tree, If):
        return If(tree.condition.substitute(values), substituted(tree.body, values))
    if isinstance(tree, Run):
        return Run(tree.statement, tuple(index.substitute(values) for index in tree.point))
    body = substituted(tree.body, values)
    return For(tree.var, tree.lo.substitute(values), tree.hi.substitute(values), tree.direction, body)


def renamed(tree: ScheduleTree, names: Mapping[str, str]) -> ScheduleTree:
    """The tree with its statements called otherwise."""
    if isinstance(tree, Sequence):
        return Sequence(tuple(renamed(item, names) for item in tree.items))
    if isinstance(tree, If):
        return If(tree.condition, renamed(tree.body, names))
    if isinstance(tree, For):
        return For(tree.var, tree.lo, tree.hi, tree.direction, renamed(tree.body, names))
    return Run(names[tree.statement], tree.point)
