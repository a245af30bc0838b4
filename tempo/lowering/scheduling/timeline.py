"""When the parts of a schedule tree run, with loops that were cut into pieces seen as one.

A scheduler may peel a loop: `for t in 0..7: act(t)`, then `for t in 7..T: act(t); learn(t - 7)`. The order is that of
one loop over t in which each part of the body runs for some of its iterations, and reuse distances are found as in that
loop. Pieces of a loop have its variable, and ranges that follow one another in its direction. A part that is no loop
belongs to one as well where it makes the next points of what the loop makes: `act(0)` before `for t in 1..T: act(t)`
runs at the iteration t = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tempo.schedule import Direction
from tempo.schedule.tree import For, If, ScheduleTree, Sequence, runs, walk
from tempo.symbolic import Context, Expr, Symbol, var

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
        self._pieces = 0

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

    def _piece(self) -> int:
        self._pieces += 1
        return self._pieces

    # -- loops -----------------------------------------------------------------------------------------------------

    def _join(self, number: int, loop: For, parent: int, wholes: dict[Kind, list[_CutLoop]]) -> None:
        kind = loop.var, loop.direction
        several = wholes.setdefault(kind, [])
        level = TimeLoop(-1, self._piece(), loop.direction, var(loop.var), loop.lo, loop.hi)
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
        here = TimeLoop(whole.group, self._piece(), direction, iteration, iteration, iteration + 1)
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
