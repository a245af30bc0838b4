"""Writing down the tree: loops over the hull of their statements, guards as high as they can stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tempo.schedule import If, ScheduleTree, Statement, sequence
from tempo.symbolic import TRUE, And, Condition, Context, Expr, Symbol, conjunction, maximum, minimum, var

Guards: TypeAlias = tuple[Condition, ...]  # all hold


@dataclass(frozen=True)
class Placed:
    """A statement under the loops chosen so far: its own index along each of their dims, and guards not yet written.

    `guards` are over the statement's own dims until all of a guard's dims have loops.
    """

    statement: Statement
    point: tuple[tuple[Symbol, Expr], ...] = ()
    guards: Guards = ()

    @staticmethod
    def of(statement: Statement) -> Placed:
        return Placed(statement, (), conjuncts(statement.condition))

    def index(self, dim: Symbol) -> Expr:
        return dict(self.point)[dim]

    def in_loop(self, dim: Symbol, behind: int, loop_lo: Expr, loop_hi: Expr) -> Placed:
        """Inside a loop over `lo <= dim < hi` in which the statement's index is the loop's minus `behind`."""
        lo, hi = self.statement.box.lo(dim), self.statement.box.hi(dim)
        bounds = [
            *([var(dim).ge(lo)] if lo + behind != loop_lo else []),
            *([var(dim).lt(hi)] if hi + behind != loop_hi else []),
        ]
        guards = (*bounds, *self.guards)
        return Placed(self.statement, (*self.point, (dim, var(dim) - behind)), guards)

    def ready(self) -> dict[Condition, Condition]:
        """The guards whose dims all have loops: as they are, and over the loops' variables."""
        point = dict(self.point)
        return {guard: guard.substitute(point) for guard in self.guards if guard.dims() <= point.keys()}

    def without(self, guards: Iterable[Condition]) -> Placed:
        gone = set(guards)
        return Placed(self.statement, self.point, tuple(guard for guard in self.guards if guard not in gone))


def conjuncts(condition: Condition) -> Guards:
    if condition == TRUE:
        return ()
    return condition.args if isinstance(condition, And) else (condition,)


def hoist(members: Sequence[Placed], context: Context) -> tuple[Guards, list[Placed]]:
    """The guards that all members share here, and the members without them and without what always holds here."""
    ready = [member.ready() for member in members]
    proven = {guard: context.implies(guard) for guard in dict.fromkeys(g for found in ready for g in found.values())}
    open_guards = [{own: here for own, here in found.items() if not proven[here]} for found in ready]
    shared = tuple(
        guard
        for guard in dict.fromkeys(open_guards[0].values())
        if all(guard in found.values() for found in open_guards[1:])
    )
    left = []
    for member, found, still_open in zip(members, ready, open_guards):
        left.append(member.without(own for own in found if own not in still_open or found[own] in shared))
    return shared, left


def hull(members: Sequence[Placed], dim: Symbol, behind: Sequence[int], context: Context) -> tuple[Expr, Expr]:
    """The bounds of a loop over `dim` that reaches every instance; member k runs `behind[k]` behind."""
    lows = dict.fromkeys(m.statement.box.lo(dim) + shift for m, shift in zip(members, behind))
    highs = dict.fromkeys(m.statement.box.hi(dim) + shift for m, shift in zip(members, behind))
    return context.simplify(minimum(*lows)), context.simplify(maximum(*highs))


def guarded(parts: Sequence[tuple[Guards, ScheduleTree]]) -> ScheduleTree:
    """The parts in sequence, each under its guards; neighbours share those that they have in common."""
    items: list[ScheduleTree] = []
    start = 0
    while start < len(parts):
        end = max((_run_end(parts, start, guard) for guard in parts[start][0]), default=start + 1)
        run = parts[start:end]
        common = tuple(guard for guard in parts[start][0] if all(guard in guards for guards, _ in run))
        if common:
            rest = [(tuple(guard for guard in guards if guard not in common), tree) for guards, tree in run]
            items.append(If(conjunction(common), guarded(rest)))
        else:
            items.append(parts[start][1])
        start = end
    return sequence(items)


def _run_end(parts: Sequence[tuple[Guards, ScheduleTree]], start: int, guard: Condition) -> int:
    """Where the parts from `start` on that have the guard end."""
    return next((end for end in range(start + 1, len(parts)) if guard not in parts[end][0]), len(parts))
