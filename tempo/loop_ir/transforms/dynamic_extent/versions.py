"""Extents that vary, at a cost that goes with them: the second tiling of the compiler, after the schedule.

After `static_extents` a read of `t + 1` positions is one of all of them, with masks (the *hull*). What hangs on it in a
block, its region, gives the same with any extent that is no less than the length, so it may be run in other ways:

- "specialise": as a chain of choices among copies, with extents that double up to the hull,

      if t + 1 <= 64: (the region, of 64 positions)
      else: if t + 1 <= 128: ...
      else: (the region, of t.size positions)

  one executable for all lengths, O(log T) copies of the region, at most twice the positions that are needed. A backend
  that compiles loops may make the choice once for each stretch of the outermost loop;
- "blocks": as loops over blocks of the axis, as many as the length needs (`dynamic_extent.tile`). One executable, and
  no more than a block too much.

Nothing else of the program changes; a value that leaves a region has no axis of varying extent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from tempo import dtypes
from tempo.costs import RegionWork, Way, cheapest, doubles, sampled
from tempo.loop_ir.analysis.names import used
from tempo.loop_ir.ir import (
    Axis,
    Block,
    Branch,
    Buffer,
    Compute,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    WindowIndex,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.loop_ir.transforms.dynamic_extent.regions import (
    FOLDED,
    Region,
    apart,
    lengths,
    regions,
    renamed,
)
from tempo.loop_ir.transforms.dynamic_extent.tile import FoldStages, in_blocks
from tempo.loop_ir.transforms.loop_splitting import changes
from tempo.loop_ir.transforms.mask_elimination import idle_masks
from tempo.passes.manager import Decided
from tempo.symbolic import Expr, const

EXTENTS: tuple[Way, ...] = ("hull", "blocks", "specialise")


@dataclass(frozen=True)
class DynamicExtents:
    """The program with the regions of its segments run as `extent`, one of `EXTENTS`, says, and how each is run.
    `tile`: of a block, or the least of the extents that double. None: by the backend's costs.
    """

    extent: Way | None = None
    tile: int | None = None
    name: ClassVar[str] = "dynamic_extents"

    def apply(self, program: LoopProgram, context: LoopContext) -> Decided[LoopProgram]:
        made = _Tiler(program, context, self).program_tiled()
        lacking = context.lacking(made.program)
        if lacking is None:
            return made
        # The hull has no operators but those of the plan.
        why = f"hull, since the backend has no {lacking.operator} of {lacking.dtype}: {lacking.why}"
        hull = _Tiler(program, context, replace(self, extent="hull")).program_tiled()
        return Decided(hull.program, (why,))


class _Tiler:
    def __init__(self, program: LoopProgram, context: LoopContext, tiling: DynamicExtents) -> None:
        self.program, self.context, self.tiling = program, context, tiling
        self.sizes = context.sizes
        self.buffers = dict(program.buffers)
        self.loops: tuple[Loop, ...] = ()
        self.notes: list[str] = []

    def program_tiled(self) -> Decided[LoopProgram]:
        segments = tuple(map(self.segment, self.program.segments))
        return Decided(replace(self.program, segments=segments, buffers=self.buffers), tuple(self.notes))

    @cached_property
    def idle(self) -> frozenset[str]:
        """Proven only where there is something to choose."""
        return idle_masks(self.program, self.sizes)

    def resolve(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def extent(self, axis: Axis) -> int | None:
        """That of a buffer's axis; None where it is no size that shapes are made of, and so known at the run alone."""
        return self.resolve(axis.extent) if axis.extent.symbols() <= self.sizes.keys() else None

    def buffer(self, name: str, dtype: str, axes: tuple[Axis, ...], shape: tuple[Expr, ...]) -> Buffer:
        made = Buffer(len(self.buffers), name, dtype, axes, shape)
        self.buffers[made.id] = made
        return made

    def segment(self, segment: Segment) -> Segment:
        return replace(segment, body=rewritten(segment.body, finish=self.block))

    def block(self, block: Block, scope: BlockScope) -> Block:
        self.loops = scope.loops
        for length in dict.fromkeys(length for each in block for length in lengths(each)):
            block = self.along(block, length, scope.leaving)
        return block

    def along(self, block: Block, length: Expr, kept: frozenset[str]) -> Block:
        """The block with its regions of one length run as the tiling says, one after the other."""
        done: set[frozenset[str]] = set()
        while True:
            every = regions(block, length, self.resolve, kept)
            found = next((each for each in every if frozenset(each.names) not in done), None)
            if found is None:
                return block
            done.add(frozenset(found.names))
            block = self.rewritten(block, found, kept)

    def rewritten(self, block: Block, region: Region, kept: frozenset[str]) -> Block:
        before, places, after = apart(block, region.members)
        stages = FoldStages.of(places, block, region)
        work = self.work(places, block, region, stages)
        way, tile = cheapest(work, self.context.costs, self.tiling.extent, self.tiling.tile)
        self.notes.append(self.note(region, way, tile))
        if way == "hull":
            return block
        if way == "blocks":
            assert stages is not None, "what has none is run in other ways"
            made = in_blocks(stages, block, region, tile, self.rooms(region), self.buffer)
        else:
            needed = kept.union(used(tuple(block[place] for place in after)))
            made = self.choices(places, block, region, needed, doubles(max(tile, region.least), region.hull))
        return (*(block[place] for place in before), *made, *(block[place] for place in after))

    def work(self, places: tuple[int, ...], block: Block, region: Region, stages: FoldStages | None) -> RegionWork:
        loops = [(loop.var, loop.lo, loop.hi) for loop in self.loops]
        lengths, points = sampled(region.length, loops, self.sizes, region.hull)
        rooms = [room for room in self.rooms(region).values() if room is not None]
        return RegionWork(
            region.hull,
            min(rooms, default=region.hull),
            sum(self.bytes(read) for read in region.reads.values()) / max(1, region.hull),
            sum(isinstance(block[place], Compute) for place in places),
            sum(operator.axis == FOLDED for operator in region.operators.values()),
            0 if stages is None else stages.count(region),
            lengths,
            points,
            any(self.is_masked(block[place], region) for place in places),
            self.context.fuses_segments,
            self.around(region),
        )

    def is_masked(self, statement: Statement, region: Region) -> bool:
        """Whether it masks what is read, and will go on doing so (`tempo.loop_ir.transforms.mask_elimination`)."""
        if not isinstance(statement, Compute) or not statement.is_mask or statement.result in self.idle:
            return False
        return any(read.result == statement.operands[0] for read in region.reads.values())

    def around(self, region: Region) -> int:
        """The operators of the outermost loop, if it is compiled in stretches of one extent of the region each, with
        arrays that are as long as a stretch needs."""
        if not self.context.fuses_segments or not self.loops:
            return 0
        chosen = region.length.le(region.hull - 1)
        if not any(changes(chosen, self.loops[0].var, self.sizes)):
            return 0
        return sum(isinstance(each, Compute) for each in walk(self.loops[0].body))

    def rooms(self, region: Region) -> dict[int, int | None]:
        """By the place of a read how many positions from its start on it may see; None: they do not lie in a row."""
        found: dict[int, int | None] = {}
        for place, read in region.reads.items():
            axis, window = self.buffers[read.buffer].axes[region.entries[place]], region.window(place)
            anywhere = region.hull if window.exact else 0
            extent = self.extent(axis)
            room = anywhere if extent is None or window.start != const(0) else extent
            found[place] = room if axis.kind == "full" else None
        return found

    def note(self, region: Region, way: Way, tile: int) -> str:
        reads = ", ".join(dict.fromkeys(self.buffers[read.buffer].name for read in region.reads.values()))
        how = {"hull": "masked", "blocks": f"blocks of {tile}", "specialise": f"choices from {tile} on"}[way]
        return f"{reads}: {region.length} of {region.hull}: {how}"

    def choices(
        self, places: tuple[int, ...], block: Block, region: Region, kept: frozenset[str], extents: list[int]
    ) -> Block:
        """The region as a chain of choices among extents, of which the last is the hull."""
        chain = tuple(block[place] for place in places)
        for extent in reversed(extents):
            copy = tuple(each for place in places for each in self.at(place, block, region, extent))
            then = renamed(copy, kept, f"_of_{extent}")
            chain = (Branch(region.length.le(extent), then, chain, is_choice=True),)
        return chain

    def at(self, place: int, block: Block, region: Region, extent: int) -> Block:
        if place in region.reads:
            return (region.narrowed(place, self.narrow(region, place, extent)),)
        return region.operators[place].at(extent) if place in region.operators else (block[place],)

    def narrow(self, region: Region, place: int, extent: int) -> WindowIndex:
        window, read = region.window(place), region.reads[place]
        axis = self.buffers[read.buffer].axes[region.entries[place]]
        whole = self.extent(axis) if window.start == const(0) and axis.kind == "full" else None
        inside = whole is not None and extent <= whole
        return replace(window, extent=const(extent), exact=window.exact or inside)

    def bytes(self, read: Read) -> int:
        """What is read at full extent."""
        windows = [self.resolve(entry.extent) for entry in read.index if isinstance(entry, WindowIndex)]
        buffer = self.buffers[read.buffer]
        return math.prod((*windows, *map(self.resolve, buffer.shape))) * dtypes.itemsize(buffer.dtype)
