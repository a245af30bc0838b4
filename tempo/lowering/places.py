"""Where each statement runs in a schedule tree: the loops around it, its order, the segment it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, runs
from tempo.symbolic import Expr, Symbol, var

Loops = tuple[tuple[int, For], ...]  # outermost first, each with a number of its own
Block = Callable[[tuple[ScheduleTree, ...], Loops, tuple[int, ...]], None]


@dataclass(frozen=True)
class Place:
    """One `Run` in the tree.

    `loops` are the loops around it, outermost first, each with a number of its own; `guards` the numbers of the `If`s;
    `order` its place in the text. `segment` is the number of the maximal part without host work that it is in (a host
    statement is in one of its own).
    """

    statement: str
    point: tuple[Expr, ...]
    loops: Loops
    guards: tuple[int, ...]
    order: int
    segment: int

    def shared_loops(self, other: Place) -> int:
        """How many loops, from the outermost, are around both."""
        pairs = zip(self.loops, other.loops, strict=False)
        return next((depth for depth, (mine, theirs) in enumerate(pairs) if mine[0] != theirs[0]), self._shorter(other))

    def _shorter(self, other: Place) -> int:
        return min(len(self.loops), len(other.loops))

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
class Part:
    """A piece of a block: either pure (one segment) or a single item with host work."""

    items: tuple[ScheduleTree, ...]
    host: bool


def parts(items: tuple[ScheduleTree, ...], hosts: frozenset[str], loops_apart: bool) -> Iterator[Part]:
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
            yield Part(tuple(pure), host=False)
            pure = []
        yield Part((item,), host=host)
    if pure:
        yield Part(tuple(pure), host=False)


def places(tree: ScheduleTree, hosts: frozenset[str]) -> Mapping[str, tuple[Place, ...]]:
    """The places of every statement, by name."""
    walker = _Walker(hosts)
    walker.host_block(top_items(tree), (), (), loops_apart=True)
    found: dict[str, list[Place]] = {}
    for place in walker.found:
        found.setdefault(place.statement, []).append(place)
    return {name: tuple(several) for name, several in found.items()}


class _Walker:
    def __init__(self, hosts: frozenset[str]) -> None:
        self.hosts = hosts
        self.found: list[Place] = []
        self.segments = 0
        self.numbers = 0

    def host_block(
        self,
        items: tuple[ScheduleTree, ...],
        loops: Loops,
        guards: tuple[int, ...],
        loops_apart: bool = False,
    ) -> None:
        for part in parts(items, self.hosts, loops_apart):
            self.segments += 1
            if part.host:
                self.descend(part.items[0], loops, guards, self.host_block)
                continue
            for item in part.items:
                self.pure(item, loops, guards)

    def pure(self, item: ScheduleTree, loops: Loops, guards: tuple[int, ...]) -> None:
        def block(items: tuple[ScheduleTree, ...], loops: Loops, guards: tuple[int, ...]) -> None:
            for inner in items:
                self.pure(inner, loops, guards)

        self.descend(item, loops, guards, block)

    def descend(self, item: ScheduleTree, loops: Loops, guards: tuple[int, ...], block: Block) -> None:
        self.numbers += 1
        match item:
            case Run(statement, point):
                self.found.append(Place(statement, point, loops, guards, self.numbers, self.segments))
            case For(body=body):
                block(top_items(body), (*loops, (self.numbers, item)), guards)
            case If(body=body):
                block(top_items(body), loops, (*guards, self.numbers))
            case Sequence(items):
                block(items, loops, guards)
