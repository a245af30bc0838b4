"""Sharding propagation: how every buffer and value lies, and which collectives that asks for.

Given how inputs lie, each statement says by the axis rule of its operator how its result does: a PARALLEL factor keeps
the cut, a REDUCING one leaves a partial sum on every device, which an all-reduce adds up, and what looks at other
positions has its operand gathered. Buffers lie as what is written to them does; sweeps over the program go on until
none changes. What is made of nothing (constants, draws, zeros) lies as whoever reads it wants it.

Source: Xu et al., GSPMD: General and Scalable Parallelization for ML Computation Graphs (2021), sections 3.2 and 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import ClassVar

from tempo import dtypes
from tempo.errors import InternalError, UnsupportedError
from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Block,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    extent_of,
    nested,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.passes.manager import Decided
from tempo.placement.collectives import PASS, Collective, Kind
from tempo.placement.mesh import Placement, local, permuted
from tempo.placement.request import PlacementRequest
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import Factor, Factors, Role, no_axes_known
from tempo.symbolic import Expr, Symbol, const

_MOST_SWEEPS = 100
"""Every sweep but the last finds out more of some axis of a buffer, of which none is found out more than twice."""


class _Open:
    """Of an axis that may lie in any way: what has it costs nothing to cut."""

    def __repr__(self) -> str:
        return "?"


OPEN = _Open()
Cut = str | None | _Open
"""How an axis lies: along an axis of the mesh, whole (None), or OPEN."""
Cuts = tuple[Cut, ...]


def joined(one: Cut, other: Cut) -> Cut:
    """The cut that both can be brought to for nothing, of two different ones the first: OPEN < None < an axis."""
    if isinstance(one, _Open):
        return other
    return other if one is None and not isinstance(other, _Open) else one


def once(cuts: Iterable[Cut]) -> Cuts:
    """With each axis of the mesh at the first axis that lies along it."""
    found: list[Cut] = []
    for cut in cuts:
        found.append(None if isinstance(cut, str) and cut in found else cut)
    return tuple(found)


def joined_all(one: Cuts, other: Cuts) -> Cuts:
    """Of all axes."""
    return once(map(joined, one, other))


@dataclass(frozen=True)
class ShardingPropagation:
    """The program with a placement for every buffer that is cut, and for every value that is or was.

    `at`: the place of this process along each axis of the mesh, for backends whose compilers take a program of parts;
    None: they make the parts themselves.
    """

    request: PlacementRequest = field(compare=False)
    at: Mapping[str, int] | None = None
    name: ClassVar[str] = PASS
    needed: ClassVar[str] = "a mesh"

    def apply(self, program: LoopProgram, context: LoopContext) -> Decided[LoopProgram]:
        from tempo.placement.partition import Partition

        found = Propagation(program, self.request, context.sizes, exact=self.at is not None)
        made = found.placed() if self.at is None else Partition(found, self.at).partitioned()
        return Decided(made, tuple(found.collectives))


class Propagation:
    def __init__(
        self, program: LoopProgram, request: PlacementRequest, sizes: Mapping[Symbol, int], exact: bool = False
    ) -> None:
        """`exact`: every part is of one size and no position moves from one to another; so a program of parts needs."""
        self.program, self.request, self.mesh, self.sizes = program, request, request.mesh, sizes
        self.exact = exact
        self.shard = {symbol.name: over for symbol, over in request.dims.items()}
        self.buffers: dict[int, Cuts] = {id: self._seed(buffer) for id, buffer in program.buffers.items()}
        self.cuts: dict[int, Cuts] = {}
        """By statement that computes something."""
        self.operands: dict[int, list[Cuts]] = {}
        """By such a statement, how its operands lie."""
        self.sums: set[int] = set()
        """Statements whose result is added up over devices."""
        self.relaid: dict[int, dict[int, dict[int, str | None]]] = {}
        """By statement, and operand, how it wants some axes that lie otherwise."""
        self.staged: dict[int, tuple[int, str]] = {}
        """Statements that fold a cut axis in two stages, each device's part first: the axis, and the mesh's."""
        self.fixed = {id for id, buffer in program.buffers.items() if buffer.is_given}
        self._seen = self._seen_by_others() if exact else frozenset[int]()
        self.fixed |= self._seen
        self.buffers |= {id: (None,) * len(self.buffers[id]) for id in self._seen}
        self.collectives: list[Collective] = []
        self._given()
        self.rows = self._rows()
        """By buffer that calls of the host write, how its axes lie that are dims of which one call takes all points."""
        if not exact:
            for id, cuts in self.rows.items():
                self.buffers[id] = joined_all(self.buffers[id], cuts)
        self._settle()
        for _ in range(_MOST_SWEEPS):
            if not self._wanted():  # a buffer that lies in any way as its reader does
                break
            self._settle()

    def _settle(self) -> None:
        for _ in range(_MOST_SWEEPS):
            if not self._sweep():
                return
        raise InternalError("how buffers lie on the mesh goes on changing")

    # -- where things begin ----------------------------------------------------------------------------------------

    def _seed(self, buffer: Buffer) -> Cuts:
        """Of dims that are cut all buffers are; axes of tensors that the caller names lie as that says."""
        dims = [self.request.dims.get(axis.dim, OPEN) for axis in buffer.axes]
        named = self.request.place.get(buffer.name, (OPEN,) * len(buffer.shape))
        shape = named if len(named) == len(buffer.shape) else (OPEN,) * len(buffer.shape)
        return self._divided(buffer, (*dims, *shape))

    def _given(self) -> None:
        """Inputs lie as they are given. State is given to another run: where the caller does not say how it lies, it
        goes in as it comes out."""
        given_as = {port.name: lies for port, lies in self.request.inputs.items()}
        states: dict[str, list[int]] = {}
        for port, id in (*self.program.inputs.items(), *self.program.outputs.items()):
            if port.name not in given_as or (port.role != "state" and port not in self.request.inputs):
                continue
            buffer, given = self.program.buffers[id], given_as[port.name]
            if port.role == "state" and not any(given):
                states.setdefault(port.name, []).append(id)
                self.fixed.discard(id)
                continue
            self.fixed.add(id)
            if self.exact and id in self._seen and any(given):
                message = f"a call of the host looks at {buffer.name}, of which every process has a part"
                raise UnsupportedError(message, location=buffer.location, feature="mesh")
            lies = permuted(given, buffer.from_user)
            self.buffers[id] = tuple(None if cut is None else cut.over for cut in lies)
        self._states = [ids for ids in states.values() if len(ids) > 1 and not self._seen.intersection(ids)]

    def _tie(self) -> None:
        """What goes in and what comes out of a state lie alike."""
        for ids in self._states:
            shown = [[self.buffers[id][axis] for axis in self.program.buffers[id].to_user] for id in ids]
            lies = once(reduce(joined, axis) for axis in zip(*shown, strict=True))
            for id in ids:
                self.buffers[id] = tuple(lies[axis] for axis in self.program.buffers[id].from_user)

    def _divided(self, buffer: Buffer, cuts: Cuts) -> Cuts:
        """Without the cuts of axes whose places are not divided, or are not the points themselves."""
        kinds = [*(axis.kind for axis in buffer.axes), *("full" for _ in buffer.shape)]
        return tuple(
            cut if not isinstance(cut, str) or (kind == "full" and self.divides(size, cut)) else None
            for cut, size, kind in zip(cuts, buffer.logical_shape, kinds, strict=True)
        )

    def divides(self, size: Expr, over: str) -> bool:
        return self.number(size) % self.mesh.axes[over] == 0

    def number(self, size: Expr) -> int:
        return extent_of(size, self.sizes)

    def _bytes(self, shape: Sequence[Expr], dtype: str, cuts: Cuts = ()) -> int:
        """On one device."""
        sizes = local(map(self.number, shape), self.placement(cuts))
        return math.prod(sizes) * dtypes.itemsize(dtype)

    def placement(self, cuts: Cuts) -> Placement:
        named = [cut for cut in cuts if isinstance(cut, str)]
        assert len(set(named)) == len(named), "an axis of the mesh serves one axis of an array"
        return tuple(self.mesh.shards(cut) if isinstance(cut, str) else None for cut in cuts)

    def _seen_by_others(self) -> frozenset[int]:
        """The buffers that the host looks at while the program runs, and those that it writes to."""
        told = {id for port, id in self.program.outputs.items() if port.role not in ("output", "state")}
        calls = [each for each in walk(self.program.items) if isinstance(each, CallHost)]
        read = {each.buffer for call in calls for each in call.reads}
        return frozenset(told | read | {each.buffer for call in calls for each in call.writes})

    def _rows(self) -> dict[int, Cuts]:
        found: dict[int, Cuts] = {}
        for call in (each for each in walk(self.program.items) if isinstance(each, CallHost)):
            dims = [self.request.dims.get(symbol, OPEN) for symbol in self.program.hosts[call.call].attr("batched", ())]
            for write in call.writes:
                buffer = self.program.buffers[write.buffer]
                axes: list[Cut] = [OPEN] * len(buffer.axes)
                cuts = axes + dims
                found[buffer.id] = (*cuts, *(OPEN for _ in buffer.logical_shape[len(cuts) :]))
        return {id: self._divided(self.program.buffers[id], cuts) for id, cuts in found.items()}

    # -- forward ---------------------------------------------------------------------------------------------------

    def _sweep(self) -> bool:
        """Whether it has found out more of a buffer."""
        before, self.collectives = dict(self.buffers), []
        self.cuts, self.operands, self.sums, self.relaid, self.staged = {}, {}, set(), {}, {}
        for segment in self.program.segments:
            self._block(segment.body, {}, self._around.get(segment.id, ()))
        self._tie()
        return before != self.buffers

    @cached_property
    def _around(self) -> Mapping[int, tuple[Symbol, ...]]:
        """By segment, the loops of the host around its call."""
        found: dict[int, tuple[Symbol, ...]] = {}

        def visit(block: Block, loops: tuple[Symbol, ...]) -> None:
            for statement in block:
                if isinstance(statement, CallSegment):
                    found[statement.segment] = loops
                for inner in nested(statement):
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
            case Write(value=value):
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
                    names[name] = joined_all(one[name], other[name])
            case Guard(body=body):
                self._block(body, dict(names), loops)

    def _read(self, read: Read, loops: tuple[Symbol, ...]) -> Cuts:
        buffer, cuts = self.program.buffers[read.buffer], self.buffers[read.buffer]
        found = list(cuts[len(buffer.axes) :])
        seen = (*(const(1) if isinstance(each, PointIndex) else each.extent for each in read.index), *buffer.shape)
        kept: list[Cut] = []
        for at, (axis, entry) in enumerate(zip(buffer.axes, read.index, strict=True)):
            cut = cuts[at]
            is_point = isinstance(entry, PointIndex)
            if isinstance(cut, str) and not self.is_whole(axis, entry):
                start = entry.index if isinstance(entry, PointIndex) else entry.start
                why = f"read at {axis.dim.name} = {start}" + ("" if is_point else " and after it")
                bytes = self._bytes(seen, buffer.dtype, (*(None for _ in read.index), *found))
                self._exchange("all-gather", cut, bytes, buffer, why, loops, warns=True)
                cut = None
            if not is_point:
                kept.append(cut)
        rows = self.rows.get(buffer.id, ()) if self.exact else ()
        return (*kept, *(joined_all(tuple(found), rows[len(buffer.axes) :]) if rows else found))

    def is_whole(self, axis: Axis, entry: PointIndex | WindowIndex) -> bool:
        """Whether all positions of an axis are read."""
        return isinstance(entry, WindowIndex) and entry.start == const(0) and self.is_all(entry.extent, axis.extent)

    def is_all(self, one: Expr, other: Expr) -> bool:
        return self.number(one) == self.number(other)

    def _exchange(
        self,
        kind: Kind,
        over: str,
        bytes: int,
        what: Buffer | Compute,
        why: str,
        loops: tuple[Symbol, ...],
        warns: bool = False,
    ) -> None:
        if self.mesh.axes[over] == 1:
            return  # with itself
        name = what.name or (what.op if isinstance(what, Compute) else what.label)
        around = tuple(dict.fromkeys(loops))
        self.collectives.append(Collective(kind, over, bytes, name, why, around, what.location, warns))

    def _write(self, write: Write, cuts: Cuts, loops: tuple[Symbol, ...]) -> None:
        buffer, rest = self.program.buffers[write.buffer], list(cuts)
        lies = list(self.buffers[write.buffer])
        for at, extent in enumerate(write.extents):
            if extent is None:
                continue
            cut = rest.pop(0)
            if self.is_all(extent, buffer.axes[at].extent):
                lies[at] = self._kept(buffer, at, lies[at], cut, loops)
            elif isinstance(cut, str):
                self._whole(buffer, cut, "written in part", loops)
        for at, cut in enumerate(rest, len(write.extents)):
            lies[at] = self._kept(buffer, at, lies[at], cut, loops)
        self.buffers[write.buffer] = once(tuple(lies))

    def _whole(self, buffer: Buffer, cut: str, why: str, loops: tuple[Symbol, ...]) -> None:
        """What is written to a buffer is gathered."""
        bytes = self._bytes(buffer.logical_shape, buffer.dtype)
        self._exchange("all-gather", cut, bytes, buffer, why, loops, warns=True)

    def _kept(self, buffer: Buffer, at: int, lies: Cut, cut: Cut, loops: tuple[Symbol, ...]) -> Cut:
        """How an axis of a buffer lies to which a value is written that lies so there."""
        if isinstance(lies, str) and isinstance(cut, str) and lies != cut:
            self._whole(buffer, cut, f"kept along {lies}", loops)
        if buffer.id in self.fixed and not isinstance(lies, _Open):
            if isinstance(cut, str) and lies is None:
                self._whole(buffer, cut, "kept as it is given", loops)
            return lies
        fits = not isinstance(cut, str) or self.divides(buffer.logical_shape[at], cut)
        if isinstance(cut, str) and not fits and not isinstance(lies, str):
            self._whole(buffer, cut, f"{buffer.logical_shape[at]} positions are not divided", loops)
        return joined(lies, cut if fits else None)

    def _computed(self, compute: Compute, operands: list[Cuts], loops: tuple[Symbol, ...]) -> Cuts:
        self.operands[id(compute)] = operands
        is_open = all(isinstance(cut, _Open) for cuts in operands for cut in cuts)
        found: list[Cut] = [OPEN if is_open else None] * len(compute.type.shape)
        folded: list[tuple[Factor, str]] = []
        for factor in factors_of(compute):
            cut = self._along(compute, factor, loops)
            if not isinstance(cut, str):
                if factor.result is not None and (factor.role is not Role.OPAQUE or factor.by_position):
                    found[factor.result] = cut
            elif self.keeps(factor, compute, cut) and cut not in found:
                assert factor.result is not None
                found[factor.result] = cut
                self._moved(compute, factor, cut, loops)
            elif can_fold_parts(factor, compute):
                folded.append((factor, cut))
            else:
                for number, axis in factor.places:
                    if operands[number][axis] == cut:
                        self._gathered(compute, number, axis, _why(factor, compute), loops)
        for axis, name in _dims_of(compute):
            over = self.shard.get(name)
            if over is not None and over not in found and self.divides(compute.type.shape[axis], over):
                found[axis] = over
        for factor, cut in folded:
            self._folded(compute, factor, cut, tuple(found), loops)
        return tuple(found)

    def _along(self, compute: Compute, factor: Factor, loops: tuple[Symbol, ...]) -> Cut:
        """How a factor lies; an operand that lies otherwise there is gathered."""
        operands, cut = self.operands[id(compute)], OPEN  # type: list[Cuts], Cut
        for number, axis in factor.places:
            cut = joined(cut, operands[number][axis])
        for number, axis in factor.places:
            if isinstance(operands[number][axis], str) and operands[number][axis] != cut:
                self._gathered(compute, number, axis, f"it meets what lies along {cut}", loops)
        return cut

    def _moved(self, compute: Compute, factor: Factor, cut: str, loops: tuple[Symbol, ...]) -> None:
        """Positions that move may come to lie on another device."""
        if factor.distance is not None and abs(factor.distance) <= self._part(compute, factor, cut):
            lies = self._placed_along(compute, factor, cut)
            part = self._bytes(compute.type.shape, compute.type.dtype, lies)
            bytes = part // self._part(compute, factor, cut) * abs(factor.distance)
            self._exchange("permute", cut, bytes, compute, f"handed on to the next by {factor.distance}", loops)
        elif factor.role in (Role.WINDOW, Role.MOVING):
            made = self._bytes(compute.type.shape, compute.type.dtype, self._placed_along(compute, factor, cut))
            bytes = max(made, *(self._operand_bytes(compute, number) for number, _ in factor.places))
            self._exchange("permute", cut, bytes, compute, f"{compute.op} moves positions", loops)

    def _part(self, compute: Compute, factor: Factor, cut: str) -> int:
        """How many positions of the result a device has."""
        assert factor.result is not None
        return self.number(compute.type.shape[factor.result]) // self.mesh.axes[cut]

    @staticmethod
    def _placed_along(compute: Compute, factor: Factor, cut: str) -> Cuts:
        return tuple(cut if axis == factor.result else None for axis in range(len(compute.type.shape)))

    def keeps(self, factor: Factor, compute: Compute, cut: str) -> bool:
        """Whether the result is cut as the operands are."""
        if factor.result is None:
            return False
        if factor.role is Role.MAJOR or self.exact:
            sizes = [compute.operand_types[number].shape[axis] for number, axis in factor.places]
            if not all(self.divides(size, cut) for size in (*sizes, compute.type.shape[factor.result])):
                return False
        moves = () if self.exact else (Role.WINDOW, Role.MOVING)
        if factor.distance is not None:
            return not self.exact or abs(factor.distance) <= self._part(compute, factor, cut)
        stays = factor.by_position or factor.role in (Role.PARALLEL, Role.MAJOR, *moves)
        return stays and not (self.exact and factor.ordered)

    def _folded(self, compute: Compute, factor: Factor, cut: str, found: Cuts, loops: tuple[Symbol, ...]) -> None:
        """Each device has folded what it has. What is no sum is combined by its own operator: the all-reduce of a
        maximum may lose NaN, as XLA's on a processor does."""
        bytes = self._bytes(compute.type.shape, compute.type.dtype, found)
        for number, at in factor.places:  # what is whole is cut; else XLA may gather the other
            lies, size = self.operands[id(compute)][number], compute.operand_types[number].shape[at]
            if lies[at] is None and cut not in lies and self._fits(cut, size):
                self._relay(compute, number, at, cut)
        if OPERATORS[compute.op].adds_up:
            self._exchange("all-reduce", cut, bytes, compute, f"{compute.op} adds up", loops)
            self.sums.add(id(compute))
            return
        axis, count = factor.places[0][1], self.mesh.axes[cut]
        if id(compute) in self.staged or not self.divides(compute.operand_types[0].shape[axis], cut):
            self._gathered(compute, 0, axis, f"{compute.op} folds it", loops)
            return
        self.staged[id(compute)] = axis, cut
        self._exchange("all-gather", cut, count * bytes, compute, f"{compute.op} of what each device has found", loops)

    def _gathered(self, compute: Compute, number: int, axis: int, why: str, loops: tuple[Symbol, ...]) -> None:
        """An operand is gathered along an axis."""
        cut = self.operands[id(compute)][number][axis]
        assert isinstance(cut, str)
        bytes = self.mesh.axes[cut] * self._operand_bytes(compute, number)
        self._exchange("all-gather", cut, bytes, compute, why, loops, warns=True)
        self._relay(compute, number, axis, None)

    def _relay(self, compute: Compute, number: int, axis: int, cut: str | None) -> None:
        self.relaid.setdefault(id(compute), {}).setdefault(number, {})[axis] = cut

    def _operand_bytes(self, compute: Compute, number: int) -> int:
        type = compute.operand_types[number]
        return self._bytes(type.shape, type.dtype, self.operands[id(compute)][number])

    # -- backward, for what is open --------------------------------------------------------------------------------

    def _wanted(self) -> bool:
        """Whether some reader wants to have cut what a buffer holds that is made of nothing."""
        before = dict(self.buffers)
        for segment in self.program.segments:
            self._want(segment.body, {})
        return before != self.buffers

    def _want(self, block: Block, wanted: dict[str, Cuts]) -> None:
        """Of what is made of nothing, as the first of its readers wants it."""
        for statement in reversed(block):
            for inner in reversed(nested(statement)):
                if isinstance(statement, Loop | Branch | Guard):
                    self._want(inner, wanted)
            if isinstance(statement, Write):
                self._want_written(statement, wanted)
            elif isinstance(statement, Read) and statement.result in wanted:
                self._want_buffer(statement, wanted.pop(statement.result))
            elif isinstance(statement, Assign) and statement.result in wanted:
                wanted.setdefault(statement.value, wanted[statement.result])
            elif isinstance(statement, Compute):
                self._want_operands(statement, wanted)

    def _want_written(self, write: Write, wanted: dict[str, Cuts]) -> None:
        axes = [at for at, extent in enumerate(write.extents) if extent is not None]
        lies = self.buffers[write.buffer]
        wanted[write.value] = (*(lies[at] for at in axes), *lies[len(write.extents) :])

    def _want_buffer(self, read: Read, wants: Cuts) -> None:
        buffer = self.program.buffers[read.buffer]
        shown = [at for at, entry in enumerate(read.index) if isinstance(entry, WindowIndex)]
        axes, lies = (*shown, *range(len(read.index), len(buffer.logical_shape))), list(self.buffers[buffer.id])
        for at, want in zip(axes, wants, strict=True):
            is_whole = at >= len(read.index) or self.is_whole(buffer.axes[at], read.index[at])
            if isinstance(lies[at], _Open) and isinstance(want, str) and want not in lies and is_whole:
                lies[at] = want
        if buffer.id not in self.fixed and tuple(lies) != self.buffers[buffer.id]:
            self.buffers[buffer.id] = self._divided(buffer, tuple(lies))

    def _want_operands(self, compute: Compute, wanted: dict[str, Cuts]) -> None:
        cuts = self.cuts.get(id(compute))
        if cuts is None:
            return
        wants = wanted.pop(compute.result, cuts)
        if len(wants) == len(cuts):
            cuts = once(
                tuple(
                    want if isinstance(cut, _Open) and self._fits(want, size) else cut
                    for cut, want, size in zip(cuts, wants, compute.type.shape, strict=True)
                )
            )
        self.cuts[id(compute)] = cuts
        found: list[list[Cut]] = [[OPEN] * len(type.shape) for type in compute.operand_types]
        for factor in factors_of(compute):
            for number, axis in factor.places:
                if factor.keeps and factor.result is not None:
                    found[number][axis] = cuts[factor.result]
        for name, each in zip(compute.operands, found, strict=True):
            wanted.setdefault(name, tuple(each))

    def _fits(self, want: Cut, size: Expr) -> bool:
        return not isinstance(want, str) or self.divides(size, want)

    # -- what was found --------------------------------------------------------------------------------------------

    def placed(self) -> LoopProgram:
        buffers = {
            id: replace(buffer, placement=placement)
            if any(placement := self.placement(self.buffers[id])) or buffer.role != "internal"
            else buffer
            for id, buffer in self.program.buffers.items()
        }
        program = replace(self.program, buffers=buffers)
        return with_segments(program, self._segment)

    def _segment(self, segment: Segment) -> Segment:
        def visit(statement: Statement, scope: BlockScope) -> tuple[Statement, ...] | None:
            return self._statements(statement) if isinstance(statement, Compute) else None

        return replace(segment, body=rewritten(segment.body, visit))

    @cached_property
    def _has_parts(self) -> bool:
        """Whether anything is cut at all."""
        return any(isinstance(cut, str) for cuts in (*self.buffers.values(), *self.cuts.values()) for cut in cuts)

    def _statements(self, compute: Compute) -> tuple[Statement, ...]:
        """The statement, behind what makes its operands whole where that is needed.

        Of what is whole that is said, too: else XLA cuts it as its readers are, and moves what does not fit.
        """
        cuts = self.cuts.get(id(compute), ())
        placement = self._expressed(cuts, compute.type)
        is_known = id(compute) in self.sums or not all(isinstance(cut, _Open) for cut in cuts)
        is_known = is_known and self._has_parts
        is_told = placement is not None and is_known
        made, gathers = replace(compute, placement=placement) if is_told else compute, list[Compute]()
        for number, axes in self.relaid.get(id(compute), {}).items():
            lies = self.operands[id(compute)][number]
            left = self._expressed(tuple(axes.get(axis, cut) for axis, cut in enumerate(lies)))
            type, name = compute.operand_types[number], made.operands[number]
            gathers.append(_reshaped(compute, name, f"laid_{number}", type, type, left))
            operands = (*made.operands[:number], gathers[-1].result, *made.operands[number + 1 :])
            made = replace(made, operands=operands)
        if id(compute) not in self.staged:
            return (*gathers, made)
        return (*gathers, *self._in_stages(made, *self.staged[id(compute)]))

    def _expressed(self, cuts: Cuts, type: TensorType | None = None) -> Placement | None:
        """The placement; None where parts would not be of one size, so that none says it."""
        sizes = () if type is None else type.shape
        if any(isinstance(cut, str) and not self.divides(size, cut) for cut, size in zip(cuts, sizes)):
            return None
        return self.placement(cuts)

    def _in_stages(self, compute: Compute, axis: int, over: str) -> tuple[Statement, ...]:
        """A fold along a cut axis: of each device's part, and, when all of these are everywhere, of them."""
        (type,), (name,), count = compute.operand_types, compute.operands, self.mesh.axes[over]
        size, folded = const(self.number(type.shape[axis]) // count), compute.attrs["axes"]
        shape = (*type.shape[:axis], const(count), size, *type.shape[axis + 1 :])
        parts = _reshaped(compute, name, "parts", type, TensorType(shape, type.dtype), None)
        place = sum(each not in folded for each in range(axis))
        rest, kept = compute.type.shape, (compute.placement or (None,) * len(compute.type.shape))
        of_each = TensorType((*rest[:place], const(count), *rest[place:]), compute.type.dtype)
        found = replace(
            compute,
            result=f"{compute.result}__each",
            attrs={**compute.attrs, "axes": tuple(each + (each >= axis) for each in folded)},
            operands=(parts.result,),
            operand_types=(parts.type,),
            type=of_each,
            placement=(*kept[:place], self.mesh.shards(over), *kept[place:]),
        )
        whole = _reshaped(found, found.result, "whole", of_each, of_each, (*kept[:place], None, *kept[place:]))
        attrs = {**compute.attrs, "axes": (place,)}
        return parts, found, whole, replace(compute, attrs=attrs, operands=(whole.result,), operand_types=(of_each,))


def _reshaped(
    of: Compute, name: str, suffix: str, type: TensorType, shape: TensorType, placement: Placement | None
) -> Compute:
    """A value in another shape, or the same that lies in another way."""
    return Compute(
        f"{of.result}__{suffix}",
        "reshape",
        {"shape": shape.shape},
        (name,),
        (type,),
        shape,
        name=of.name,
        location=of.location,
        placement=placement,
    )


def _dims_of(compute: Compute) -> Iterable[tuple[int, str]]:
    """Axes of which it is noted what dim they were: of a draw, and what stages hand on."""
    if "dim" in compute.attrs:
        return ((compute.attrs["axis"], compute.attrs["dim"]),)
    return enumerate(compute.attrs.get("dims", ()))


def can_fold_parts(factor: Factor, compute: Compute) -> bool:
    """Whether parts of a factor may be folded each by itself."""
    operator = OPERATORS.get(compute.op)
    return operator is not None and factor.folds and (operator.adds_up or operator.combine is not None)


def factors_of(compute: Compute) -> Factors:
    """The axis rule; of a function of somebody else's nothing is known."""
    rule = OPERATORS[compute.op].axes if compute.op in OPERATORS else no_axes_known
    return rule(compute.attrs, [type.shape for type in compute.operand_types], compute.type.shape)


def _why(factor: Factor, compute: Compute) -> str:
    return {
        Role.REDUCING: f"{compute.op} needs all positions",
        Role.SCANNING: f"{compute.op} goes through positions in order",
    }.get(factor.role, f"{compute.op} moves positions")
