"""Sharding propagation: how every buffer and value lies, and which collectives that asks for.

Given how inputs lie, each statement says by the axis rule of its operator how its result does: a PARALLEL factor keeps
the cut, a REDUCING one leaves a partial sum on every device, which an all-reduce adds up, and what looks at other
positions has its operand gathered. Buffers lie as what is written to them does; sweeps over the program go on until
none changes. What is made of nothing (constants, draws, zeros) lies as whoever reads it wants it.

Source: Xu et al., GSPMD: General and Scalable Parallelization for ML Computation Graphs (2021), sections 3.2 and 3.5.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from tempo import dtypes
from tempo.errors import GatherWarning, Location
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Write,
    nested,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.passes.manager import Decided, PassRecord
from tempo.placement.mesh import Mesh, Placement, Shards, local, permuted
from tempo.placement.request import PlacementRequest, extent_of
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import Factor, Role
from tempo.symbolic import Symbol, const

Kind = Literal["all-reduce", "all-gather"]


@dataclass(frozen=True)
class Collective:
    """What the devices along the axis `over` of the mesh do together, once for each iteration of `loops`.

    `bytes`: of its result, on each device. `why`: what asks for it.
    """

    kind: Kind
    over: str
    bytes: int
    name: str
    why: str
    loops: tuple[Symbol, ...] = ()
    location: Location | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether it is what folds need, and not an array that lies in parts and is gathered."""
        return self.kind == "all-reduce"

    def warn(self) -> None:
        """Say so at the user's line, where nobody asked for it."""
        if not self.is_asked_for:
            path, line = (__file__, 0) if self.location is None else (self.location.path, self.location.line)
            text = f"{self}; what is along {self.over} is copied to all devices there"
            warnings.warn_explicit(text, GatherWarning, path, line)

    def __str__(self) -> str:
        inside = f"inside {', '.join(symbol.name for symbol in self.loops)}" if self.loops else "outside of loops"
        where = "" if self.location is None else f"  {self.location.path}:{self.location.line}"
        return f"{self.kind} over {self.over}, {self.bytes} B, {inside}: {self.name}, {self.why}{where}"


class _Open:
    """Of an axis that may lie in any way: what has it costs nothing to cut."""

    def __repr__(self) -> str:
        return "?"


OPEN = _Open()
Cut = str | None | _Open
"""How an axis lies: along an axis of the mesh, whole (None), or OPEN."""
Cuts = tuple[Cut, ...]


def joined(one: Cut, other: Cut) -> Cut:
    """How an axis lies that lies in two ways: what is whole on every device is cut for nothing."""
    if isinstance(one, _Open):
        return other
    return other if one is None and not isinstance(other, _Open) else one


@dataclass(frozen=True)
class ShardingPropagation:
    """The program with a placement for every buffer that is cut, and for every value that is or was."""

    request: PlacementRequest = field(compare=False)
    name: ClassVar[str] = "sharding_propagation"
    needed: ClassVar[str] = "a mesh"

    def apply(self, program: LoopProgram, context: LoopContext) -> Decided[LoopProgram]:
        found = _Propagation(program, self.request, context.sizes)
        return Decided(found.placed(), tuple(found.collectives))


def collectives(passes: Iterable[PassRecord]) -> tuple[Collective, ...]:
    """What the devices of a mesh exchange, as the pass has found it."""
    found = (record.decisions for record in passes if record.name == ShardingPropagation.name)
    return tuple(each for decisions in found for each in decisions if isinstance(each, Collective))


class _Propagation:
    def __init__(self, program: LoopProgram, request: PlacementRequest, sizes: Mapping[Symbol, int]) -> None:
        self.program, self.request, self.mesh, self.sizes = program, request, request.mesh, sizes
        self.buffers: dict[int, Cuts] = {id: self._seed(buffer) for id, buffer in program.buffers.items()}
        self.cuts: dict[int, Cuts] = {}
        """By statement that computes something."""
        self.forced: set[int] = set()
        """Statements whose result was cut, or a partial sum, and is whole."""
        self.collectives: list[Collective] = []
        self._given()
        while self._sweep():
            pass
        self._wanted()

    # -- where things begin ----------------------------------------------------------------------------------------

    def _seed(self, buffer: Buffer) -> Cuts:
        """Of dims that are cut all buffers are; axes of tensors that the caller names lie as that says."""
        dims = [self.request.shard.get(axis.dim, OPEN) for axis in buffer.axes]
        named = self.request.place.get(buffer.name, (OPEN,) * len(buffer.shape))
        shape = named if len(named) == len(buffer.shape) else (OPEN,) * len(buffer.shape)
        return self._divided(buffer, (*dims, *shape))

    def _given(self) -> None:
        """Inputs lie as they are given."""
        for port, id in self.program.inputs.items():
            if port not in self.request.inputs:
                continue
            buffer, given = self.program.buffers[id], self.request.inputs[port]
            lies = permuted(given, buffer.from_user)
            self.buffers[id] = tuple(None if cut is None else cut.over for cut in lies)

    def _divided(self, buffer: Buffer, cuts: Cuts) -> Cuts:
        """Without the cuts of axes that have too few, or too many, places for that: a window along a dim."""
        return tuple(
            cut if not isinstance(cut, str) or self._divides(size, cut) else None
            for cut, size in zip(cuts, map(self._number, buffer.logical_shape), strict=True)
        )

    def _divides(self, size: int, over: str) -> bool:
        return size % self.mesh.axes[over] == 0

    def _number(self, size: object) -> int:
        return extent_of(size, self.sizes)  # type: ignore[arg-type]

    def _bytes(self, shape: Sequence[object], dtype: str, cuts: Cuts = ()) -> int:
        """On one device."""
        sizes = local(map(self._number, shape), self._placement(cuts))
        return math.prod(sizes) * dtypes.itemsize(dtype)

    def _placement(self, cuts: Cuts) -> Placement:
        return tuple(self.mesh.shards(cut) if isinstance(cut, str) else None for cut in cuts)

    # -- forward ---------------------------------------------------------------------------------------------------

    def _sweep(self) -> bool:
        """Whether it has found out more of a buffer."""
        before, self.collectives = dict(self.buffers), []
        self.cuts, self.forced = {}, set()
        for segment in self.program.segments:
            self._block(segment.body, {}, self._around.get(segment.id, ()))
        return before != self.buffers

    @property
    def _around(self) -> Mapping[int, tuple[Symbol, ...]]:
        """By segment, the loops of the host around its call."""
        found: dict[int, tuple[Symbol, ...]] = {}

        def visit(block: Block, loops: tuple[Symbol, ...]) -> None:
            for statement in block:
                if hasattr(statement, "segment"):
                    found[statement.segment] = loops
                for inner in nested(statement) if not isinstance(statement, Read | Write) else ():
                    visit(inner, (*loops, statement.var) if isinstance(statement, Loop) else loops)

        visit(self.program.items, ())
        return found

    def _block(self, block: Block, names: dict[str, Cuts], loops: tuple[Symbol, ...]) -> None:
        for statement in block:
            self._statement(statement, names, loops)

    def _statement(self, statement: Statement, names: dict[str, Cuts], loops: tuple[Symbol, ...]) -> None:
        match statement:
            case Read(result):
                names[result] = self._read(statement, loops)
            case Write(buffer, _, value):
                self._write(statement, names[value], loops)
            case Assign(result, value):
                names[result] = names[value]
            case Compute(result):
                names[result] = self._computed(statement, [names[name] for name in statement.operands], loops)
                self.cuts[id(statement)] = names[result]
            case Loop(body=body):
                self._block(body, dict(names), (*loops, statement.var))
            case Branch(_, then, otherwise):
                sides = [dict(names), dict(names)]
                for side, inner in zip((then, otherwise), sides, strict=True):
                    self._block(side, inner, loops)
                one, other = sides
                for name in (one.keys() & other.keys()) - names.keys():
                    names[name] = tuple(map(joined, one[name], other[name]))
            case Guard(body=body):
                self._block(body, dict(names), loops)

    def _read(self, read: Read, loops: tuple[Symbol, ...]) -> Cuts:
        buffer, cuts = self.program.buffers[read.buffer], self.buffers[read.buffer]
        found = list(cuts[len(buffer.axes) :])
        kept: list[Cut] = []
        for at, (axis, entry) in enumerate(zip(buffer.axes, read.index, strict=True)):
            cut = cuts[at]
            is_point = isinstance(entry, PointIndex)
            whole = not is_point and entry.start == const(0) and self._same(entry.extent, axis.extent)
            if isinstance(cut, str) and not whole:
                why = f"read at {entry.index}" if isinstance(entry, PointIndex) else f"read from {entry.start} on"
                left = tuple(None if each == cut else each for each in cuts)
                self._gather(cut, self._bytes(buffer.logical_shape, buffer.dtype, left), buffer, why, loops)
                cut = None
            if not is_point:
                kept.append(cut)
        return (*kept, *found)

    def _same(self, one: object, other: object) -> bool:
        return self._number(one) == self._number(other)

    def _gather(
        self, over: str, bytes: int, what: Buffer | Compute, why: str, loops: tuple[Symbol, ...]
    ) -> None:
        name = what.name or (what.op if isinstance(what, Compute) else what.label)
        self.collectives.append(Collective("all-gather", over, bytes, name, why, loops, what.location))

    def _write(self, write: Write, cuts: Cuts, loops: tuple[Symbol, ...]) -> None:
        buffer, rest = self.program.buffers[write.buffer], list(cuts)
        lies = list(self.buffers[write.buffer])
        for at, extent in enumerate(write.extents):
            if extent is None:
                continue
            cut = rest.pop(0)
            if self._same(extent, buffer.axes[at].extent):
                lies[at] = self._kept(buffer, at, lies[at], cut, loops)
            elif isinstance(cut, str):
                self._gather(cut, self._bytes(buffer.logical_shape, buffer.dtype), buffer, "written in part", loops)
        for at, cut in enumerate(rest, len(write.extents)):
            lies[at] = self._kept(buffer, at, lies[at], cut, loops)
        self.buffers[write.buffer] = self._once(tuple(lies))

    def _kept(self, buffer: Buffer, at: int, lies: Cut, cut: Cut, loops: tuple[Symbol, ...]) -> Cut:
        """How an axis of a buffer lies to which a value is written that lies so there."""
        if isinstance(lies, str) and isinstance(cut, str) and lies != cut:
            self._gather(cut, self._bytes(buffer.logical_shape, buffer.dtype), buffer, f"kept along {lies}", loops)
        fits = not isinstance(cut, str) or self._divides(self._number(buffer.logical_shape[at]), cut)
        is_input = buffer.is_given
        return lies if is_input else joined(lies, cut if fits else None)

    @staticmethod
    def _once(cuts: Cuts) -> Cuts:
        """With each axis of the mesh at the first axis that lies along it."""
        counts = Counter[str]()
        found: list[Cut] = []
        for cut in cuts:
            if isinstance(cut, str):
                counts[cut] += 1
            found.append(None if isinstance(cut, str) and counts[cut] > 1 else cut)
        return tuple(found)

    def _computed(self, compute: Compute, operands: list[Cuts], loops: tuple[Symbol, ...]) -> Cuts:
        shapes = [type.shape for type in compute.operand_types]
        factors = OPERATORS[compute.op].axes(compute.attrs, shapes, compute.type.shape) if _has_rule(compute) else ()
        is_open = all(isinstance(cut, _Open) for cuts in operands for cut in cuts)
        found: list[Cut] = [OPEN if is_open else None] * len(compute.type.shape)
        partial: list[str] = []
        for factor in factors:
            cuts = [operands[number][axis] for number, axis in factor.places]
            cut: Cut = OPEN
            for each in cuts:
                cut = joined(cut, each)
            for (number, axis), each in zip(factor.places, cuts, strict=True):
                if isinstance(each, str) and each != cut:
                    self._regathered(compute, number, axis, each, operands[number], f"beside {cut}", loops)
            if not isinstance(cut, str):
                if factor.result is not None and factor.role in _KEPT:
                    found[factor.result] = cut
            elif self._keeps(factor, compute, cut, found):
                assert factor.result is not None
                found[factor.result] = cut
            elif factor.folds and OPERATORS[compute.op].combine is not None and cut not in partial:
                partial.append(cut)
            else:
                for number, axis in factor.places:
                    if operands[number][axis] == cut:
                        self._regathered(compute, number, axis, cut, operands[number], _why(factor, compute), loops)
        for over in partial:
            bytes = self._bytes(compute.type.shape, compute.type.dtype, tuple(found))
            name = compute.name or compute.op
            self.collectives.append(
                Collective("all-reduce", over, bytes, name, f"{compute.op} adds up", loops, compute.location)
            )
            self.forced.add(id(compute))
        return tuple(found)

    def _keeps(self, factor: Factor, compute: Compute, cut: str, found: Sequence[Cut]) -> bool:
        """Whether the result is cut as the operands are."""
        if factor.result is None or cut in found or factor.role not in (Role.PARALLEL, Role.MAJOR):
            return False
        sizes = [compute.operand_types[number].shape[axis] for number, axis in factor.places]
        return all(self._divides(self._number(size), cut) for size in (*sizes, compute.type.shape[factor.result]))

    def _regathered(
        self, compute: Compute, number: int, axis: int, cut: str, cuts: Cuts, why: str, loops: tuple[Symbol, ...]
    ) -> None:
        """An operand is gathered along an axis."""
        type = compute.operand_types[number]
        left = tuple(None if at == axis else each for at, each in enumerate(cuts))
        self._gather(cut, self._bytes(type.shape, type.dtype, left), compute, why, loops)

    # -- backward, for what is open --------------------------------------------------------------------------------

    def _wanted(self) -> None:
        for segment in self.program.segments:
            self._want(segment.body, {})

    def _want(self, block: Block, wanted: dict[str, Cuts]) -> None:
        """Of what is made of nothing, as the first of its readers wants it."""
        for statement in reversed(block):
            for inner in reversed(nested(statement)):
                if isinstance(statement, Loop | Branch | Guard):
                    self._want(inner, wanted)
            if isinstance(statement, Write):
                self._want_written(statement, wanted)
            elif isinstance(statement, Assign) and statement.result in wanted:
                wanted.setdefault(statement.value, wanted[statement.result])
            elif isinstance(statement, Compute):
                self._want_operands(statement, wanted)

    def _want_written(self, write: Write, wanted: dict[str, Cuts]) -> None:
        axes = [at for at, extent in enumerate(write.extents) if extent is not None]
        lies = self.buffers[write.buffer]
        wanted[write.value] = (*(lies[at] for at in axes), *lies[len(write.extents) :])

    def _want_operands(self, compute: Compute, wanted: dict[str, Cuts]) -> None:
        cuts = self.cuts.get(id(compute))
        if cuts is None:
            return
        wants = wanted.pop(compute.result, cuts)
        if len(wants) == len(cuts):
            cuts = self._once(
                tuple(
                    want if isinstance(cut, _Open) and self._fits(want, size) else cut
                    for cut, want, size in zip(cuts, wants, compute.type.shape, strict=True)
                )
            )
        self.cuts[id(compute)] = cuts
        if not _has_rule(compute):
            return
        shapes = [type.shape for type in compute.operand_types]
        found = [[OPEN] * len(shape) for shape in shapes]  # type: list[list[Cut]]
        for factor in OPERATORS[compute.op].axes(compute.attrs, shapes, compute.type.shape):
            for number, axis in factor.places:
                if factor.keeps and factor.result is not None:
                    found[number][axis] = cuts[factor.result]
        for name, each in zip(compute.operands, found, strict=True):
            wanted.setdefault(name, tuple(each))

    def _fits(self, want: Cut, size: object) -> bool:
        return not isinstance(want, str) or self._divides(self._number(size), want)

    # -- what was found --------------------------------------------------------------------------------------------

    def placed(self) -> LoopProgram:
        buffers = {
            id: replace(buffer, placement=placement)
            if any(placement := self._placement(self.buffers[id])) or buffer.is_given
            else buffer
            for id, buffer in self.program.buffers.items()
        }
        program = replace(self.program, buffers=buffers)
        return with_segments(program, self._segment)

    def _segment(self, segment: Segment) -> Segment:
        def visit(statement: Statement, scope: BlockScope) -> tuple[Statement] | None:
            if not isinstance(statement, Compute):
                return None
            placement = self._placement(self.cuts.get(id(statement), ()))
            return (replace(statement, placement=placement),) if any(placement) or id(statement) in self.forced else None

        return replace(segment, body=rewritten(segment.body, visit))


_KEPT = (Role.PARALLEL, Role.SCANNING, Role.WINDOW, Role.MOVING, Role.MAJOR)


def _has_rule(compute: Compute) -> bool:
    return compute.op in OPERATORS


def _why(factor: Factor, compute: Compute) -> str:
    return {
        Role.REDUCING: f"{compute.op} needs all positions",
        Role.SCANNING: f"{compute.op} goes through positions in order",
    }.get(factor.role, f"{compute.op} moves positions")
