"""Regions: statements of a block that hang together by an axis whose extent varies, and how they come out of it.

A read of `t + 1` positions is one of the hull, of which the first `t + 1` mean anything. The *region* of such a read is
what sees its axis: operators up to those that fold it, and other reads of as many positions that these take with it.
What a region does is the same for any extent that is no less than the length.

The operator's own axis rule answers where the axis lies in the result, or whether it is folded (`tracked`). What moves
positions, or is not known to do any of these, has no answer here (`None`), and is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tempo.loop_ir.analysis.names import made, used
from tempo.loop_ir.ir import Assign, Block, Compute, Read, Statement, WindowIndex, Write, walk
from tempo.loop_ir.rewriter import rewritten
from tempo.sdg.components import reached
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

    `cut` says which operands are known at full extent: of these the first positions are taken. `more` is by how much
    the axis is longer than the extent in each operand, and last in the result: what is padded or convolved is longer or
    shorter than what is read.
    """

    compute: Compute
    factor: Factor
    more: tuple[int, ...]
    cut: tuple[int, ...] = ()

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
        cuts = {number: self._cut(number, extent + self.more[number], start) for number in self.cut}
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
        pads = {number: self._pad(number, extent) for number in self.cut}
        operands, types = list(self.compute.operands), list(self.compute.operand_types)
        for number, pad in pads.items():
            operands[number], types[number] = pad.result, pad.type
        compute = replace(self.compute, operands=tuple(operands), operand_types=tuple(types))
        return tuple(pads.values()), replace(self, compute=compute)

    def _cut(self, number: int, extent: int, start: Expr) -> Compute:
        shape, axis = self.compute.operand_types[number].shape, self._axis_of(number)
        return self._resized("slice", number, extent, cut_attrs(shape, axis, start, const(extent)))

    def _pad(self, number: int, extent: int) -> Compute:
        shape, axis = self.compute.operand_types[number].shape, self._axis_of(number)
        return self._resized("pad", number, extent, pad_attrs(len(shape), axis, _ZERO, const(extent) - shape[axis]))

    def _resized(self, op: str, number: int, extent: int, attrs: Mapping[str, Any]) -> Compute:
        name, type = f"{self.compute.result}__{op}_{number}", self.compute.operand_types[number]
        operands, result = (self.compute.operands[number],), _with(type, self._axis_of(number), extent)
        return Compute(name, op, attrs, operands, (type,), result, OPERATORS[op].scalars(attrs))

    def _axis_of(self, number: int) -> int:
        axis = self.operands[number]
        assert axis is not None
        return axis


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
    cut = tuple(number for number, _ in factor.places if axes[number] is None)
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


@dataclass
class Region:
    """The statements that see the axis, by their place in the block: reads, operators and second names.

    Made by `regions`, statement by statement. `broken`: something is done along the axis that allows no other extent.
    """

    length: Expr
    hulls: set[int] = field(default_factory=set)
    reads: dict[int, Read] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)  # of a read, where in its index the axis is
    operators: dict[int, Tracked] = field(default_factory=dict)
    assigns: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)  # what its statements make
    broken: bool = False

    @property
    def has_one_hull(self) -> bool:
        return len(self.hulls) == 1

    @property
    def hull(self) -> int:
        (hull,) = self.hulls
        return hull

    @property
    def members(self) -> frozenset[int]:
        return frozenset((*self.reads, *self.operators, *self.assigns))

    @property
    def least(self) -> int:
        """The least extent at which every operator has something to do."""
        return max([1, *(operator.least for operator in self.operators.values())])

    def window(self, place: int) -> WindowIndex:
        entry = self.reads[place].index[self.entries[place]]
        assert isinstance(entry, WindowIndex)
        return entry

    def narrowed(self, place: int, window: WindowIndex) -> Read:
        """A read of it with another window."""
        read, at = self.reads[place], self.entries[place]
        return replace(read, index=(*read.index[:at], window, *read.index[at + 1 :]))

    def take(self, other: Region) -> None:
        self.hulls |= other.hulls
        self.reads.update(other.reads)
        self.entries.update(other.entries)
        self.operators.update(other.operators)
        self.assigns |= other.assigns
        self.names |= other.names
        self.broken |= other.broken


def regions(
    block: Block, length: Expr, resolve: Callable[[Expr], int], leaving: frozenset[str] = frozenset()
) -> list[Region]:
    """The regions of reads of `length` positions, in order; without those that allow no other extent than the hull.

    `leaving` are the names that others look at: with the axis they have its full extent.
    """
    finder = _RegionFinder(length, resolve)
    for place, statement in enumerate(block):
        finder.statement(place, statement)
    for name in leaving & finder.axes.keys():
        finder.of_name[name].broken = True
    found = {id(each): each for each in finder.of_name.values()}.values()
    return [each for each in found if each.has_one_hull and not each.broken]


class _RegionFinder:
    def __init__(self, length: Expr, resolve: Callable[[Expr], int]) -> None:
        self.length, self.resolve = length, resolve
        self.axes: dict[str, int] = {}
        self.of_name: dict[str, Region] = {}

    def statement(self, place: int, statement: Statement) -> None:
        if isinstance(statement, Read):
            self.read(place, statement)
            return
        seen = [name for name in used((statement,)) if name in self.axes]
        if not seen:
            return
        region = self.joined(seen)
        if isinstance(statement, Compute):
            self.compute(place, statement, region)
        elif isinstance(statement, Assign):
            region.assigns.add(place)
            self.made(statement.result, self.axes[statement.value], region)
        else:
            region.broken = True

    def read(self, place: int, read: Read) -> None:
        entries = [
            at for at, entry in enumerate(read.index) if isinstance(entry, WindowIndex) and entry.length == self.length
        ]
        if not entries:
            return
        region, at = Region(self.length, broken=len(entries) > 1), entries[0]
        region.reads[place], region.entries[place] = read, at
        entry = read.index[at]
        assert isinstance(entry, WindowIndex)
        region.hulls.add(self.resolve(entry.extent))
        self.made(read.result, sum(isinstance(each, WindowIndex) for each in read.index[:at]), region)

    def compute(self, place: int, compute: Compute, region: Region) -> None:
        axes = [self.axes.get(name) for name in compute.operands]
        found = tracked(compute, axes, self.resolve, region.hull) if region.has_one_hull else None
        if found is None:
            region.broken = True
            return
        region.operators[place] = found
        region.names.add(compute.result)
        if found.axis != FOLDED:
            self.made(compute.result, found.axis, region)

    def made(self, name: str, axis: int, region: Region) -> None:
        self.axes[name], self.of_name[name] = axis, region
        region.names.add(name)

    def joined(self, names: Sequence[str]) -> Region:
        region = self.of_name[names[0]]
        for name in names[1:]:
            other = self.of_name[name]
            if other is not region:
                region.take(other)
                self.of_name.update({each: region for each, of in self.of_name.items() if of is other})
        return region


def lengths(statement: Statement) -> Iterator[Expr]:
    """The lengths of the windows that a read sees."""
    index = statement.index if isinstance(statement, Read) else ()
    return (each.length for each in index if isinstance(each, WindowIndex) and each.length is not None)


# -- taking a region out of its block --------------------------------------------------------------------------------


def apart(block: Block, members: frozenset[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """What comes before the region, the region, and what comes after it: places, each in the order of the block.

    A statement between members that needs one, and that one needs, joins them.
    """
    needs = _needs(block)
    behind = reached(members, _turned(needs).__getitem__)  # what needs a member
    ahead = reached(members, needs.__getitem__)
    region = members | (behind & ahead)
    first = min(region)
    after = [at for at in range(len(block)) if at not in region and (at in behind or at > max(region))]
    before = [at for at in range(len(block)) if at not in region and at not in set(after)]
    # What is moved in front of the region must not need what stays behind it: then it would be behind, too.
    assert all(at < first or needs[at].isdisjoint(after) for at in before)
    return tuple(before), tuple(sorted(region)), tuple(after)


def _needs(block: Block) -> list[set[int]]:
    """For each statement the earlier ones that it must come after: values, and buffers that one of both writes."""
    makers: dict[str, int] = {}
    last_write: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    found: list[set[int]] = []
    for at, statement in enumerate(block):
        mine = {makers[name] for name in used((statement,)) if name in makers}
        for inner in walk((statement,)):
            if isinstance(inner, Read | Write) and inner.buffer in last_write:
                mine.add(last_write[inner.buffer])
            if isinstance(inner, Write):
                mine |= readers.get(inner.buffer, set())
        mine.discard(at)
        found.append(mine)
        for inner in walk((statement,)):
            if isinstance(inner, Write):
                last_write[inner.buffer] = at
                readers[inner.buffer] = set()
            if isinstance(inner, Read):
                readers.setdefault(inner.buffer, set()).add(at)
            if isinstance(inner, Read | Compute | Assign):
                makers[inner.result] = at
    return found


def _turned(needs: Sequence[set[int]]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in needs]
    for at, mine in enumerate(needs):
        for other in mine:
            found[other].add(at)
    return found


def renamed(block: Block, kept: frozenset[str], suffix: str) -> Block:
    """With names of its own for what does not leave the block: names that are made once are easier to reason about."""
    names = {name: name + suffix for name in made(block) - kept}
    return rewritten(block, lambda statement, scope: _with_names(statement, names))


def _with_names(statement: Statement, names: Mapping[str, str]) -> Block | None:
    def new(name: str) -> str:
        return names.get(name, name)

    match statement:
        case Read(result=result):
            return (replace(statement, result=new(result)),)
        case Compute(result=result, operands=operands):
            return (replace(statement, result=new(result), operands=tuple(map(new, operands))),)
        case Assign(result=result, value=value):
            return (replace(statement, result=new(result), value=new(value)),)
        case Write(value=value):
            return (replace(statement, value=new(value)),)
    return None
