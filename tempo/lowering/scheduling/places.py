"""Where each statement runs in a schedule tree: the loops around it, its order, the segment it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tempo.lowering.scheduling.timeline import Timeline, TimeLoop
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, runs
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol, var

Loops = tuple[tuple[int, For], ...]  # outermost first, each with a number of its own


@dataclass(frozen=True)
class Scope:
    """What is around an item: real loops, numbers of guards, levels of the timeline, what the guards say."""

    loops: Loops = ()
    guards: tuple[int, ...] = ()
    levels: tuple[TimeLoop, ...] = ()
    condition: Condition = TRUE

    @property
    def group(self) -> int:
        return self.levels[-1].group if self.levels else -1


Block = Callable[[tuple[ScheduleTree, ...], Scope], None]


@dataclass(frozen=True)
class Place:
    """One `Run` in the tree.

    `loops` are the loops around it, outermost first, each with a number of its own; `guards` the numbers of the `If`s,
    `condition` what these say; `order` its place in the text. `levels` say when it runs: loops that are pieces of one
    loop share a level. `segment` is the number of the maximal part without host work that it is in (a host statement is
    in one of its own), `item` that of the part of the top that it is in.
    """

    statement: str
    point: tuple[Expr, ...]
    loops: Loops
    guards: tuple[int, ...]
    levels: tuple[TimeLoop, ...]
    condition: Condition
    order: int
    segment: int
    item: int

    def shared_levels(self, other: Place) -> int:
        """How many levels, from the outermost, are those of both."""
        pairs = zip(self.levels, other.levels, strict=False)
        shorter = min(len(self.levels), len(other.levels))
        return next((depth for depth, (mine, theirs) in enumerate(pairs) if mine.group != theirs.group), shorter)

    def offset(self, dim: int) -> tuple[Symbol, Expr] | None:
        """(loop variable, c) where coordinate `dim` is that variable plus c; None where it is something else."""
        expr = self.point[dim]
        for _, loop in self.loops:
            rest = expr - var(loop.var)
            if rest.is_const:
                return loop.var, rest
        return None


def top_items(tree: ScheduleTree) -> tuple[ScheduleTree, ...]:
    return tree.items if isinstance(tree, Sequence) else (tree,)


def has_host(tree: ScheduleTree, hosts: frozenset[str]) -> bool:
    return any(run.statement in hosts for run in runs(tree))


@dataclass(frozen=True)
class Fragment:
    """A piece of a block: either pure (one segment) or a single item with host work."""

    items: tuple[ScheduleTree, ...]
    host: bool


def parts(items: tuple[ScheduleTree, ...], hosts: frozenset[str], loops_apart: bool) -> Iterator[Fragment]:
    """Cut a block into segments and items with host work.

    `loops_apart`: every loop is a part of its own (at the top, so that it can be run in chunks).
    """
    pure: list[ScheduleTree] = []
    for item in items:
        host = has_host(item, hosts)
        if not host and not (loops_apart and isinstance(item, For)):
            pure.append(item)
            continue
        if pure:
            yield Fragment(tuple(pure), host=False)
            pure = []
        yield Fragment((item,), host=host)
    if pure:
        yield Fragment(tuple(pure), host=False)


def places(tree: ScheduleTree, hosts: frozenset[str], sizes: Context) -> Mapping[str, tuple[Place, ...]]:
    """The places of every statement, by name. `sizes` is what is known of the sizes."""
    walker = _Walker(hosts, Timeline(sizes))
    walker.timeline.region(tree, -1)
    walker.host_block(top_items(tree), Scope(), top=True)
    found: dict[str, list[Place]] = {}
    for place in walker.found:
        found.setdefault(place.statement, []).append(place)
    return {name: tuple(several) for name, several in found.items()}


class _Walker:
    def __init__(self, hosts: frozenset[str], timeline: Timeline) -> None:
        self.hosts = hosts
        self.timeline = timeline
        self.found: list[Place] = []
        self.segments = 0
        self.numbers = 0
        self.item = -1

    def host_block(self, items: tuple[ScheduleTree, ...], scope: Scope, top: bool = False) -> None:
        for part in parts(items, self.hosts, loops_apart=top):
            self.segments += 1
            self.item += top
            if part.host:
                self.descend(part.items[0], scope, self.host_block)
                continue
            for item in part.items:
                self.pure(item, scope)

    def pure(self, item: ScheduleTree, scope: Scope) -> None:
        def block(items: tuple[ScheduleTree, ...], scope: Scope) -> None:
            for inner in items:
                self.pure(inner, scope)

        self.descend(item, scope, block)

    def descend(self, item: ScheduleTree, scope: Scope, block: Block) -> None:
        self.numbers += 1
        match item:
            case Run(statement, point):
                self.found.append(self.place(statement, point, self.within(item, scope)))
            case For(body=body):
                around = self.within(item, scope)
                inner = Scope((*scope.loops, (self.numbers, item)), scope.guards, around.levels, scope.condition)
                self.timeline.region(body, inner.group)
                block(top_items(body), inner)
            case If(condition, body):
                guards, both = (*scope.guards, self.numbers), scope.condition & condition
                block(top_items(body), Scope(scope.loops, guards, scope.levels, both))
            case Sequence(items):
                block(items, scope)

    def within(self, item: ScheduleTree, scope: Scope) -> Scope:
        """`scope` with the levels of a loop or run."""
        return Scope(scope.loops, scope.guards, (*scope.levels, *self.timeline.levels(item)), scope.condition)

    def place(self, statement: str, point: tuple[Expr, ...], scope: Scope) -> Place:
        return Place(
            statement,
            point,
            scope.loops,
            scope.guards,
            scope.levels,
            scope.condition,
            self.numbers,
            self.segments,
            self.item,
        )
