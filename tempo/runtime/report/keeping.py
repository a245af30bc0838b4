"""How long buffers keep what they hold, in words, and what reads them: from the loops around writes and reads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tempo import dtypes
from tempo.errors import Location
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Loop,
    LoopProgram,
    Read,
    Statement,
    Write,
    nested,
)
from tempo.runtime.report.contents import BufferUse, Reader
from tempo.runtime.report.sources import Sources
from tempo.symbolic import Symbol

Sizes = Mapping[Symbol, int]


@dataclass
class Uses:
    """By buffer: the variables of the loops around its writes, outermost first, and what is made of what is read."""

    loops: dict[int, tuple[Symbol, ...]] = field(default_factory=dict)
    readers: dict[int, dict[tuple[str, Location | None], None]] = field(default_factory=lambda: defaultdict(dict))


def uses_of(program: LoopProgram) -> Uses:
    found = Uses()
    _Follower(program, found).block(program.items, (), {})
    return found


class _Follower:
    """Goes through the driver and the segments it calls; `held`: of which buffer a value in hand is a part."""

    def __init__(self, program: LoopProgram, uses: Uses) -> None:
        self._program, self._uses = program, uses

    def block(self, block: Block, loops: tuple[Symbol, ...], held: dict[str, int]) -> None:
        for statement in block:
            self._statement(statement, loops, held)

    def _statement(self, statement: Statement, loops: tuple[Symbol, ...], held: dict[str, int]) -> None:
        match statement:
            case Read(result=result, buffer=buffer):
                held[result] = buffer
            case Assign(result=result, value=value) if value in held:
                held[result] = held[value]
            case Compute(operands=operands):
                self._read(operands, statement, held)
            case Write(buffer=buffer, value=value):
                self._uses.loops.setdefault(buffer, loops)
                self._read((value,), statement, held)
            case CallHost(reads=reads, writes=writes):
                self.block(writes, loops, {})
                self._read(tuple(each.result for each in reads), statement, {r.result: r.buffer for r in reads})
            case CallSegment(segment=segment):
                self.block(self._program.segments[segment].body, loops, {})
            case Loop(var=var, body=body):
                self.block(body, (*loops, var), held)
            case _:
                for inner in nested(statement):
                    self.block(inner, loops, held)

    def _read(self, names: tuple[str, ...], statement: Compute | Write | CallHost, held: Mapping[str, int]) -> None:
        for buffer in dict.fromkeys(held[name] for name in names if name in held):
            self._uses.readers[buffer][self._told(statement)] = None

    def _told(self, statement: Compute | Write | CallHost) -> tuple[str, Location | None]:
        """A reader as the user knows it."""
        match statement:
            case Compute():
                return statement.name or statement.op, statement.location
            case Write():
                buffer = self._program.buffers[statement.buffer]
                return buffer.name, buffer.location
            case CallHost():
                node = self._program.hosts[statement.call]
                return node.name or node.op, node.location


def buffer_uses(program: LoopProgram, sizes: Sizes, why: Mapping[int, str], sources: Sources) -> tuple[BufferUse, ...]:
    """Every buffer of the program that runs. `why`: what asks for some of them to be kept as long as they are."""
    uses = uses_of(program)
    return tuple(
        BufferUse(
            id,
            buffer.label,
            buffer.name,
            buffer.dtype,
            buffer.whole_extents(sizes),
            math.prod(buffer.local_extents(sizes)) * dtypes.itemsize(buffer.dtype),
            buffer.storage,
            buffer.role,
            sources.place(buffer.location),
            kept(buffer, anew := replacing(buffer, uses.loops.get(id, ())), sizes),
            anew,
            why.get(id, ""),
            tuple(Reader(name, sources.place(location)) for name, location in uses.readers.get(id, ())),
        )
        for id, buffer in program.buffers.items()
    )


def replacing(buffer: Buffer, loops: tuple[Symbol, ...]) -> tuple[str, ...]:
    """Of the loops around its writes those of which it has no axis: there is another value in each iteration."""
    axes = {axis.dim for axis in buffer.axes}
    return () if buffer.is_given else tuple(dict.fromkeys(each.name for each in loops if each not in axes))


def kept(buffer: Buffer, anew: tuple[str, ...], sizes: Sizes) -> str:
    """How much of a tensor a buffer keeps, in words."""
    extents = [(axis, int(axis.extent.evaluate(sizes))) for axis in buffer.axes]
    more = [each for each in extents if each[1] != 1] or extents  # a dim of one point says nothing
    points = [_along(axis.kind, axis.dim, extent) for axis, extent in more]
    what = " × ".join(points) or "one value"
    if buffer.role == "constant":
        return "a constant, there all the time"
    if buffer.role == "input":
        return "given: there all the time" + (f", {what}" if points else "")
    again = f", replaced at each {', '.join(anew)}" if anew else "" if points else ", made once"
    until = "; returned when the run has ended" if buffer.role == "output" else ""
    return f"{what}{again}{until}"


def _along(kind: str, dim: Symbol, extent: int) -> str:
    if extent == 1:
        return f"one point of {dim.name}"
    return f"all {extent} points of {dim.name}" if kind == "full" else f"the last {extent} points of {dim.name}"
