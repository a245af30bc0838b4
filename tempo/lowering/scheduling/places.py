"""Where each statement runs in a schedule tree: the loops around it, its order, the segment it belongs to.

Before, `scoped` makes the tree one as lowering wants it: no loop hides a variable, no sequence is in a sequence, no
part is shared. When parts of it run is said with loops that were cut into pieces seen as one (`Timeline`).

A scheduler may peel a loop: `for t in 0..7: act(t)`, then `for t in 7..T: act(t); learn(t - 7)`. The order is that of
one loop over t in which each part of the body runs for some of its iterations, and reuse distances are found as in that
loop. Pieces of a loop have its variable, and ranges that follow one another in its direction. A part that is no loop
belongs to one as well where it makes the next points of what the loop makes: `act(0)` before `for t in 1..T: act(t)`
runs at the iteration t = 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tempo.errors import InternalError
from tempo.schedule import Direction
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, runs, sequence, walk
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol, var

Kind = tuple[Symbol, Direction]


@dataclass(frozen=True)
class TimeLoop:
    """One loop around a part of the tree, as a coordinate of time.

    `group` numbers the whole loop, `piece` the part of it; pieces of one loop never run at the same iteration.
    `iteration` is the loop's variable, or the iteration at which a part that is no loop stands.
    """

    group: int
    piece: int
    direction: Direction
    iteration: Expr
    lo: Expr
    hi: Expr

    @property
    def forward(self) -> bool:
        return self.direction == "forward"


@dataclass
class _CutLoop:
    """A loop and its pieces, in the order of the text: the number of a leaf and its level."""

    group: int
    kind: Kind
    pieces: list[tuple[int, TimeLoop]] = field(default_factory=list)


class Timeline:
    """Finds levels, region by region: a region is the body of a loop, through guards and sequences."""

    def __init__(self, sizes: Context) -> None:
        self.sizes = sizes
        self._groups: dict[tuple[int, Kind, int], int] = {}
        self._levels: dict[int, tuple[TimeLoop, ...]] = {}  # by identity of the loop or run
        self._kept: list[ScheduleTree] = []  # so that identities stay
        self._pieces = itertools.count()

    def levels(self, item: ScheduleTree) -> tuple[TimeLoop, ...]:
        """The levels that a loop adds for its body, or a run for itself."""
        return self._levels.get(id(item), ())

    def region(self, body: ScheduleTree, parent: int) -> None:
        """Find the levels of the loops and runs of one region, which is inside the loop `parent`."""
        leaves = list(_leaves(body))
        self._kept.append(body)
        wholes: dict[Kind, list[_CutLoop]] = {}
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, For):
                self._join(number, leaf, parent, wholes)
        loops = [whole for several in wholes.values() for whole in several]
        repeated = _repeated(leaves) if len(leaves) > len(loops) or len(loops) > 1 else {}
        for whole in loops if repeated else ():
            self._join_others(leaves, whole, repeated)

    def _group(self, parent: int, kind: Kind, ordinal: int) -> int:
        """Loops inside different pieces of one loop never meet, so those at the same position may share a number."""
        return self._groups.setdefault((parent, kind, ordinal), len(self._groups))

    # -- loops -----------------------------------------------------------------------------------------------------

    def _join(self, number: int, loop: For, parent: int, wholes: dict[Kind, list[_CutLoop]]) -> None:
        kind = loop.var, loop.direction
        several = wholes.setdefault(kind, [])
        level = TimeLoop(-1, next(self._pieces), loop.direction, var(loop.var), loop.lo, loop.hi)
        if not several or not all(self._follows(before, level) for _, before in several[-1].pieces):
            several.append(_CutLoop(self._group(parent, kind, len(several)), kind))
        level = replace(level, group=several[-1].group)
        several[-1].pieces.append((number, level))
        self._levels[id(loop)] = (level,)

    def _follows(self, before: TimeLoop, after: TimeLoop) -> bool:
        """Whether all iterations of `after` come later in the direction of the loop than all of `before`."""
        if after.direction == "backward":
            before, after = after, before
        return before.hi == after.lo or self.sizes.implies(after.lo.ge(before.hi))

    # -- parts that are no loop ------------------------------------------------------------------------------------

    def _join_others(self, leaves: list[ScheduleTree], whole: _CutLoop, repeated: Mapping[str, list[int]]) -> None:
        """Give the parts beside a loop that make points of what it makes the iterations at which it would make them."""
        own = {number for number, _ in whole.pieces}
        offsets: dict[str, tuple[int, Expr]] = {}
        for number in own:
            offsets.update(_offsets(leaves[number], whole.kind[0], repeated))
        others = sorted({number for name in offsets for number in repeated[name]} - own)
        for number in others:
            iteration = _iteration(leaves[number], offsets)
            if iteration is not None and len(self.levels(leaves[number])) < 2:
                self._stand(number, leaves[number], iteration, whole)

    def _stand(self, number: int, leaf: ScheduleTree, iteration: Expr, whole: _CutLoop) -> None:
        """Put a part at an iteration of a loop, if it lies between those of the pieces before and after in the text."""
        direction = whole.kind[1]
        here = TimeLoop(whole.group, next(self._pieces), direction, iteration, iteration, iteration + 1)
        for other, level in whole.pieces:
            if level.iteration == iteration:
                here = level
            elif not (self._follows(level, here) if other < number else self._follows(here, level)):
                return
        whole.pieces.append((number, here))
        inner = self.levels(leaf)
        if isinstance(leaf, For):
            kind = leaf.var, leaf.direction
            same = sum(1 for _, level in whole.pieces[:-1] if level is here)
            inner = (replace(inner[0], group=self._group(here.group, kind, same)),)
        self._levels[id(leaf)] = (here, *inner)


def _leaves(tree: ScheduleTree) -> Iterator[ScheduleTree]:
    """The loops and runs of a region in the order of the text."""
    if isinstance(tree, If):
        yield from _leaves(tree.body)
    elif isinstance(tree, Sequence):
        for item in tree.items:
            yield from _leaves(item)
    else:
        yield tree


def _repeated(leaves: list[ScheduleTree]) -> dict[str, list[int]]:
    """The statements that run in several leaves, with the numbers of these."""
    found: dict[str, list[int]] = {}
    for number, leaf in enumerate(leaves):
        for name in {run.statement for run in runs(leaf)}:
            found.setdefault(name, []).append(number)
    return {name: numbers for name, numbers in found.items() if len(numbers) > 1}


def _offsets(loop: ScheduleTree, symbol: Symbol, repeated: Mapping[str, list[int]]) -> dict[str, tuple[int, Expr]]:
    """(k, c) of the repeated statements whose coordinate k is the loop's variable plus the constant c."""
    found: dict[str, tuple[int, Expr]] = {}
    for run in runs(loop):
        shifts = ((at, index - var(symbol)) for at, index in enumerate(run.point))
        shift = next((each for each in shifts if each[1].is_const), None)
        if run.statement in repeated and shift is not None:
            found[run.statement] = shift
    return found


def _iteration(leaf: ScheduleTree, offsets: Mapping[str, tuple[int, Expr]]) -> Expr | None:
    """The iteration at which the statements of `leaf` would run in the loop; None where they do not agree."""
    inner = {loop.var for loop in walk(leaf) if isinstance(loop, For)}
    shared = ((run, *offsets[run.statement]) for run in runs(leaf) if run.statement in offsets)
    found = {run.point[at] - offset for run, at, offset in shared}
    iteration = found.pop() if len(found) == 1 else None
    return iteration if iteration is not None and inner.isdisjoint(iteration.symbols()) else None


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
            self.pure_block(part.items, scope)

    def pure_block(self, items: tuple[ScheduleTree, ...], scope: Scope) -> None:
        for item in items:
            self.descend(item, scope, self.pure_block)

    def descend(self, item: ScheduleTree, scope: Scope, block: Block) -> None:
        self.numbers += 1
        match item:
            case Run(statement, point):
                here = self.within(item, scope)
                around = here.loops, here.guards, here.levels, here.condition
                self.found.append(Place(statement, point, *around, self.numbers, self.segments, self.item))
            case For(body=body):
                loops, levels = (*scope.loops, (self.numbers, item)), self.within(item, scope).levels
                inner = replace(scope, loops=loops, levels=levels)
                self.timeline.region(body, inner.group)
                block(top_items(body), inner)
            case If(condition, body):
                guards, both = (*scope.guards, self.numbers), scope.condition & condition
                block(top_items(body), replace(scope, guards=guards, condition=both))
            case Sequence(items):
                block(items, scope)

    def within(self, item: ScheduleTree, scope: Scope) -> Scope:
        """`scope` with the levels of a loop or run."""
        return replace(scope, levels=(*scope.levels, *self.timeline.levels(item)))


Renames = Mapping[Symbol, Expr]


def scoped(tree: ScheduleTree) -> ScheduleTree:
    """The same order. A loop whose variable belongs to a loop around it as well gets a name of its own.

    Every node is a new object, so that nodes can be told apart by identity. Raises `InternalError` where the tree uses
    a variable that no loop around has.
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
