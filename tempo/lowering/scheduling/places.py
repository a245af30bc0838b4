"""Where each statement runs in a schedule tree: the loops around it, its order, the segment it belongs to.

Before, `scoped` makes the tree one as lowering wants it: no loop hides a variable, no sequence is in a sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tempo.errors import InternalError
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, runs, sequence
from tempo.symbolic import TRUE, Condition, Expr, Symbol, var

Loops = tuple[tuple[int, For], ...]  # outermost first, each with a number of its own


@dataclass(frozen=True)
class Scope:
    """What is around an item: loops, numbers of guards, what the guards say."""

    loops: Loops = ()
    guards: tuple[int, ...] = ()
    condition: Condition = TRUE


Block = Callable[[tuple[ScheduleTree, ...], Scope], None]


@dataclass(frozen=True)
class Place:
    """One `Run` in the tree.

    `loops` are the loops around it, outermost first, each with a number of its own; `guards` the numbers of the `If`s,
    `condition` what these say; `order` its place in the text. `segment` is the number of the maximal part without host
    work that it is in (a host statement is in one of its own), `item` that of the part of the top that it is in.
    """

    statement: str
    point: tuple[Expr, ...]
    loops: Loops
    guards: tuple[int, ...]
    condition: Condition
    order: int
    segment: int
    item: int

    def shared_loops(self, other: Place) -> int:
        """How many loops, from the outermost, are around both."""
        pairs = zip(self.loops, other.loops)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0][0] == pair[1][0], pairs))

    def offset(self, dim: int) -> tuple[Symbol, Expr] | None:
        """(loop variable, c) where coordinate `dim` is that variable plus c; None where it is something else."""
        return shift(self.point[dim], {loop.var for _, loop in self.loops})


def shift(index: Expr, variables: Collection[Symbol]) -> tuple[Symbol, Expr] | None:
    """(v, c) where `index` is one of the variables plus a constant c."""
    for symbol in index.symbols():
        rest = index - var(symbol)
        if symbol in variables and rest.is_const:
            return symbol, rest
    return None


def top_items(tree: ScheduleTree) -> tuple[ScheduleTree, ...]:
    return tree.items if isinstance(tree, Sequence) else (tree,)


def has_host(tree: ScheduleTree, hosts: frozenset[str]) -> bool:
    return any(run.statement in hosts for run in runs(tree))


Apart = Collection[int]
"""Loops that are segments of their own, by identity; those around them are loops of the driver."""


def is_outside(tree: ScheduleTree, hosts: frozenset[str], apart: Apart) -> bool:
    """Whether the driver has a part in it."""
    return has_host(tree, hosts) or any(id(each) in apart for each in inner_loops(tree))


def inner_loops(tree: ScheduleTree) -> Iterator[For]:
    """The loops inside of a tree, outer before inner."""
    body = (tree.body,) if isinstance(tree, For | If) else tree.items if isinstance(tree, Sequence) else ()
    for item in body:
        if isinstance(item, For):
            yield item
        yield from inner_loops(item)


@dataclass(frozen=True)
class Fragment:
    """A piece of a block: either pure (one segment) or a single item with host work."""

    items: tuple[ScheduleTree, ...]
    host: bool


def parts(
    items: tuple[ScheduleTree, ...], hosts: frozenset[str], loops_apart: bool, apart: Apart = ()
) -> Iterator[Fragment]:
    """Cut a block into segments and items with host work.

    `loops_apart`: every loop is a part of its own (at the top, so that it can be run in chunks), else those of `apart`.
    """
    pure: list[ScheduleTree] = []
    for item in items:
        host = is_outside(item, hosts, apart)
        if not host and not (isinstance(item, For) and (loops_apart or id(item) in apart)):
            pure.append(item)
            continue
        if pure:
            yield Fragment(tuple(pure), host=False)
            pure = []
        yield Fragment((item,), host=host)
    if pure:
        yield Fragment(tuple(pure), host=False)


def places(tree: ScheduleTree, hosts: frozenset[str], apart: Apart = ()) -> Mapping[str, tuple[Place, ...]]:
    """The places of every statement, by name."""
    walker = _Walker(hosts, apart)
    walker.host_block(top_items(tree), Scope(), top=True)
    found: dict[str, list[Place]] = {}
    for place in walker.found:
        found.setdefault(place.statement, []).append(place)
    return {name: tuple(several) for name, several in found.items()}


class _Walker:
    def __init__(self, hosts: frozenset[str], apart: Apart) -> None:
        self.hosts, self.apart = hosts, apart
        self.found: list[Place] = []
        self.segments = 0
        self.numbers = 0
        self.item = -1

    def host_block(self, items: tuple[ScheduleTree, ...], scope: Scope, top: bool = False) -> None:
        for part in parts(items, self.hosts, top, self.apart):
            self.segments += 1
            self.item += top
            if part.host:
                self.descend(part.items[0], scope, self.host_block)
                continue
            self.pure_block(part.items, scope)

    def pure_block(self, items: tuple[ScheduleTree, ...], scope: Scope) -> None:
        for item in items:
            self.descend(item, scope, self.pure_block)

    def descend(self, item: ScheduleTree, scope: Scope, block: Block) -> None:
        self.numbers += 1
        match item:
            case Run(statement, point):
                around = scope.loops, scope.guards, scope.condition
                self.found.append(Place(statement, point, *around, self.numbers, self.segments, self.item))
            case For(body=body):
                block(top_items(body), replace(scope, loops=(*scope.loops, (self.numbers, item))))
            case If(condition, body):
                guards, both = (*scope.guards, self.numbers), scope.condition & condition
                block(top_items(body), replace(scope, guards=guards, condition=both))
            case Sequence(items):
                block(items, scope)


Renames = Mapping[Symbol, Expr]


def scoped(tree: ScheduleTree) -> ScheduleTree:
    """The same order. A loop whose variable belongs to a loop around it as well gets a name of its own.

    Raises `InternalError` where the tree uses a variable that no loop around has.
    """
    return _scoped(tree, {})


def _scoped(tree: ScheduleTree, names: Renames) -> ScheduleTree:
    match tree:
        case Run(statement, point):
            return Run(statement, tuple(_renamed(index, names, tree) for index in point))
        case If(condition, body):
            _check(condition, names, tree)
            return If(condition.substitute(names), _scoped(body, names))
        case Sequence(items):
            return sequence(_scoped(item, names) for item in items)
        case For(symbol, lo, hi, direction, body):
            lo, hi = _renamed(lo, names, tree), _renamed(hi, names, tree)
            own = _free(symbol, names)
            return For(own, lo, hi, direction, _scoped(body, {**names, symbol: var(own)}))


def _free(symbol: Symbol, names: Renames) -> Symbol:
    taken = {inner for expr in names.values() for inner in expr.symbols()}
    while symbol in taken:
        symbol = Symbol(f"{symbol.name}_inner", symbol.kind)
    return symbol


def _renamed(expr: Expr, names: Renames, tree: ScheduleTree) -> Expr:
    _check(expr, names, tree)
    return expr.substitute(names)


def _check(value: Expr | Condition, names: Renames, tree: ScheduleTree) -> None:
    unknown = sorted(symbol for symbol in value.dims() if symbol not in names)
    if unknown:
        what = f"{type(tree).__name__.lower()} {tree}" if isinstance(tree, Run) else type(tree).__name__.lower()
        raise InternalError(f"a schedule uses {unknown[0]} in the {what}, where no loop around has it")
