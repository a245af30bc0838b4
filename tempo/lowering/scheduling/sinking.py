"""Code sinking: what a stop does not wait for comes behind it in the body of its loop, so that the last point is left
without it.

A decoder's layers at t make the token of t + 1: where the run ends at t, nobody wants them. Every order that the
dependences allow within an iteration means the same, so schedulers need not know: what stands before the stop is what
it depends on in its own iteration (the problem says that it depends on what is wanted though the run ends), and what
does not vary along its dim.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo.lowering.scheduling.places import has_host
from tempo.schedule.problem import Dependence, Interval, SchedulingProblem
from tempo.schedule.tree import For, If, Run, ScheduleTree, runs, sequence, walk
from tempo.schedule.tree import Sequence as Items
from tempo.symbolic import Condition, Expr, Symbol


@dataclass(frozen=True)
class _GuardedItem:
    """An item of a loop's body without the guards in front of it."""

    guards: tuple[Condition, ...]
    item: Run | For

    def inner(self) -> frozenset[Symbol]:
        return frozenset(each.var for each in walk(self.item) if isinstance(each, For))


def sunk(
    tree: ScheduleTree, problem: SchedulingProblem, stops: Mapping[str, Symbol], hosts: frozenset[str]
) -> ScheduleTree:
    """The tree with the bodies of loops that a stop is found in rearranged; `stops`: the dims, by statement.

    A loop with calls of the host stays as it is: what is behind the stop would be a segment of its own.
    """
    return _Sinking(problem, stops, hosts).rewritten(tree, frozenset()) if stops else tree


class _Sinking:
    def __init__(self, problem: SchedulingProblem, stops: Mapping[str, Symbol], hosts: frozenset[str]) -> None:
        self.problem, self.stops, self.hosts = problem, stops, hosts
        self.into: dict[str, list[Dependence]] = {}
        for each in problem.dependences:
            self.into.setdefault(each.target, []).append(each)

    def rewritten(self, tree: ScheduleTree, around: frozenset[Symbol]) -> ScheduleTree:
        match tree:
            case Items(items):
                return sequence(self.rewritten(item, around) for item in items)
            case If(condition, body):
                return If(condition, self.rewritten(body, around))
            case For(var=symbol, body=body):
                body = self.rewritten(body, around | {symbol})
                return replace(tree, body=body if has_host(body, self.hosts) else self.body(body, around | {symbol}))
        return tree

    def body(self, body: ScheduleTree, around: frozenset[Symbol]) -> ScheduleTree:
        pieces = tuple(_pieces(body))
        found = [
            at for at, each in enumerate(pieces) if isinstance(each.item, Run) and each.item.statement in self.stops
        ]
        if not found:
            return body
        stop = pieces[found[-1]].item
        assert isinstance(stop, Run)
        first = self.before(pieces, found[-1], self.stops[stop.statement], around)
        if len(first) == found[-1] + 1:
            return body
        later = (at for at in range(len(pieces)) if at not in first)
        return _guarded([pieces[at] for at in (*sorted(first), *later)])

    def before(self, pieces: Sequence[_GuardedItem], stop: int, dim: Symbol, around: frozenset[Symbol]) -> set[int]:
        """The stop, what is wanted whether or not the run ends there, and what these depend on in their iteration."""
        found = {stop, *(at for at, each in enumerate(pieces[:stop]) if self.stays(each, dim))}
        pending = list(found)
        while pending:
            at = pending.pop()
            fresh = {
                earlier
                for earlier in range(at)
                if earlier not in found and self.waits(pieces[at], pieces[earlier], around)
            }
            found |= fresh
            pending.extend(fresh)
        return found

    def stays(self, piece: _GuardedItem, dim: Symbol) -> bool:
        """Whether something that does not vary along the dim is in it."""
        return any(dim not in self.problem.by_name[run.statement].dims for run in runs(piece.item))

    def waits(self, piece: _GuardedItem, earlier: _GuardedItem, around: frozenset[Symbol]) -> bool:
        """Whether something of a piece depends on what an earlier one makes in the same iteration."""
        known = around - earlier.inner() - piece.inner()
        sources = tuple(runs(earlier.item))
        return any(
            each.source == source.statement and not self.is_carried(each, source, run, known)
            for run in runs(piece.item)
            for each in self.into.get(run.statement, ())
            for source in sources
        )

    def is_carried(self, dependence: Dependence, source: Run, target: Run, known: frozenset[Symbol]) -> bool:
        """Whether what the target waits for is never what the source makes in the same iteration. `known`: the
        variables that are the same for both.
        """
        here = dict(zip(self.problem.by_name[target.statement].dims, target.point, strict=True))
        asked = (Interval(each.lo.substitute(here), each.hi.substitute(here)) for each in dependence.relation)
        return any(_is_outside(made, each, known) for made, each in zip(source.point, asked, strict=True))


def _is_outside(made: Expr, asked: Interval, known: Collection[Symbol]) -> bool:
    if not made.dims() | asked.lo.dims() | asked.hi.dims() <= set(known):
        return False
    later, sooner = made - asked.hi, asked.lo - made
    return (later.is_const and later.as_int() > 0) or (sooner.is_const and sooner.as_int() > 0)


def _pieces(tree: ScheduleTree, guards: tuple[Condition, ...] = ()) -> Iterator[_GuardedItem]:
    match tree:
        case Items(items):
            for item in items:
                yield from _pieces(item, guards)
        case If(condition, body):
            yield from _pieces(body, (*guards, condition))
        case _:
            yield _GuardedItem(guards, tree)


def _guarded(pieces: Sequence[_GuardedItem], depth: int = 0) -> ScheduleTree:
    """The pieces in a row; neighbours share guards that they have in common."""
    found: list[ScheduleTree] = []
    for guard, several in itertools.groupby(
        pieces, lambda each: each.guards[depth] if depth < len(each.guards) else None
    ):
        group = list(several)
        if guard is None:
            found.extend(each.item for each in group)
        else:
            found.append(If(guard, _guarded(group, depth + 1)))
    return sequence(found)
