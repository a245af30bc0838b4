"""Extents that vary, at a cost that goes with them: the second tiling of the compiler, after the schedule.

After `static_extents` a read of `t + 1` positions is one of all of them, with masks (the *hull*). What hangs on it in a
block, its region, gives the same with any extent that is no less than the length, so it may be run in other ways:

- "specialise": as a chain of choices among copies, with extents that double up to the hull,

      if t + 1 <= 64: (the region, of 64 positions)
      else: if t + 1 <= 128: ...
      else: (the region, of t.size positions)

  one executable for all lengths, O(log T) copies of the region, at most twice the positions that are needed;
- "blocks": as loops over blocks of the axis, as many as the length needs (`tempo.lowering.blocks`). One executable, and
  no more than a block too much.

Nothing else of the program changes; a value that leaves a region has no axis of varying extent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tempo.lowering.blocks import in_blocks
from tempo.lowering.loop_ir import (
    Axis,
    Branch,
    Buffer,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    WindowIndex,
)
from tempo.lowering.regions import Block, Region, apart, lengths, regions, renamed, used
from tempo.symbolic import Expr, Symbol, const

EXTENTS = ("hull", "blocks", "specialise")
_LEAST_TILE = 256
_LEAST_ELEMENTS = 1 << 17
"""Of a region's reads at full extent: below this, the choice costs more than it saves."""


@dataclass(frozen=True)
class Tiling:
    """`extent`: one of `EXTENTS`, or None: where it pays. `tile`: the extent of a block, or the least of those that
    double. None: so that there are few."""

    extent: str | None = None
    tile: int | None = None

    def extents(self, hull: int) -> list[int]:
        """The extents below the hull."""
        least = self.tile or max(_LEAST_TILE, hull // 16)
        doubles = (least << power for power in range(hull.bit_length()))
        return [extent for extent in doubles if extent < hull]

    def block(self, hull: int) -> int:
        return self.tile or _LEAST_TILE


def tiled(program: LoopProgram, sizes: Mapping[Symbol, int], tiling: Tiling) -> LoopProgram:
    """The program with the regions of its segments run as `tiling` says. `sizes` are those that shapes are made of."""
    if tiling.extent == "hull":
        return program
    tiler = _Tiler(program, sizes, tiling)
    segments = tuple(tiler.segment(segment) for segment in program.segments)
    return program if segments == program.segments else replace(program, segments=segments, buffers=tiler.buffers.all)


@dataclass
class _Buffers:
    """Those of the program, and more."""

    all: dict[int, Buffer]

    def __getitem__(self, id: int) -> Buffer:
        return self.all[id]

    def made(self, name: str, dtype: str, axes: tuple[Axis, ...], shape: tuple[Expr, ...]) -> Buffer:
        made = Buffer(len(self.all), name, dtype, axes, shape)
        self.all[made.id] = made
        return made


class _Tiler:
    def __init__(self, program: LoopProgram, sizes: Mapping[Symbol, int], tiling: Tiling) -> None:
        self.sizes, self.tiling = sizes, tiling
        self.buffers = _Buffers(dict(program.buffers))

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
        for length in dict.fromkeys(length for each in inner for length in lengths(each)):
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
        """The block with its regions of one length run as the tiling says, one after the other."""
        done: set[frozenset[str]] = set()
        while True:
            found = next((each for each in regions(block, length, self.resolve) if each.names not in done), None)
            if found is None:
                return block
            done.add(found.names)
            if self.pays(found):
                block = self.rewritten(block, found)

    def rewritten(self, block: Block, region: Region) -> Block:
        before, places, after = apart(block, region.members)
        made: Block | None = None
        if self.tiling.extent == "blocks" and self.tiling.block(region.hull) < region.hull:
            made = in_blocks(places, block, region, self.tiling.block(region.hull), self.buffers)
        if made is None:
            made = self.choices(places, block, region, frozenset(used(tuple(block[place] for place in after))))
        return (*(block[place] for place in before), *made, *(block[place] for place in after))

    def choices(self, places: tuple[int, ...], block: Block, region: Region, leaving: frozenset[str]) -> Block:
        """The region as a chain of choices among extents; itself where the hull is the least of them."""
        chain = tuple(block[place] for place in places)
        for extent in reversed(self.tiling.extents(region.hull)):
            copy = tuple(each for place in places for each in self.at(place, block, region, extent))
            then = renamed(copy, leaving, f"_of_{extent}")
            chain = (Branch(region.length.le(extent), then, chain, is_choice=True),)
        return chain

    def at(self, place: int, block: Block, region: Region, extent: int) -> Block:
        if place in region.reads:
            return (region.narrowed(place, self.narrow(region, place, extent)),)
        return region.operators[place].at(extent) if place in region.operators else (block[place],)

    def narrow(self, region: Region, place: int, extent: int) -> WindowIndex:
        window, read = region.window(place), region.reads[place]
        axis = self.buffers[read.buffer].axes[region.entries[place]]
        inside = window.start == const(0) and axis.kind == "full" and extent <= self.resolve(axis.extent)
        return replace(window, extent=const(extent), exact=window.exact or inside)

    def pays(self, region: Region) -> bool:
        if self.tiling.extent is not None or self.tiling.tile is not None:
            return True
        return sum(self.elements(read) for read in region.reads.values()) >= _LEAST_ELEMENTS

    def elements(self, read: Read) -> int:
        windows = [self.resolve(entry.extent) for entry in read.index if isinstance(entry, WindowIndex)]
        shape = [self.resolve(size) for size in self.buffers[read.buffer].shape]
        return math.prod(windows) * math.prod(shape)
