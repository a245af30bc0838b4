"""Regions: statements of a block that hang together by an axis whose extent varies, and how they come out of it.

A read of `t + 1` positions is one of the hull, of which the first `t + 1` mean anything. The *region* of such a read is
what sees its axis: operators up to those that fold it, and other reads of as many positions that these take with it.
What a region does is the same for any extent that is no less than the length.

The operator's own axis rule answers where the axis lies in the result, or whether it is folded (`tracked`). What moves
positions, or is not known to do any of these, has no answer here (`None`), and is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tempo.loop_ir.analysis.names import made, operands, results, used
from tempo.loop_ir.ir import Assign, Block, Compute, Read, Statement, WindowIndex, Write, walk
from tempo.loop_ir.rewriter import with_names
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import Factor, Role, Shape
from tempo.sdg.operators.making import cut_attrs, pad_attrs
from tempo.symbolic import Expr, const

Axes = Sequence[int | None]
"""Per operand the axis of varying extent; None: it has none."""

FOLDED = -1
_ZERO = const(0)


@dataclass(frozen=True)
class Tracked:
    """An operator along the axis, which is that of `factor`.

    `cut`: which operands are known at full extent, and along which axis; of these the first positions are taken. `more`
    is by how much the axis is longer than the extent in each operand, and last in the result: what is padded or
    convolved is longer or shorter than what is read.
    """

    compute: Compute
    factor: Factor
    more: tuple[int, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()

    @property
    def operands(self) -> tuple[int | None, ...]:
        return self.factor.operands

    @property
    def axis(self) -> int:
        """That of the result, or `FOLDED`."""
        return FOLDED if self.factor.result is None else self.factor.result

    @property
    def least(self) -> int:
        """The least extent at which every axis has a position."""
        return 1 - min(self.more)

    @property
    def by_position(self) -> bool:
        """Whether a position of the result sees one position of the operands, the same."""
        return self.factor.role in (Role.PARALLEL, Role.REDUCING)

    def at(self, extent: int, start: Expr = _ZERO) -> tuple[Compute, ...]:
        """The same with another extent of the axis: the operator, last, and what it needs beside.

        `start` is the position, among those of the full extent, of the first.
        """
        cuts = {number: self._cut(number, axis, extent + self.more[number], start) for number, axis in self.cut}
        types = tuple(
            type if axis is None else _with(type, axis, extent + more)
            for type, axis, more in zip(self.compute.operand_types, self.operands, self.more)
        )
        made_of = extent + self.more[-1]
        type = self.compute.type if self.axis == FOLDED else _with(self.compute.type, self.axis, made_of)
        names = tuple(
            cuts[number].result if number in cuts else name for number, name in enumerate(self.compute.operands)
        )
        attrs = OPERATORS[self.compute.op].resized(self.compute.attrs, type.shape)
        made = replace(self.compute, attrs=attrs, operands=names, operand_types=types, type=type)
        return (*cuts.values(), made)

    def lengthened(self, extent: int) -> tuple[tuple[Compute, ...], Tracked]:
        """With the operands that are cut made so long first, by statements that come before."""
        pads = {number: self._pad(number, axis, extent) for number, axis in self.cut}
        operands, types = list(self.compute.operands), list(self.compute.operand_types)
        for number, pad in pads.items():
            operands[number], types[number] = pad.result, pad.type
        compute = replace(self.compute, operands=tuple(operands), operand_types=tuple(types))
        return tuple(pads.values()), replace(self, compute=compute)

    def _cut(self, number: int, axis: int, extent: int, start: Expr) -> Compute:
        attrs = cut_attrs(self.compute.operand_types[number].shape, axis, start, const(extent))
        return self._resized("slice", number, axis, extent, attrs)

    def _pad(self, number: int, axis: int, extent: int) -> Compute:
        shape = self.compute.operand_types[number].shape
        attrs = pad_attrs(len(shape), axis, _ZERO, const(extent) - shape[axis])
        return self._resized("pad", number, axis, extent, attrs)

    def _resized(self, op: str, number: int, axis: int, extent: int, attrs: Mapping[str, Any]) -> Compute:
        name, type = f"{self.compute.result}__{op}_{number}", self.compute.operand_types[number]
        operands, result = (self.compute.operands[number],), _with(type, axis, extent)
        return Compute(name, op, attrs, operands, (type,), result, OPERATORS[op].scalars(attrs))


def factor_along(compute: Compute, axes: Axes, resolve: Callable[[Expr], int]) -> Factor | None:
    """The factor that lies at the axis of every operand that has it; None where there is no such one."""
    shapes = [_numbers(type, resolve) for type in compute.operand_types]
    factors = OPERATORS[compute.op].axes(compute.attrs, shapes, _numbers(compute.type, resolve))
    wanted = {(number, axis) for number, axis in enumerate(axes) if axis is not None}
    return next((factor for factor in factors if wanted <= set(factor.places)), None)


def _numbers(type: TensorType, resolve: Callable[[Expr], int]) -> Shape:
    return tuple(const(resolve(size)) for size in type.shape)


def tracked(compute: Compute, axes: Axes, resolve: Callable[[Expr], int], extent: int | None = None) -> Tracked | None:
    """What `compute` does along the axis that at least one of its operands has; None where that is not known.

    `extent`: what the axis has where it is read. Else it is taken to be as long in all values.
    """
    factor = factor_along(compute, axes, resolve)
    if factor is None or not _has_any_extent(compute, factor):
        return None
    types = (*compute.operand_types, compute.type)
    places = zip(types, (*factor.operands, factor.result))
    more = (0 if axis is None or extent is None else resolve(type.shape[axis]) - extent for type, axis in places)
    cut = tuple(place for place in factor.places if axes[place[0]] is None)
    return Tracked(compute, factor, tuple(more), cut)


def _has_any_extent(compute: Compute, factor: Factor) -> bool:
    """Whether the operator can be given another extent, padded, and nothing else changes.

    What is told at run time how many positions count has nothing of another extent; a check must see all that it did.
    """
    if compute.attrs.get("checked"):
        return False
    if factor.role is Role.REDUCING:
        fold = OPERATORS[compute.op].fold
        return fold is not None and fold.neutral is not None
    return factor.role in (Role.PARALLEL, Role.SCANNING) or (factor.role is Role.WINDOW and factor.stride == 1)


def _with(type: TensorType, axis: int, extent: int) -> TensorType:
    return replace(type, shape=(*type.shape[:axis], const(extent), *type.shape[axis + 1 :]))


# -- finding regions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A read of the axis, which `place` of its index shows. `room`: how many positions from the first on it may see;
    None: they do not lie in a row."""

    read: Read
    place: int
    room: int | None

    @property
    def window(self) -> WindowIndex:
        return window_at(self.read, self.place)

    def part(self, extent: int, end: int, start: Expr = _ZERO) -> Read:
        """`extent` positions from `start` on; none at `end` or after it."""
        window, is_first = self.window, start == _ZERO
        exact = (window.exact and is_first) or (self.room is not None and end <= self.room)
        part = WindowIndex(window.start + start, const(extent), exact, window.length if is_first else None)
        return self.with_window(part)

    def with_window(self, window: WindowIndex) -> Read:
        index = self.read.index
        return replace(self.read, index=(*index[: self.place], window, *index[self.place + 1 :]))


def window_at(read: Read, place: int) -> WindowIndex:
    entry = read.index[place]
    assert isinstance(entry, WindowIndex)
    return entry


Member = Entry | Tracked | Assign


@dataclass(frozen=True)
class Region:
    """The statements of a block that see an axis of which `length` positions, at most `hull`, mean anything: reads,
    operators and second names, by their identity and in order."""

    length: Expr
    hull: int
    members: Mapping[int, Member]

    @property
    def entries(self) -> list[Entry]:
        return [each for each in self.members.values() if isinstance(each, Entry)]

    @property
    def operators(self) -> list[Tracked]:
        return [each for each in self.members.values() if isinstance(each, Tracked)]

    def fold(self, statement: Statement) -> Tracked | None:
        """What folds the axis, if the statement does."""
        member = self.members.get(id(statement))
        return member if isinstance(member, Tracked) and member.axis == FOLDED else None


def varying(statement: Statement) -> Iterator[tuple[int, Expr, Expr]]:
    """The windows that a read sees of which not all means anything: where in its index, with length and extent."""
    for place, entry in enumerate(statement.index) if isinstance(statement, Read) else ():
        if isinstance(entry, WindowIndex) and entry.length is not None:
            yield place, entry.length, entry.extent


@dataclass
class RegionFinder:
    """Takes a block statement by statement. `entries`: what of a read is the axis; `along`: what an operator does along
    that of each operand, None where it has none, or where that allows nothing else."""

    length: Expr
    hull: int
    entries: Callable[[Read], Sequence[Entry]]
    along: Callable[[Compute, Axes], Tracked | None]
    members: dict[int, Member] = field(default_factory=dict)
    near: dict[int, set[int]] = field(default_factory=dict)  # what sees the same axis
    broken: set[int] = field(default_factory=set)  # what allows nothing else along the axis
    axes: dict[str, int] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)  # of values with the axis

    def regions(self, block: Block, leaving: frozenset[str]) -> list[Region]:
        """The regions, in order; without those of which something allows nothing else.

        `leaving` are the names that others look at: with the axis they have to be as they are.
        """
        for statement in block:
            self.look(statement)
        broken = self.broken.union(self.makers[name] for name in leaving & self.makers.keys())
        groups = [set(group) for group in strongly_connected(self.near, self.near)]
        return [self.of(group) for group in groups if broken.isdisjoint(group)]

    def of(self, group: set[int]) -> Region:
        return Region(self.length, self.hull, {at: each for at, each in self.members.items() if at in group})

    def look(self, statement: Statement) -> None:
        axes = [self.axes.get(name) for name in operands(statement)]
        if isinstance(statement, Read):
            self.read(statement)
        elif isinstance(statement, Compute) and any(axis is not None for axis in axes):
            found = self.along(statement, axes)
            self.add(statement, found, FOLDED if found is None else found.axis)
        elif isinstance(statement, Assign) and axes[0] is not None:
            self.add(statement, statement, axes[0])
        elif not self.makers.keys().isdisjoint(used((statement,))):
            self.add(statement, None)

    def read(self, read: Read) -> None:
        found = self.entries(read)
        for entry in found[:1]:
            axis = sum(isinstance(each, WindowIndex) for each in read.index[: entry.place])
            self.add(read, entry if len(found) == 1 else None, axis)

    def add(self, statement: Statement, member: Member | None, axis: int = FOLDED) -> None:
        here, makers = id(statement), {self.makers[name] for name in used((statement,)) if name in self.makers}
        self.near[here] = makers
        for maker in makers:
            self.near[maker].add(here)
        if member is None:
            self.broken.add(here)
        else:
            self.members[here] = member
        for name in results(statement) if axis != FOLDED else ():
            self.axes[name], self.makers[name] = axis, here


# -- taking a region out of its block --------------------------------------------------------------------------------


def apart(block: Block, members: Collection[int]) -> tuple[Block, Block, Block]:
    """What comes before the region, the region, and what comes after it, each in the order of the block.

    A statement between members that needs one, and that one needs, joins them.
    """
    effects = [(id(each), *_effects(each)) for each in block]
    behind = _hanging_on(members, effects)
    inside = behind & _hanging_on(members, effects[::-1])
    end = max(place for place, each in enumerate(block) if id(each) in inside)
    after = behind.union(map(id, block[end + 1 :])) - inside
    before = tuple(each for each in block if id(each) not in inside | after)
    return (
        before,
        tuple(each for each in block if id(each) in inside),
        tuple(each for each in block if id(each) in after),
    )


Places = set[str | int]
"""Names, and numbers of buffers."""


def _effects(statement: Statement) -> tuple[Places, Places]:
    """What a statement writes, and what it reads."""
    every = tuple(walk((statement,)))
    written = {each.buffer for each in every if isinstance(each, Write)}
    read = {each.buffer for each in every if isinstance(each, Read)}
    return {*written, *results(statement)}, {*read, *used((statement,))}


def _hanging_on(members: Collection[int], effects: Iterable[tuple[int, Places, Places]]) -> set[int]:
    """The members, and what must come after one of them; before one where the effects are turned around."""
    found: set[int] = set()
    written: Places = set()
    read: Places = set()
    for at, writes, reads in effects:
        if at in members or not (written.isdisjoint(writes | reads) and read.isdisjoint(writes)):
            found.add(at)
            written |= writes
            read |= reads
    return found


def renamed(block: Block, kept: frozenset[str], suffix: str) -> Block:
    """With names of its own for what does not leave the block: names that are made once are easier to reason about."""
    names = {name: name + suffix for name in made(block) - kept}
    return with_names(block, names)
