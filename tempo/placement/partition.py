"""The program of one device of a mesh, for backends whose compilers do not make it themselves.

What is cut has as many positions as the device has. Operators run on parts where their axis rule says that they may;
behind a fold of a cut axis stands an `all_reduce`, in front of what needs all positions an `all_gather`, and what is
whole is sliced where it meets what is cut. Draws are of the device's own positions.

Source: Xu et al., GSPMD (2021), section 4: the SPMD partitioner.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import InternalError, Location, UnsupportedError
from tempo.loop_ir.ir import (
    Assign,
    Axis,
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
    WindowIndex,
    Write,
)
from tempo.loop_ir.rewriter import with_names, with_segments
from tempo.placement.combining import combined
from tempo.placement.propagation import Cuts, Propagation, can_fold_parts, factors_of, joined_all
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import Factor, Role
from tempo.sdg.operators.making import cut_attrs
from tempo.symbolic import Expr, const


@dataclass
class Scope:
    """What the names of a block hold: the type of the part that the device has, and how all of it is cut; and the
    statements made for it so far."""

    types: dict[str, TensorType] = field(default_factory=dict)
    cuts: dict[str, Cuts] = field(default_factory=dict)
    made: list[Statement] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(dict(self.types), dict(self.cuts))

    def add(self, name: str, type: TensorType, cuts: Cuts) -> None:
        self.types[name], self.cuts[name] = type, cuts

    def assign(self, name: str, value: str) -> None:
        """Another name for a value."""
        self.made.append(Assign(name, value))
        self.add(name, self.types[value], self.cuts[value])


class Partition:
    """`at`: the place of the device along each axis of the mesh."""

    def __init__(self, found: Propagation, at: Mapping[str, int]) -> None:
        self.found, self.program, self.mesh, self.at = found, found.program, found.mesh, at
        self._numbers = itertools.count()

    def partitioned(self) -> LoopProgram:
        buffers = {id: self._buffer(buffer) for id, buffer in self.program.buffers.items()}
        made = with_segments(self.program, self._segment)
        return replace(made, buffers=buffers, registers=())

    def _segment(self, segment: Segment) -> Segment:
        return replace(segment, body=combined(self._block(segment.body, Scope()), self.found.number))

    def _buffer(self, buffer: Buffer) -> Buffer:
        cuts = self.found.buffers[buffer.id]
        count = len(buffer.axes)
        axes = tuple(self._axis(axis, cut) for axis, cut in zip(buffer.axes, cuts))
        shape = tuple(self._part(size, cut) for size, cut in zip(buffer.shape, cuts[count:]))
        placement = self.found.placement(cuts)
        return replace(buffer, axes=axes, shape=shape, placement=placement, is_part=True)

    def _axis(self, axis: Axis, cut: Any) -> Axis:
        return replace(axis, extent=self._part(axis.extent, cut))

    def _part(self, size: Expr, cut: Any) -> Expr:
        """How many of so many positions the device has."""
        if not isinstance(cut, str):
            return size
        if not self.found.divides(size, cut):
            raise InternalError(f"{size} positions are cut into parts along {cut}, which are not of one size")
        return const(self.found.number(size) // self.mesh.axes[cut])

    def _type(self, type: TensorType, cuts: Cuts) -> TensorType:
        return TensorType(tuple(map(self._part, type.shape, cuts)), type.dtype)

    def _start(self, size: Expr, cut: str) -> Expr:
        """Of so many positions along a cut axis, the first that the device has."""
        return const(self.at[cut] * (self.found.number(size) // self.mesh.axes[cut]))

    # -- statements ------------------------------------------------------------------------------------------------

    def _block(self, block: Block, scope: Scope) -> Block:
        for statement in block:
            self._statement(statement, scope)
        return tuple(scope.made)

    def _statement(self, statement: Statement, scope: Scope) -> None:
        match statement:
            case Read():
                self._read(statement, scope)
            case Write():
                self._write(statement, scope)
            case Compute():
                self._compute(statement, scope)
            case Assign(result, value):
                scope.assign(result, value)
            case Loop(body=body) | Guard(body=body):
                scope.made.append(replace(statement, body=self._block(body, scope.inner())))
            case Branch():
                self._branch(statement, scope)
            case _:
                scope.made.append(statement)

    def _branch(self, branch: Branch, scope: Scope) -> None:
        """What both sides make lies in one way behind them: cut, if it is on either side."""
        inner = scope.inner(), scope.inner()
        sides = [self._block(side, each) for side, each in zip((branch.then, branch.otherwise), inner, strict=True)]
        leaving = [name for name in inner[0].cuts if name in inner[1].cuts and name not in scope.cuts]
        for name in leaving:
            one, other = (each.cuts[name] for each in inner)
            wanted = joined_all(one, other)
            for at, each in enumerate(inner):
                if each.cuts[name] != wanted:
                    sides[at] = self._relaid(sides[at], name, each, wanted)
            scope.add(name, inner[0].types[name], wanted)
        scope.made.append(replace(branch, then=sides[0], otherwise=sides[1]))

    def _relaid(self, side: Block, name: str, scope: Scope, wanted: Cuts) -> Block:
        """The side with what it makes under a name cut so."""
        other = self._fresh(name)
        scope.add(other, scope.types[name], scope.cuts[name])
        scope.made = list(with_names(side, {name: other}))
        scope.assign(name, self._laid(other, wanted, scope))
        return tuple(scope.made)

    def _read(self, read: Read, scope: Scope) -> None:
        """What the device has of what is read, the rows of a call that it has, and, of axes that lie in parts and are
        not read whole, what is read of them when they are gathered."""
        buffer = self.program.buffers[read.buffer]
        cuts, index = self.found.buffers[buffer.id], list(read.index)
        taken: list[tuple[int, Axis, PointIndex | WindowIndex]] = []
        shape, lies = list[Expr](), list[str | None]()
        for at, (axis, entry, cut) in enumerate(zip(buffer.axes, read.index, cuts)):
            if isinstance(cut, str):
                if not self.found.is_whole(axis, entry):
                    taken.append((len(shape), axis, entry))
                index[at] = entry = WindowIndex(const(0), self._part(axis.extent, cut), exact=True)
            if isinstance(entry, WindowIndex):
                shape.append(entry.extent)
                lies.append(cut if isinstance(cut, str) else None)
        own = cuts[len(buffer.axes) :]
        shape += map(self._part, buffer.shape, own)
        rows = self.found.rows.get(buffer.id, ())[len(buffer.axes) :]
        first = self._fresh(read.result) if taken or rows else read.result
        scope.made.append(replace(read, result=first, index=tuple(index)))
        scope.add(first, TensorType(tuple(shape), buffer.dtype), (*lies, *_told(own)))
        found = self._laid(first, (*lies, *_told(rows)), scope) if rows else first
        for place, axis, entry in reversed(taken):
            found = self._taken(found, place, axis, entry, scope, buffer.location)
        if found != read.result:
            scope.assign(read.result, found)

    def _taken(
        self,
        name: str,
        place: int,
        axis: Axis,
        entry: PointIndex | WindowIndex,
        scope: Scope,
        location: Location | None,
    ) -> str:
        """One position, or some, of an axis that lies in parts, of which a device has not all."""
        if isinstance(entry, WindowIndex) and not entry.exact and not self._is_inside(entry, axis):
            raise UnsupportedError(
                f"a read that may leave {axis.dim.name}, which lies in parts, is not partitioned",
                location=location,
                feature="mesh",
            )
        name = self._gathered(name, place, scope)
        type, lies = scope.types[name], scope.cuts[name]
        start, extent = (entry.index, const(1)) if isinstance(entry, PointIndex) else (entry.start, entry.extent)
        found = self._applied("slice", cut_attrs(type.shape, place, start, extent), name, scope)
        if isinstance(entry, WindowIndex):
            return found
        shape = (*type.shape[:place], *type.shape[place + 1 :])
        point = self._applied("reshape", {"shape": shape}, found, scope, TensorType(shape, type.dtype))
        scope.cuts[point] = (*lies[:place], *lies[place + 1 :])
        return point

    def _is_inside(self, entry: WindowIndex, axis: Axis) -> bool:
        """Whether a read is known at the sizes not to leave the axis."""
        if not entry.start.symbols() <= self.found.sizes.keys():
            return False
        start = int(entry.start.evaluate(self.found.sizes))
        return start >= 0 and start + self.found.number(entry.extent) <= self.found.number(axis.extent)

    def _write(self, write: Write, scope: Scope) -> None:
        buffer = self.program.buffers[write.buffer]
        cuts, count = self.found.buffers[buffer.id], len(write.extents)
        shown = [(at, extent) for at, extent in enumerate(write.extents) if extent is not None]
        for at, extent in shown:
            if isinstance(cuts[at], str) and not self.found.is_all(extent, buffer.axes[at].extent):
                raise UnsupportedError(
                    f"{buffer.name or buffer.label} is written in part along {buffer.axes[at].dim.name}, which lies in "
                    "parts: that is not partitioned",
                    location=buffer.location,
                    feature="mesh",
                )
        wanted = (*(cuts[at] for at, _ in shown), *cuts[count:])
        value = self._laid(write.value, _told(wanted), scope)
        extents, index, own = list(write.extents), list(write.index), list[Any]()
        for at, cut in enumerate(cuts[:count]):
            if not isinstance(cut, str):
                continue
            size = buffer.axes[at].extent
            if extents[at] is not None:
                extents[at] = self._part(size, cut)
                continue
            start, many = self._start(size, cut), self._part(size, cut)
            own.append(index[at].ge(start) & index[at].lt(start + many))
            index[at] = index[at] - start
        statement: Statement = replace(write, value=value, extents=tuple(extents), index=tuple(index))
        for condition in own:
            statement = Branch(condition, (statement,))
        scope.made.append(statement)

    # -- operators -------------------------------------------------------------------------------------------------

    def _compute(self, compute: Compute, scope: Scope) -> None:
        target = _told(self.found.cuts[id(compute)])
        wanted: list[list[Any]] = [[None] * len(type.shape) for type in compute.operand_types]
        own: list[Any] = [None] * len(target)
        folded: list[tuple[Factor, str]] = []
        handed_on: tuple[Factor, str] | None = None
        for factor in factors_of(compute):
            cut = self._runs_on_parts(compute, factor, target, scope)
            if cut is None or any(cut in lies for lies in wanted) or cut in own:
                continue
            for number, axis in factor.places:
                wanted[number][axis] = cut
            if factor.result is None:
                folded.append((factor, cut))
            else:
                own[factor.result] = cut
                handed_on = (factor, cut) if factor.distance is not None else handed_on
        operands = [self._laid(name, tuple(lies), scope) for name, lies in zip(compute.operands, wanted, strict=True)]
        onto = OPERATORS[compute.op].onto if folded else None
        if onto is not None and any(self.at[cut] for _, cut in folded):
            operands[onto] = self._zeros(scope.types[operands[onto]], scope)
        attrs = compute.attrs
        if OPERATORS[compute.op].kind == "random":
            own = list(target)
            starts = [self._start(size, cut).as_int() if cut else 0 for size, cut in zip(compute.type.shape, own)]
            attrs = {**attrs, "starts": tuple(starts)}
        if "layout" in attrs:  # where a checked index is: the first of the part is not that of all
            attrs = {**attrs, "layout": self._layout(compute, wanted[1])}
        op = compute.op
        if handed_on is not None:
            factor, cut = handed_on
            op, attrs = "exchange", {"over": cut, "axis": factor.result, "distance": factor.distance}
        type = self._type(compute.type, tuple(own))
        is_last = not folded and tuple(own) == target
        result = compute.result if is_last else self._fresh(compute.result)
        scope.made.append(
            replace(
                compute,
                op=op,
                result=result,
                attrs=OPERATORS[op].resized(attrs, type.shape) if any(own) else attrs,
                operands=tuple(operands),
                operand_types=tuple(scope.types[name] for name in operands),
                type=type,
                placement=None,
            )
        )
        scope.add(result, type, tuple(own))
        for factor, cut in folded:
            result = self._folded(compute, result, factor, cut, scope)
        result = self._laid(result, target, scope)
        if result != compute.result:
            scope.assign(compute.result, result)

    def _layout(self, compute: Compute, cuts: Sequence[Any]) -> tuple[Expr | int, ...]:
        """Which dims the axes of indices are, and from where on."""
        found = list[Expr | int]()
        for each, cut, size in zip(compute.attrs["layout"], cuts, compute.operand_types[1].shape):
            found.append(each - self._start(size, cut) if isinstance(each, Expr) and isinstance(cut, str) else each)
        return tuple(found)

    def _runs_on_parts(self, compute: Compute, factor: Factor, target: Cuts, scope: Scope) -> str | None:
        """Along which axis of the mesh an operator runs on parts of a factor; None: on all of it."""
        if factor.result is not None:
            cut = target[factor.result]
            can = bool(factor.places or OPERATORS[compute.op].kind == "movement") and not factor.ordered
            keeps = (
                factor.role is Role.MAJOR
                or factor.by_position
                or factor.distance is not None
                or (factor.role is Role.PARALLEL and can)
            )
            return cut if isinstance(cut, str) and keeps and self.found.keeps(factor, compute, cut) else None
        if not can_fold_parts(factor, compute):
            return None
        lies = (scope.cuts[compute.operands[number]][axis] for number, axis in factor.places)
        cut = next((each for each in lies if isinstance(each, str)), None)
        sizes = (compute.operand_types[number].shape[axis] for number, axis in factor.places)
        return cut if cut is not None and all(self.found.divides(size, cut) for size in sizes) else None

    def _folded(self, compute: Compute, name: str, factor: Factor, cut: str, scope: Scope) -> str:
        """Of what each device has folded, what all have."""
        type = scope.types[name]
        if OPERATORS[compute.op].adds_up:
            return self._applied("all_reduce", {"over": cut}, name, scope, type)
        shape = TensorType((const(1), *type.shape), type.dtype)
        row = self._applied("reshape", {"shape": shape.shape}, name, scope, shape)
        scope.cuts[row] = (cut, *scope.cuts[name])
        rows = self._gathered(row, 0, scope)
        found = self._applied(compute.op, {**compute.attrs, "axes": (0,)}, rows, scope, type)
        scope.cuts[found] = scope.cuts[name]
        return found

    def _zeros(self, type: TensorType, scope: Scope) -> str:
        """What the devices but one add to: it counts once."""
        zero, many = self._fresh("zero"), self._fresh("zero")
        scalar = TensorType((), type.dtype)
        value = ArrayValue(np.zeros((), dtypes.to_numpy(type.dtype)))
        scope.made.append(Compute(zero, "constant", {"value": value}, (), (), scalar))
        scope.made.append(Compute(many, "broadcast", {"shape": type.shape}, (zero,), (scalar,), type))
        scope.add(many, type, (None,) * len(type.shape))
        return many

    # -- how values lie --------------------------------------------------------------------------------------------

    def _laid(self, name: str, wanted: Cuts, scope: Scope) -> str:
        """The name of the value cut so."""
        for place, (cut, want) in enumerate(zip(scope.cuts[name], wanted, strict=True)):
            if isinstance(cut, str) and cut != want:
                name = self._gathered(name, place, scope)
        for place, (cut, want) in enumerate(zip(scope.cuts[name], wanted, strict=True)):
            if isinstance(want, str) and cut != want:
                size = scope.types[name].shape[place]
                part = cut_attrs(scope.types[name].shape, place, self._start(size, want), self._part(size, want))
                lies = scope.cuts[name]
                name = self._applied("slice", part, name, scope)
                scope.cuts[name] = (*lies[:place], want, *lies[place + 1 :])
        return name

    def _gathered(self, name: str, place: int, scope: Scope) -> str:
        type, lies = scope.types[name], scope.cuts[name]
        over = lies[place]
        assert isinstance(over, str), "what lies in parts is gathered"
        size = const(self.found.number(type.shape[place]) * self.mesh.axes[over])
        whole = TensorType((*type.shape[:place], size, *type.shape[place + 1 :]), type.dtype)
        name = self._applied("all_gather", {"over": over, "axis": place}, name, scope, whole)
        scope.cuts[name] = (*lies[:place], None, *lies[place + 1 :])
        return name

    def _applied(
        self,
        op: str,
        attrs: Mapping[str, Any],
        name: str,
        scope: Scope,
        type: TensorType | None = None,
    ) -> str:
        """The name of an operator's result."""
        given = scope.types[name]
        result = type or OPERATORS[op].infer(attrs, (given,))
        found = self._fresh(name)
        scope.made.append(Compute(found, op, attrs, (name,), (given,), result, OPERATORS[op].scalars(attrs)))
        scope.add(found, result, scope.cuts[name])
        return found

    def _fresh(self, name: str) -> str:
        return f"{name.partition('__p')[0]}__p{next(self._numbers)}"


def _told(cuts: Sequence[Any]) -> Cuts:
    """With what may lie in any way whole."""
    return tuple(cut if isinstance(cut, str) else None for cut in cuts)
