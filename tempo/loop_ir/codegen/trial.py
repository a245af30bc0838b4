"""What generated code holds while it runs: its statements on a heap without contents (`tempo.loop_ir.analysis.heap`).

The emitter says what its source lets go of and where a result takes an operand's memory, so this is what that source
does. Views hold the memory of what they are views of; whatever else an operator makes is a piece of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

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
    extent_of,
    walk,
)
from tempo.loop_ir.text import statement_text
from tempo.placement.mesh import Placement, local
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import no_cost
from tempo.symbolic import Condition, Symbol

if TYPE_CHECKING:
    from tempo.loop_ir.codegen.python import Emitter

Sizes = Mapping[Symbol, int]
Given = Mapping[int, Piece | None]
"""What lies in buffers."""


def array_of(buffer: Buffer, sizes: Sizes) -> Piece:
    """The array of a buffer, whole."""
    role: Role = "given" if buffer.is_given else "returned" if buffer.role == "output" else "between"
    type = TensorType(buffer.logical_shape, buffer.dtype)
    made = piece_of(type, sizes, buffer.name, buffer.location, role, () if buffer.is_part else buffer.placement)
    return replace(made, buffer=buffer.id)


def piece_of(
    type: TensorType,
    sizes: Sizes,
    name: str,
    location: Location | None = None,
    role: Role = "between",
    placement: Placement = (),
) -> Piece:
    """The memory of a tensor, on one device; an extent below zero is of what never runs."""
    shape = local((extent_of(size, sizes) for size in type.shape), placement)
    return Piece(math.prod(shape) * dtypes.itemsize(type.dtype), name, role, shape, type.dtype, location)


_MOST = 8
"""Iterations of a loop that are looked at in a row: names hold what iterations before have made."""
_MOST_FOLLOWED = 1 << 20
"""Iterations of a loop over which it is found out where choices go."""


class Walk:
    """Which iterations of loops are looked at, and which sides of choices.

    A choice is followed where it changes sides at most twice over one loop, and the others' variables have no say. Of a
    loop those iterations are looked at from which on one goes another way, as many after each as hold more than those
    before, and the last.
    """

    def __init__(self, sizes: Sizes, heap: Heap) -> None:
        self._values, self._heap = dict(sizes), heap
        self._vague = set[Condition]()

    def sides(self, condition: Condition) -> tuple[bool, ...]:
        """What the condition may be."""
        if condition in self._vague or not condition.symbols() <= self._values.keys():
            return True, False
        return (bool(condition.evaluate(self._values)),)

    def loop(self, loop: Loop, body: Callable[[], None]) -> None:
        with self._heap.within(statement_text(loop).removesuffix(":")):
            if not (loop.lo.symbols() | loop.hi.symbols()) <= self._values.keys():
                self._settled(range(_MOST), body)
                return
            lo, hi = (int(end.evaluate(self._values)) for end in (loop.lo, loop.hi))
            every = range(lo, hi) if loop.direction == "forward" else range(hi - 1, lo - 1, -1)
            last = None
            for start, stop in pairwise((*self._turns(loop, every), len(every))):
                last = self._settled(every[start:stop], body, loop.var)
            if last is not None and last != every[-1]:
                self._settled(every[-1:], body, loop.var)
            self._values.pop(loop.var, None)

    def _settled(self, iterations: Sequence[int], body: Callable[[], None], variable: Symbol | None = None) -> int:
        """Run iterations until another one would hold no more; the last that was run."""
        for each in iterations[:_MOST]:
            if variable is not None:
                self._values[variable] = each
            self._heap.begin(None if variable is None else each)
            before = self._heap.peak, self._heap.held
            body()
            if (self._heap.peak, self._heap.held) == before:
                break
        return each

    def _turns(self, loop: Loop, every: range) -> list[int]:
        """The places in `every` at which a choice goes another way than before, and the first of all."""
        found = {0} if every else set[int]()
        choices = {each.condition for each in walk(loop.body) if isinstance(each, Branch)}
        for condition in (each for each in choices if loop.var in each.symbols()):
            known = condition.symbols() <= self._values.keys() | {loop.var} and len(every) <= _MOST_FOLLOWED
            turns = self._changes(condition, loop.var, every) if known else ()
            if known and len(turns) <= 2:
                found.update(turns)
            else:
                self._vague.add(condition)
        return sorted(found)

    def _changes(self, condition: Condition, variable: Symbol, every: range) -> Sequence[int]:
        values: dict[Symbol, Any] = {**self._values, variable: np.asarray(every)}
        truth = np.broadcast_to(condition.evaluate(values), len(every))
        return [int(place) + 1 for place in np.flatnonzero(truth[1:] != truth[:-1])]


@contextmanager
def tried(
    emitter: Emitter, segment: Segment, heap: Heap, given: Given, sizes: Sizes, tables: Callable[[], Sequence[Any]]
) -> Iterator[Mapping[int, Piece]]:
    """A call of a segment's function, given what its buffers hold. Inside, it has returned what it gives."""
    with Frame[int](heap) as made:
        with heap.within(segment.name), Frame[str](heap) as names:
            call = _Call(emitter, names, sizes)
            names.become({call.label(id): piece for id, piece in given.items() if piece is not None})
            for id in emitter.copied(sizes):
                copy = array_of(emitter.program.buffers[id], sizes)
                names[f"a copy of {call.label(id)}"] = replace(copy, role="between", buffer=None)
            call.block((segment.loop,) if segment.loop else segment.body)
            for id in segment.results:
                made[id] = names.get(call.label(id))
        yield made.held


class _Call:
    """The body of the function, with its variables."""

    def __init__(self, emitter: Emitter, names: Frame[str], sizes: Sizes) -> None:
        self._emitter, self._heap, self._names, self._sizes = emitter, names.heap, names, sizes
        self._walk = Walk(sizes, names.heap)
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
                        self._heap.store(held, buffer)
                        self._names[self.label(buffer)] = held
            case Branch(condition, then, otherwise):
                sides = [then if side else otherwise for side in self._walk.sides(condition)]
                self.block(*sides) if len(sides) == 1 else self._either(*sides)
            case Guard(body=body):
                self.block(body)
            case Loop(body=body):
                self._walk.loop(statement, partial(self.block, body))

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
