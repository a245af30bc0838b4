"""A region as loops over blocks of the axis, as many as the length needs: one executable, whatever the length.

    for b in 0..length//64:      (64 positions, all of them valid: no masks)
    for b in length//64..(length + 63)//64:     (the rest, masked)

What folds the axis is accumulated across blocks. What needs a fold of the same axis comes in the next pair of loops
(a softmax: the maximum, the sum of the exponentials, the products with the weights); values of single positions that it
needs again are kept, block by block, and reads are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tempo import dtypes
from tempo.loop_ir.analysis.names import used
from tempo.loop_ir.ir import Assign, Axis, Block, Buffer, Compute, Loop, PointIndex, Read, Statement, Write
from tempo.loop_ir.transforms.dynamic_extent.regions import FOLDED, Entry, Region, Tracked, renamed
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, Symbol, const, var

_HALVES = frozenset({"float16", "bfloat16"})


Maker = Callable[[str, str, tuple[Axis, ...], tuple[Expr, ...]], Buffer]
"""A new buffer of the program, of a name, dtype, axes and shape."""

Value = Read | Compute | Assign


def in_blocks(stages: FoldStages, region: Region, tile: int, made: Maker) -> Block:
    """The statements that are in `stages`, those of `region` as loops over blocks of `tile` positions.

    Sorts, scans, positions of extremes and effects in between have no `stages`, and cannot be.
    """
    return tuple(_Lowering(stages, region, tile, made).statements())


@dataclass
class FoldStages:
    """How many loops over blocks, one after the other, a region needs.

    `stage`: of a statement that sees the axis, in which loops it is; of any other, before which loops it comes.
    """

    region: Region
    values: list[Value] = field(default_factory=list)
    """The statements, in order."""
    stage: dict[int, int] = field(default_factory=dict)
    makers: dict[str, Value] = field(default_factory=dict)
    """Who makes a value with the axis."""
    ready: dict[str, int] = field(default_factory=dict)
    """Before which loops any other value is there."""

    @staticmethod
    def of(block: Block, region: Region) -> FoldStages | None:
        """None where it cannot be run in blocks."""
        found = FoldStages(region)
        return found if all(map(found._take, block)) else None

    @property
    def count(self) -> int:
        return 1 + max(self.stage[member] for member in self.region.members)

    def at(self, stage: int) -> list[Value]:
        return [each for each in self.values if self.stage[id(each)] == stage]

    def _take(self, statement: Statement) -> bool:
        if not isinstance(statement, Value):
            return False
        self.values.append(statement)
        self.stage[id(statement)] = first = max(map(self._earliest, used((statement,))), default=0)
        member, fold = self.region.members.get(id(statement)), self.region.fold(statement)
        if member is None or fold is not None:
            self.ready[statement.result] = first if member is None else first + 1
        else:
            self.makers[statement.result] = statement
        return not isinstance(member, Tracked) or _can(member)

    def is_again(self, statement: Value) -> bool:
        """Whether it is rather done again, to what is read again, than kept; so is what gives another name."""
        if isinstance(statement, Compute) and not OPERATORS[statement.op].views:
            return False
        makers = (self.makers[name] for name in used((statement,)) if name in self.makers)
        return isinstance(statement, Assign) or all(map(self.is_again, makers))

    def _earliest(self, name: str) -> int:
        return self.stage[id(self.makers[name])] if name in self.makers else self.ready.get(name, 0)


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
    def __init__(self, stages: FoldStages, region: Region, tile: int, made: Maker) -> None:
        self.stages, self.region, self.tile, self.made = stages, region, tile, made
        self.symbol = Symbol(f"{region.entries[0].read.result}.block", "dim")
        self.start = var(self.symbol) * tile
        self.count = -(-region.hull // tile)
        self.members = dict(region.members)
        self.accumulators: dict[str, Buffer] = {}
        self.kept: dict[str, Buffer] = {}
        whole, length = region.length // tile, region.length
        self.parts = [_BlockRange("", const(0), whole, whole=True)]
        if tile > 1:
            self.parts.append(_BlockRange("_rest", whole, (length + tile - 1) // tile, whole=False))

    def statements(self) -> Iterator[Statement]:
        needed = [self.needed(stage) for stage in range(self.stages.count)]
        for stage, (mine, taken) in enumerate(needed):
            later = {name for _, names in needed[stage + 1 :] for name in names}
            yield from self.beside(stage)
            yield from self.lengthened(mine)
            yield from self.loops(stage, mine, taken, later)
        yield from self.beside(self.stages.count)

    def beside(self, stage: int) -> Iterator[Statement]:
        """What does not see the axis."""
        return (each for each in self.stages.at(stage) if id(each) not in self.members)

    def lengthened(self, mine: Iterable[Value]) -> Iterator[Statement]:
        """What is known at full extent and cut into blocks, as long as these."""
        for each in mine if self.region.hull % self.tile else ():
            member = self.members[id(each)]
            if isinstance(member, Tracked) and member.cut:
                pads, self.members[id(each)] = member.lengthened(self.count * self.tile)
                yield from pads

    def needed(self, stage: int) -> tuple[list[Value], set[str]]:
        """The statements with the axis that run in a stage, and the names that it takes from what was kept."""
        kept = set[str]()
        pending = [
            each for each in self.stages.at(stage) if id(each) in self.members and not self.stages.is_again(each)
        ]
        mine = set(map(id, pending))
        while pending:
            for name in used((pending.pop(),)):
                maker = self.stages.makers.get(name)
                if maker is None or id(maker) in mine:
                    continue
                if self.stages.is_again(maker):
                    mine.add(id(maker))
                    pending.append(maker)
                elif self.stages.stage[id(maker)] < stage:
                    kept.add(name)
        return [each for each in self.stages.values if id(each) in mine], kept

    def loops(self, stage: int, mine: Sequence[Value], taken: set[str], later: set[str]) -> Iterator[Statement]:
        folds = [fold for each in mine if (fold := self.region.fold(each)) is not None]
        for fold in folds:
            yield from self.opened(fold.compute)
        for part in self.parts:
            body: list[Statement] = [self.fetched(name) for name in sorted(taken)]
            for each in mine:
                body.extend(self.at(each, part))
                if each.result in later and self.region.fold(each) is None:
                    body.append(self.keeping(each))
            suffix = f"_{stage}{part.suffix}"
            yield Loop(self.symbol, part.lo, part.hi, "forward", renamed(tuple(body), frozenset(), suffix))
        for fold in folds:
            yield from self.closed(fold.compute)

    # -- one statement, for one block ------------------------------------------------------------------------------

    def at(self, statement: Value, part: _BlockRange) -> Iterator[Statement]:
        member = self.members[id(statement)]
        if isinstance(member, Entry):
            yield member.part(self.tile, 0 if part.whole else self.count * self.tile, self.start)
        elif isinstance(member, Assign):
            yield member
        else:
            *cuts, compute = member.at(self.tile, self.start)
            yield from cuts
            yield self.masked(member, compute, part) if compute.is_mask else compute
            yield from self.folded(compute) if member.axis == FOLDED else ()

    def masked(self, operator: Tracked, compute: Compute, part: _BlockRange) -> Statement:
        """Lengths count from the start of the block; where all of it is valid there is nothing to mask."""
        if operator.operands[0] != compute.attrs["axis"] % len(compute.type.shape):
            return compute
        (length,) = compute.scalars
        assert isinstance(length, Expr)
        if part.whole and length == self.region.length:
            return Assign(compute.result, compute.operands[0])
        return replace(compute, scalars=(length - self.start,))

    # -- what is folded --------------------------------------------------------------------------------------------

    def opened(self, operator: Compute) -> Iterator[Statement]:
        """The accumulator before the first block."""
        type = _accumulated(operator.type)
        buffer = self.made(f"{operator.result}_sum", type.dtype, (), type.shape)
        self.accumulators[operator.result] = buffer
        neutral = OPERATORS[operator.op].padding(operator.operand_types[0].dtype)
        value = np.asarray(neutral).astype(dtypes.to_numpy(type.dtype))
        name, scalar = f"{operator.result}__neutral", TensorType((), type.dtype)
        yield Compute(name, "constant", {"value": ArrayValue(value)}, (), (), scalar)
        yield Compute(f"{name}s", "broadcast", {"shape": type.shape}, (name,), (scalar,), type)
        yield Write(buffer.id, (), f"{name}s")

    def folded(self, fold: Compute) -> Iterator[Statement]:
        type, buffer = _accumulated(fold.type), self.accumulators[fold.result]
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

    def closed(self, operator: Compute) -> Iterator[Statement]:
        """The result of a fold under its own name."""
        type, name = _accumulated(operator.type), f"{operator.result}__all"
        yield Read(name, self.accumulators[operator.result].id, ())
        if type == operator.type:
            yield Assign(operator.result, name)
        else:
            yield Compute(operator.result, "cast", {"dtype": operator.type.dtype}, (name,), (type,), operator.type)

    # -- what is kept ----------------------------------------------------------------------------------------------

    def keeping(self, statement: Value) -> Write:
        name, member = statement.result, self.members[id(statement)]
        assert isinstance(member, Tracked), "reads and other names of what is read are read again"
        if name not in self.kept:
            type = member.at(self.tile)[-1].type
            axis = Axis(self.symbol, 0, "full", const(self.count))
            self.kept[name] = self.made(f"{name}_kept", type.dtype, (axis,), type.shape)
        return Write(self.kept[name].id, (var(self.symbol),), name)

    def fetched(self, name: str) -> Read:
        return Read(name, self.kept[name].id, (PointIndex(var(self.symbol)),))


def _accumulated(type: TensorType) -> TensorType:
    """Sums of many blocks of halves are added up in float32."""
    return replace(type, dtype="float32") if type.dtype in _HALVES else type
