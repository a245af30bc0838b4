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
from functools import cached_property, partial
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
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.loop_ir.transforms.dynamic_extent.regions import (
    FOLDED,
    Entry,
    Region,
    RegionFinder,
    Tracked,
    apart,
    renamed,
    tracked,
    varying,
    window_at,
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
        made = with_segments(self.program, self.segment)
        if len(self.buffers) > len(self.program.buffers):
            made = replace(made, buffers=self.buffers)
        return Decided(made, tuple(self.notes))

    @cached_property
    def idle(self) -> frozenset[str]:
        """Proven only where there is something to choose."""
        return idle_masks(self.program, self.sizes)

    def resolve(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def buffer(self, name: str, dtype: str, axes: tuple[Axis, ...], shape: tuple[Expr, ...]) -> Buffer:
        made = Buffer(len(self.buffers), name, dtype, axes, shape)
        self.buffers[made.id] = made
        return made

    def segment(self, segment: Segment) -> Segment:
        return replace(segment, body=rewritten(segment.body, finish=self.block))

    def block(self, block: Block, scope: BlockScope) -> Block:
        """The block with its regions run as the tiling says, one after the other. What varies with the call alone is as
        long as its bucket.
        """
        self.loops = scope.loops
        found = (each for statement in block for each in varying(statement))
        seen = ((length, self.resolve(extent)) for _, length, extent in found if length.dims())
        for length, hull in dict.fromkeys(seen):
            along = partial(tracked, resolve=self.resolve, extent=hull)
            finder = RegionFinder(length, hull, partial(self.entries, length, hull), along)
            for region in finder.regions(block, scope.leaving):
                is_whole = region.members.keys() <= set(map(id, block))  # none is in the copies of another region
                block = self.rewritten(block, region, scope.leaving) if is_whole else block
        return block

    def entries(self, length: Expr, hull: int, read: Read) -> list[Entry]:
        found = (at for at, each, extent in varying(read) if each == length and self.resolve(extent) == hull)
        return [Entry(read, at, self.room(read, at)) for at in found]

    def rewritten(self, block: Block, region: Region, kept: frozenset[str]) -> Block:
        before, inside, after = apart(block, region.members)
        stages = FoldStages.of(inside, region)
        work = self.work(inside, region, stages)
        way, tile = cheapest(work, self.context.costs, self.tiling.extent, self.tiling.tile)
        self.notes.append(self.note(region, way, tile))
        if way == "hull":
            return block
        if way == "blocks":
            assert stages is not None, "what has none is run in other ways"
            return (*before, *in_blocks(stages, region, tile, self.buffer), *after)
        least = max([1, *(operator.least for operator in region.operators)])
        made = self.choices(inside, region, kept.union(used(after)), doubles(max(tile, least), region.hull))
        return (*before, *made, *after)

    def work(self, inside: Block, region: Region, stages: FoldStages | None) -> RegionWork:
        loops = [(loop.var, loop.lo, loop.hi) for loop in self.loops]
        lengths, points = sampled(region.length, loops, self.sizes, region.hull)
        entries, operators = region.entries, region.operators
        reads = {each.read.result for each in entries}
        return RegionWork(
            region.hull,
            min((each.room for each in entries if each.room is not None), default=region.hull),
            sum(self.bytes(each.read) for each in entries) / max(1, region.hull),
            sum(isinstance(each, Compute) for each in inside),
            sum(operator.axis == FOLDED for operator in operators),
            0 if stages is None else stages.count,
            lengths,
            points,
            any(self.is_masked(each.compute, reads) for each in operators),
            self.context.fuses_segments,
            self.around(region),
        )

    def is_masked(self, compute: Compute, reads: set[str]) -> bool:
        """Whether it masks what is read, and will go on doing so (`tempo.loop_ir.transforms.mask_elimination`)."""
        return compute.is_mask and compute.operands[0] in reads and compute.result not in self.idle

    def around(self, region: Region) -> int:
        """The operators of the outermost loop, if it is compiled in stretches of one extent of the region each, with
        arrays that are as long as a stretch needs."""
        if not self.context.fuses_segments or not self.loops:
            return 0
        chosen = region.length.le(region.hull - 1)
        found = changes(chosen, self.loops[0].var, self.sizes)
        if not any(at.is_const and at.as_int() for at in found):
            return 0
        return sum(isinstance(each, Compute) for each in walk(self.loops[0].body))

    def room(self, read: Read, place: int) -> int | None:
        """How many positions from its start on a read may see; None: they do not lie in a row."""
        axis, window = self.buffers[read.buffer].axes[place], window_at(read, place)
        if axis.kind != "full":
            return None
        if window.start == const(0) and axis.extent.symbols() <= self.sizes.keys():
            return self.resolve(axis.extent)  # one that is known at the run alone is no size that shapes are made of
        return self.resolve(window.extent) if window.exact else 0

    def note(self, region: Region, way: Way, tile: int) -> str:
        reads = ", ".join(dict.fromkeys(self.buffers[each.read.buffer].name for each in region.entries))
        how = {"hull": "masked", "blocks": f"blocks of {tile}", "specialise": f"choices from {tile} on"}[way]
        return f"{reads}: {region.length} of {region.hull}: {how}"

    def choices(self, inside: Block, region: Region, kept: frozenset[str], extents: list[int]) -> Block:
        """The region as a chain of choices among extents, of which the last is the hull."""
        chain = inside
        for extent in reversed(extents):
            copy = tuple(made for each in inside for made in self.at(each, region, extent))
            then = renamed(copy, kept, f"_of_{extent}")
            chain = (Branch(region.length.le(extent), then, chain, is_choice=True),)
        return chain

    def at(self, statement: Statement, region: Region, extent: int) -> Block:
        member = region.members.get(id(statement), statement)
        if isinstance(member, Entry):
            return (member.part(extent, extent),)
        return member.at(extent) if isinstance(member, Tracked) else (member,)

    def bytes(self, read: Read) -> int:
        """What is read at full extent."""
        windows = [self.resolve(entry.extent) for entry in read.index if isinstance(entry, WindowIndex)]
        buffer = self.buffers[read.buffer]
        return math.prod((*windows, *map(self.resolve, buffer.shape))) * dtypes.itemsize(buffer.dtype)
