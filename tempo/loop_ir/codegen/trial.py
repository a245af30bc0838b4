"""What generated code holds while it runs: its statements on a heap without contents (`tempo.loop_ir.analysis.heap`).

The emitter says what its source lets go of and where a result takes an operand's memory, so this is what that source
does. Views hold the memory of what they are views of; whatever else an operator makes is a piece of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tempo import dtypes
from tempo.errors import Location
from tempo.loop_ir.analysis.heap import Frame, Heap, Piece, Role
from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Block,
    Branch,
    Buffer,
    Compute,
    Guard,
    Loop,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
)
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import no_cost
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.loop_ir.codegen.python import Emitter

Sizes = Mapping[Symbol, int]
Given = Mapping[int, Piece | None]
"""What lies in buffers."""


def array_of(buffer: Buffer, sizes: Sizes) -> Piece:
    """The array of a buffer, whole."""
    role: Role = "given" if buffer.is_given else "returned" if buffer.role == "output" else "between"
    return piece_of(TensorType(buffer.logical_shape, buffer.dtype), sizes, buffer.name, buffer.location, role)


def piece_of(
    type: TensorType, sizes: Sizes, name: str, location: Location | None = None, role: Role = "between"
) -> Piece:
    """The memory of a tensor; an extent below zero is of what never runs."""
    shape = tuple(max(0, int(size.evaluate(sizes))) for size in type.shape)
    return Piece(math.prod(shape) * dtypes.itemsize(type.dtype), name, role, shape, type.dtype, location)


_MOST = 8
"""Iterations of a loop that are looked at."""


def repeat(loop: Loop, sizes: Sizes, heap: Heap, body: Callable[[], None]) -> None:
    """Run iterations of a loop until another one would not hold more: names hold what iterations before have made."""
    known = (loop.lo.symbols() | loop.hi.symbols()) <= sizes.keys()
    often = int(loop.hi.evaluate(sizes)) - int(loop.lo.evaluate(sizes)) if known else _MOST
    with heap.within(f"for {loop.var.name}"):
        for _ in range(min(often, _MOST)):
            before = heap.peak, heap.held
            body()
            if (heap.peak, heap.held) == before:
                break


@contextmanager
def tried(
    emitter: Emitter, segment: Segment, heap: Heap, given: Given, sizes: Sizes, tables: Callable[[], Sequence[Any]]
) -> Iterator[Mapping[int, Piece]]:
    """A call of a segment's function, given what its buffers hold. Inside, it has returned what it gives."""
    with Frame[int](heap) as made:
        with heap.within(segment.name), Frame[str](heap) as names:
            call = _Call(emitter, names, sizes)
            names.become({call.label(id): piece for id, piece in given.items() if piece is not None})
            call.block((segment.loop,) if segment.loop else segment.body)
            for id in segment.results:
                made[id] = names.get(call.label(id))
        yield made.held


class _Call:
    """The body of the function, with its variables."""

    def __init__(self, emitter: Emitter, names: Frame[str], sizes: Sizes) -> None:
        self._emitter, self._heap, self._names, self._sizes = emitter, names.heap, names, sizes
        self._reads: dict[str, Read] = {}

    def label(self, id: int) -> str:
        return self._emitter.program.buffers[id].label

    def block(self, block: Block) -> None:
        for step in self._emitter.steps(block):
            if step.kept is None:
                for each in step.statements:
                    self._statement(each)
            else:
                for each in step.kept:
                    self._names[each.result] = self._piece(each.type, each)
            for name in step.gone:
                self._names[name] = None

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Read(result):
                self._reads[result] = statement
            case Compute(result):
                with self._values(statement.operands) as operands:
                    self._names[result] = self._result(statement, operands)
            case Assign(result, value):
                with self._values((value,)) as (held,):
                    self._names[result] = held
            case Write(buffer, index, value):
                with self._values((value,)) as (held,):
                    if not index:
                        self._names[self.label(buffer)] = held
            case Branch(_, then, otherwise):
                self._either(then, otherwise)
            case Guard(body=body):
                self.block(body)
            case Loop(body=body):
                repeat(statement, self._sizes, self._heap, partial(self.block, body))

    def _either(self, then: Block, otherwise: Block) -> None:
        """Both sides, each from what there was before it; what holds more is what goes on."""
        names, reads = self._names.held, dict(self._reads)
        self.block(then)
        after, live = self._names.held, self._heap.live
        self._names.become(names)
        self._reads = reads
        self.block(otherwise)
        if live > self._heap.live:
            self._names.become(after)

    @contextmanager
    def _values(self, names: tuple[str, ...]) -> Iterator[list[Piece | None]]:
        """What operands hold. Reads stand where they are used, and what is gathered for one lives as long."""
        with Frame[str](self._heap) as here:
            for name in names:
                here[name] = self._read(self._reads[name]) if name in self._reads else self._names.get(name)
            yield [here.get(name) for name in names]

    def _read(self, read: Read) -> Piece | None:
        """A view of the buffer's memory, or what is taken out of it: a window that may leave the dim, or wrap."""
        buffer = self._emitter.program.buffers[read.buffer]
        entries = zip(buffer.axes, read.index, strict=True)
        windows = [(axis, entry) for axis, entry in entries if isinstance(entry, WindowIndex)]
        if not read.fresh and all(self._is_slice(*each) for each in windows):
            return self._names.get(buffer.label)
        taken = TensorType((*(entry.extent for _, entry in windows), *buffer.shape), buffer.dtype)
        return self._piece(taken, buffer)

    def _is_slice(self, axis: Axis, window: WindowIndex) -> bool:
        """Whether it neither leaves the axis nor wraps, as far as that is known beforehand."""
        if window.exact or not window.start.symbols() <= self._sizes.keys():
            return window.exact
        start, extent, size = (int(each.evaluate(self._sizes)) for each in (window.start, window.extent, axis.extent))
        return 0 <= (start % size if axis.kind == "window" and size else start) <= size - extent

    def _result(self, compute: Compute, operands: list[Piece | None]) -> Piece | None:
        place = self._emitter.overwritten(compute)
        if place is not None and operands[place] is not None:
            return operands[place]
        operator = OPERATORS.get(compute.op)
        if operator is not None and operator.views and operator.cost is no_cost:
            return max(operands, key=lambda each: each.bytes if each else 0, default=None)
        return self._piece(compute.type, compute)

    def _piece(self, type: TensorType, made: Compute | Buffer) -> Piece:
        name = made.name or (made.op if isinstance(made, Compute) else "")
        return piece_of(type, self._sizes, name, made.location)
