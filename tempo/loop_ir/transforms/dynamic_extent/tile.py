"""A region as loops over blocks of the axis, as many as the length needs: one executable, whatever the length.

    for b in 0..length//64:      (64 positions, all of them valid: no masks)
    for b in length//64..(length + 63)//64:     (the rest, masked)

What folds the axis is accumulated across blocks. What needs a fold of the same axis comes in the next pair of loops
(a softmax: the maximum, the sum of the exponentials, the products with the weights); values of single positions that it
needs again are kept, block by block, and reads are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tempo import dtypes
from tempo.loop_ir.analysis.names import used
from tempo.loop_ir.ir import Assign, Axis, Block, Buffer, Compute, Loop, PointIndex, Read, Statement, WindowIndex, Write
from tempo.loop_ir.transforms.dynamic_extent.regions import FOLDED, Region, Tracked, renamed
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, Symbol, const, var

_HALVES = frozenset({"float16", "bfloat16"})


Maker = Callable[[str, str, tuple[Axis, ...], tuple[Expr, ...]], Buffer]
"""A new buffer of the program, of a name, dtype, axes and shape."""


def in_blocks(
    stages: FoldStages, block: Block, region: Region, tile: int, rooms: Mapping[int, int | None], made: Maker
) -> Block:
    """The statements of `block` that are in `stages`, those of `region` as loops over blocks of `tile` positions.

    `rooms`: by the place of a read how many positions from its start on it may see; None where they do not lie in a
    row. Sorts, scans, positions of extremes and effects in between have no `stages`, and cannot be.
    """
    return tuple(_Lowering(stages, block, region, tile, rooms, made).statements())


@dataclass
class FoldStages:
    """How many loops over blocks, one after the other, a region needs.

    `stage`: of a statement that sees the axis, in which loops it is; of any other, before which loops it comes.
    """

    stage: dict[int, int] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)
    """Who makes a value with the axis."""
    ready: dict[str, int] = field(default_factory=dict)
    """Before which loops any other value is there."""
    again: set[int] = field(default_factory=set)

    @staticmethod
    def of(places: Sequence[int], block: Block, region: Region) -> FoldStages | None:
        """None where it cannot be run in blocks."""
        found = FoldStages()
        return found if all(found._take(place, block[place], region) for place in places) else None

    def count(self, region: Region) -> int:
        return 1 + max(self.stage[place] for place in region.members)

    def _take(self, place: int, statement: Statement, region: Region) -> bool:
        if not isinstance(statement, Read | Compute | Assign):
            return False
        names = used((statement,))
        first = max((self._earliest(name) for name in names), default=0)
        self.stage[place] = first
        if place not in region.members:
            self.ready[statement.result] = first
            return True
        folded = place in region.operators and region.operators[place].axis == FOLDED
        if folded:
            self.ready[statement.result] = first + 1
        else:
            self.makers[statement.result] = place
        if isinstance(statement, Compute) and not _can(region.operators[place]):
            return False
        if self._is_again(statement, names):
            self.again.add(place)
        return True

    def _earliest(self, name: str) -> int:
        return self.stage[self.makers[name]] if name in self.makers else self.ready.get(name, 0)

    def _is_again(self, statement: Statement, names: Sequence[str]) -> bool:
        """Whether it is rather done again, to what is read again, than kept."""
        if isinstance(statement, Compute) and not OPERATORS[statement.op].views:
            return False
        return all(self.makers[name] in self.again for name in names if name in self.makers)


def _can(operator: Tracked) -> bool:
    return operator.by_position and (operator.axis != FOLDED or OPERATORS[operator.compute.op].combine is not None)


@dataclass(frozen=True)
class _BlockRange:
    """Some of the blocks. `whole`: all positions are valid."""

    suffix: str
    lo: Expr
    hi: Expr
    whole: bool


class _Lowering:
    def __init__(
        self,
        stages: FoldStages,
        block: Block,
        region: Region,
        tile: int,
        rooms: Mapping[int, int | None],
        made: Maker,
    ) -> None:
        self.stages, self.block, self.region, self.tile = stages, block, region, tile
        self.rooms, self.made = rooms, made
        self.symbol = Symbol(f"{_stem(region)}.block", "dim")
        self.start = var(self.symbol) * tile
        self.count = -(-region.hull // tile)
        self.operators = dict(region.operators)
        self.accumulators: dict[int, Buffer] = {}
        self.kept: dict[str, Buffer] = {}
        whole, length = region.length // tile, region.length
        self.parts = [_BlockRange("", const(0), whole, whole=True)]
        if tile > 1:
            self.parts.append(_BlockRange("_rest", whole, (length + tile - 1) // tile, whole=False))

    def statements(self) -> Iterator[Statement]:
        count = self.stages.count(self.region)
        needed = [self.needed(stage) for stage in range(count)]
        for stage in range(count + 1):
            yield from (self.block[place] for place, at in self.plain() if at == stage)
            if stage < count:
                yield from self.lengthened(needed[stage][0])
                yield from self.loops(stage, needed)

    def lengthened(self, places: Iterable[int]) -> Iterator[Statement]:
        """What is known at full extent and cut into blocks, as long as these."""
        for place in sorted(places):
            operator = self.operators.get(place)
            if operator is not None and operator.cut and self.region.hull % self.tile:
                pads, self.operators[place] = operator.lengthened(self.count * self.tile)
                yield from pads

    def plain(self) -> Iterator[tuple[int, int]]:
        return ((place, at) for place, at in self.stages.stage.items() if place not in self.region.members)

    def needed(self, stage: int) -> tuple[set[int], set[str]]:
        """The statements with the axis that run in a stage, and the names that it takes from what was kept."""
        mine = {place for place, at in self.stages.stage.items() if at == stage and place in self.region.members}
        mine -= self.stages.again
        pending, kept = list(mine), set[str]()
        while pending:
            for name in used((self.block[pending.pop()],)):
                maker = self.stages.makers.get(name)
                if maker is None or maker in mine:
                    continue
                if maker in self.stages.again:
                    mine.add(maker)
                    pending.append(maker)
                elif self.stages.stage[maker] < stage:
                    kept.add(name)
        return mine, kept

    def loops(self, stage: int, needed: Sequence[tuple[set[int], set[str]]]) -> Iterator[Statement]:
        mine, taken = needed[stage]
        later = {name for _, names in needed[stage + 1 :] for name in names}
        folds = [place for place in sorted(mine) if self.is_fold(place)]
        for place in folds:
            yield from self.opened(place)
        for part in self.parts:
            body: list[Statement] = [self.fetched(name, part) for name in sorted(taken)]
            for place in sorted(mine):
                body.extend(self.at(place, part))
                name = self.block[place].result  # type: ignore[union-attr]
                if name in later and not self.is_fold(place):
                    body.append(self.keeping(name, place))
            suffix = f"_{stage}{part.suffix}"
            yield Loop(self.symbol, part.lo, part.hi, "forward", renamed(tuple(body), frozenset(), suffix))
        for place in folds:
            yield from self.closed(place)

    def is_fold(self, place: int) -> bool:
        return place in self.operators and self.operators[place].axis == FOLDED

    # -- one statement, for one block ------------------------------------------------------------------------------

    def at(self, place: int, part: _BlockRange) -> Iterator[Statement]:
        if place in self.region.reads:
            yield self.read(place, part)
        elif place in self.region.assigns:
            yield self.block[place]
        elif self.is_fold(place):
            yield from self.folded(place, self.operators[place].at(self.tile, self.start))
        else:
            *cuts, compute = self.operators[place].at(self.tile, self.start)
            yield from cuts
            yield self.masked(place, compute, part) if compute.is_mask else compute

    def read(self, place: int, part: _BlockRange) -> Read:
        window = self.region.window(place)
        room = self.rooms[place]
        exact = room is not None and (part.whole or self.count * self.tile <= room)
        moved = WindowIndex(window.start + self.start, const(self.tile), exact)
        return self.region.narrowed(place, moved)

    def masked(self, place: int, compute: Compute, part: _BlockRange) -> Statement:
        """Lengths count from the start of the block; where all of it is valid there is nothing to mask."""
        operator = self.operators[place]
        if operator.operands[0] != compute.attrs["axis"] % len(compute.type.shape):
            return compute
        (length,) = compute.scalars
        assert isinstance(length, Expr)
        if part.whole and length == self.region.length:
            return Assign(compute.result, compute.operands[0])
        return replace(compute, scalars=(length - self.start,))

    # -- what is folded --------------------------------------------------------------------------------------------

    def opened(self, place: int) -> Iterator[Statement]:
        """The accumulator before the first block."""
        operator = self.operators[place].compute
        type = _accumulated(operator.type)
        if place not in self.accumulators:
            self.accumulators[place] = self.made(f"{operator.result}_sum", type.dtype, (), type.shape)
        neutral = OPERATORS[operator.op].padding(operator.operand_types[0].dtype)
        value = np.asarray(neutral).astype(dtypes.to_numpy(type.dtype))
        name, scalar = f"{operator.result}__neutral", TensorType((), type.dtype)
        yield Compute(name, "constant", {"value": ArrayValue(value)}, (), (), scalar)
        yield Compute(f"{name}s", "broadcast", {"shape": type.shape}, (name,), (scalar,), type)
        yield Write(self.accumulators[place].id, (), f"{name}s")

    def folded(self, place: int, computes: tuple[Compute, ...]) -> Iterator[Statement]:
        *cuts, fold = computes
        type, buffer = _accumulated(fold.type), self.accumulators[place]
        yield from cuts
        yield fold
        name = fold.result
        if type != fold.type:
            name = f"{fold.result}__wide"
            yield Compute(name, "cast", {"dtype": type.dtype}, (fold.result,), (fold.type,), type)
        before, after = f"{fold.result}__before", f"{fold.result}__after"
        yield Read(before, buffer.id, ())
        combine = OPERATORS[fold.op].combine
        assert combine is not None, "`_can` says what is folded block by block"
        yield Compute(after, combine, {}, (before, name), (type, type), type)
        yield Write(buffer.id, (), after)

    def closed(self, place: int) -> Iterator[Statement]:
        """The result of a fold under its own name."""
        compute = self.operators[place].compute
        type, name = _accumulated(compute.type), f"{compute.result}__all"
        yield Read(name, self.accumulators[place].id, ())
        if type == compute.type:
            yield Assign(compute.result, name)
        else:
            yield Compute(compute.result, "cast", {"dtype": compute.type.dtype}, (name,), (type,), compute.type)

    # -- what is kept ----------------------------------------------------------------------------------------------

    def keeping(self, name: str, place: int) -> Write:
        if name not in self.kept:
            type = self.operators[place].at(self.tile)[-1].type
            axis = Axis(self.symbol, 0, "full", const(self.count))
            self.kept[name] = self.made(f"{name}_kept", type.dtype, (axis,), type.shape)
        return Write(self.kept[name].id, (var(self.symbol),), name)

    def fetched(self, name: str, part: _BlockRange) -> Read:
        return Read(name, self.kept[name].id, (PointIndex(var(self.symbol)),))


def _accumulated(type: TensorType) -> TensorType:
    """Sums of many blocks of halves are added up in float32."""
    return replace(type, dtype="float32") if type.dtype in _HALVES else type


def _stem(region: Region) -> str:
    return min(region.names)
