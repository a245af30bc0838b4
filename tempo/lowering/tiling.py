"""Extents that vary, at a cost that goes with them: the same statements for several extents, the least that fits runs.

After `static_extents` a read of `t + 1` positions is one of all of them, with masks. What hangs on it in a block (its
*region*) gives the same with any extent that is no less than the length. So the region becomes a chain of choices

    if t + 1 <= 64: (the region, of 64 positions)
    else: if t + 1 <= 128: ...
    else: (the region, of t.size positions)

with extents that double: one executable for all lengths, O(log T) copies of the region, at most twice the positions
that are needed. Nothing else of the program changes; a value that leaves a region has no axis of varying extent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo.lowering.loop_ir import (
    Assign,
    Branch,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    walk,
)
from tempo.lowering.tracking import FOLDED, Tracked, tracked
from tempo.symbolic import Expr, Symbol, const

Block = tuple[Statement, ...]
EXTENTS = ("hull", "specialise")
_LEAST_TILE = 256
_LEAST_ELEMENTS = 1 << 17
"""Of a region's reads at full extent: below this, the choice costs more than it saves."""


@dataclass(frozen=True)
class Tiling:
    """`extent`: "hull" (every read at its full extent), "specialise", or None: where it pays. `tile`: the least extent;
    the others are its doubles. None: so that there are few."""

    extent: str | None = None
    tile: int | None = None

    def extents(self, hull: int) -> list[int]:
        """The extents below the hull."""
        least = self.tile or max(_LEAST_TILE, hull // 16)
        doubles = (least << power for power in range(hull.bit_length()))
        return [extent for extent in doubles if extent < hull]


def tiled(program: LoopProgram, sizes: Mapping[Symbol, int], tiling: Tiling) -> LoopProgram:
    """The program with choices among extents in its segments. `sizes` are those that shapes are made of."""
    if tiling.extent == "hull":
        return program
    tiler = _Tiler(program, sizes, tiling)
    segments = tuple(tiler.segment(segment) for segment in program.segments)
    return program if segments == program.segments else replace(program, segments=segments)


class _Tiler:
    def __init__(self, program: LoopProgram, sizes: Mapping[Symbol, int], tiling: Tiling) -> None:
        self.program, self.sizes, self.tiling = program, sizes, tiling

    def resolve(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def segment(self, segment: Segment) -> Segment:
        body = self.block(segment.body)
        if body == segment.body:
            return segment
        loop = body[0] if segment.loop else None
        assert loop is None or isinstance(loop, Loop)
        return replace(Segment.of(segment.id, body, loop), name=segment.name, results=segment.results)

    def block(self, block: Block) -> Block:
        inner = tuple(self.inside(statement) for statement in block)
        lengths = dict.fromkeys(length for each in inner for length in _lengths(each))
        for length in lengths:
            inner = self.along(inner, length)
        return inner

    def inside(self, statement: Statement) -> Statement:
        match statement:
            case Loop(body=body) | Guard(body=body):
                return replace(statement, body=self.block(body))
            case Branch(then=then, otherwise=otherwise):
                return replace(statement, then=self.block(then), otherwise=self.block(otherwise))
        return statement

    def along(self, block: Block, length: Expr) -> Block:
        """The block with the region of one length made a choice; itself where there is none, or it does not pay."""
        found = _Region.of(block, length, self.resolve)
        if found is None or not self.pays(found):
            return block
        extents = self.tiling.extents(found.hull)
        if not extents:
            return block
        before, region, after = _apart(block, found.members)
        leaving = _used(after)
        chain = region
        for extent in reversed(extents):
            chosen = tuple(made for each in region for made in found.at(each, extent, self))
            then = _renamed(chosen, leaving, f"_of_{extent}")
            chain = (Branch(length.le(extent), then, chain, is_choice=True),)
        return (*before, *chain, *after)

    def pays(self, region: _Region) -> bool:
        if self.tiling.extent is not None or self.tiling.tile is not None:
            return True
        return sum(self.elements(read) for read in region.reads.values()) >= _LEAST_ELEMENTS

    def elements(self, read: Read) -> int:
        windows = [self.resolve(entry.extent) for entry in read.index if isinstance(entry, WindowIndex)]
        shape = [self.resolve(size) for size in self.program.buffers[read.buffer].shape]
        return math.prod(windows) * math.prod(shape)

    def narrowed(self, read: Read, place: int, extent: int) -> Read:
        entry, axis = read.index[place], self.program.buffers[read.buffer].axes[place]
        assert isinstance(entry, WindowIndex)
        inside = entry.start == const(0) and axis.kind == "full" and extent <= self.resolve(axis.extent)
        narrow = replace(entry, extent=const(extent), exact=entry.exact or inside)
        return replace(read, index=(*read.index[:place], narrow, *read.index[place + 1 :]))


@dataclass(frozen=True)
class _Region:
    """The statements of a block that see the axis, by their place: reads and operators."""

    hull: int
    reads: Mapping[int, Read]
    places: Mapping[int, int]  # of the entry in the index of a read
    operators: Mapping[int, Tracked]
    assigns: frozenset[int]
    order: Mapping[int, int]  # from the identity of a statement to its place

    @property
    def members(self) -> frozenset[int]:
        return frozenset((*self.reads, *self.operators, *self.assigns))

    def at(self, statement: Statement, extent: int, tiler: _Tiler) -> Block:
        place = self.order[id(statement)]
        if place in self.reads:
            return (tiler.narrowed(self.reads[place], self.places[place], extent),)
        return self.operators[place].at(extent) if place in self.operators else (statement,)

    @staticmethod
    def of(block: Block, length: Expr, resolve: Callable[[Expr], int]) -> _Region | None:
        """None where something is done along the axis that is not known to allow another extent."""
        reads: dict[int, Read] = {}
        places: dict[int, int] = {}
        operators: dict[int, Tracked] = {}
        assigns: set[int] = set()
        axes: dict[str, int] = {}
        hulls: set[int] = set()
        for place, statement in enumerate(block):
            if isinstance(statement, Read):
                entries = _dynamic_entries(statement, length)
                if len(entries) == 1:
                    (entry,) = entries
                    reads[place], places[place] = statement, entry
                    axes[statement.result] = sum(isinstance(each, WindowIndex) for each in statement.index[:entry])
                    hulls.add(resolve(_window(statement, entry).extent))
                elif entries:
                    return None
            elif isinstance(statement, Compute) and any(name in axes for name in statement.operands):
                found = tracked(statement, [axes.get(name) for name in statement.operands], resolve)
                if found is None:
                    return None
                operators[place] = found
                if found.axis != FOLDED:
                    axes[statement.result] = found.axis
            elif isinstance(statement, Assign) and statement.value in axes:
                axes[statement.result] = axes[statement.value]
                assigns.add(place)
            elif any(name in axes for name in _used((statement,))):
                return None
        if len(hulls) != 1:
            return None
        order = {id(statement): place for place, statement in enumerate(block)}
        return _Region(hulls.pop(), reads, places, operators, frozenset(assigns), order)


def _window(read: Read, place: int) -> WindowIndex:
    entry = read.index[place]
    assert isinstance(entry, WindowIndex)
    return entry


def _dynamic_entries(read: Read, length: Expr) -> list[int]:
    """The places in the index of a read that see so many positions of more."""
    return [at for at, entry in enumerate(read.index) if isinstance(entry, WindowIndex) and entry.length == length]


def _lengths(statement: Statement) -> Iterator[Expr]:
    """The lengths of the windows that a read sees."""
    if isinstance(statement, Read):
        for entry in statement.index:
            if isinstance(entry, WindowIndex) and entry.length is not None:
                yield entry.length


# -- taking a region out of its block --------------------------------------------------------------------------------


def _apart(block: Block, members: frozenset[int]) -> tuple[Block, Block, Block]:
    """What comes before the region, the region, and what comes after it, each in the order of the block.

    A statement between members that needs one, and that one needs, joins them.
    """
    needs = _needs(block)
    behind = _closure(members, _turned(needs))  # what needs a member
    ahead = _closure(members, needs)
    region = members | (behind & ahead)
    first = min(region)
    after = [at for at in range(len(block)) if at not in region and (at in behind or at > max(region))]
    before = [at for at in range(len(block)) if at not in region and at not in set(after)]
    # What is moved in front of the region must not need what stays behind it: then it would be behind, too.
    assert all(at < first or needs[at].isdisjoint(after) for at in before)
    return (
        tuple(block[at] for at in before),
        tuple(block[at] for at in sorted(region)),
        tuple(block[at] for at in after),
    )


def _needs(block: Block) -> list[set[int]]:
    """For each statement the earlier ones that it must come after: values, and buffers that one of both writes."""
    makers: dict[str, int] = {}
    last_write: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    found: list[set[int]] = []
    for at, statement in enumerate(block):
        mine = {makers[name] for name in _used((statement,)) if name in makers}
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


def _closure(start: frozenset[int], edges: Sequence[set[int]]) -> frozenset[int]:
    found, pending = set(start), list(start)
    while pending:
        for other in edges[pending.pop()]:
            if other not in found:
                found.add(other)
                pending.append(other)
    return frozenset(found)


def _used(block: Block) -> frozenset[str]:
    """The names that the statements look at."""
    found: set[str] = set()
    for statement in walk(block):
        if isinstance(statement, Compute):
            found.update(statement.operands)
        elif isinstance(statement, Assign | Write):
            found.add(statement.value)
    return frozenset(found)


def _renamed(block: Block, kept: frozenset[str], suffix: str) -> Block:
    """With names of its own for what does not leave the block: names that are made once are easier to reason about."""
    own = {each.result for each in block if isinstance(each, Read | Compute)} - kept
    names = {name: name + suffix for name in own}
    return tuple(_with_names(statement, names) for statement in block)


def _with_names(statement: Statement, names: Mapping[str, str]) -> Statement:
    def new(name: str) -> str:
        return names.get(name, name)

    match statement:
        case Read(result=result):
            return replace(statement, result=new(result))
        case Compute(result=result, operands=operands):
            return replace(statement, result=new(result), operands=tuple(new(name) for name in operands))
        case Assign(result=result, value=value):
            return replace(statement, result=new(result), value=new(value))
        case Write(value=value):
            return replace(statement, value=new(value))
        case Branch(then=then, otherwise=otherwise):
            then, otherwise = (tuple(_with_names(each, names) for each in block) for block in (then, otherwise))
            return replace(statement, then=then, otherwise=otherwise)
        case Loop(body=body) | Guard(body=body):
            return replace(statement, body=tuple(_with_names(each, names) for each in body))
    return statement
