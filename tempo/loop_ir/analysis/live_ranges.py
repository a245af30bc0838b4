"""Which steps of the driver a buffer lives through, and what a step needs beside buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.loop_ir.ir import (
    CallHost,
    CallSegment,
    Compute,
    LoopProgram,
    Read,
    Statement,
    WindowIndex,
    walk,
)
from tempo.symbolic import Expr, Symbol

Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Lifetimes:
    """By item of the driver: the internal buffers that are made just before it, and those that are not needed after it.

    Inputs are there from the start and go with their last use as well. Outputs and constants are there all the time.
    """

    makes: tuple[tuple[int, ...], ...]
    drops: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(program: LoopProgram) -> Lifetimes:
        uses: dict[int, list[int]] = {}
        for number, item in enumerate(program.items):
            for id in sorted(touched(program, item)):
                uses.setdefault(id, []).append(number)
        makes: list[list[int]] = [[] for _ in program.items]
        drops: list[list[int]] = [[] for _ in program.items]
        for id, numbers in sorted(uses.items()):
            role = program.buffers[id].role
            if role == "internal":
                makes[numbers[0]].append(id)
            if role in ("internal", "input"):
                drops[numbers[-1]].append(id)
        return Lifetimes(tuple(map(tuple, makes)), tuple(map(tuple, drops)))


def touched(program: LoopProgram, item: Statement) -> set[int]:
    """The buffers that one item of the driver reads or writes."""
    found: set[int] = set()
    for each in walk((item,)):
        if isinstance(each, CallSegment):
            found.update(program.segments[each.segment].buffers)
        elif isinstance(each, CallHost):
            found.update(read.buffer for read in each.reads)
            found.update(write.buffer for write in each.writes)
    return found


def peak_bytes(program: LoopProgram, sizes: Sizes) -> int:
    """The most bytes that are needed at once: the buffers that live through an item, and the values in its segments."""
    bytes = {id: buffer_bytes(program, id, sizes) for id in program.buffers}
    lifetimes = Lifetimes.of(program)
    roles = {id: buffer.role for id, buffer in program.buffers.items()}
    live = {id for id, role in roles.items() if role != "internal"}
    peak = sum(bytes[id] for id in live)
    for item, makes, drops in zip(program.items, lifetimes.makes, lifetimes.drops):
        live.update(makes)
        peak = max(peak, sum(bytes[id] for id in live) + _values(program, item, sizes))
        live.difference_update(drops)
    return peak


def buffer_bytes(program: LoopProgram, id: int, sizes: Sizes) -> int:
    buffer = program.buffers[id]
    return math.prod(buffer.extents(sizes)) * dtypes.itemsize(buffer.dtype)


def _values(program: LoopProgram, item: Statement, sizes: Sizes) -> int:
    """What the values of a segment take, all at once: generated code gives none of them back before it returns."""
    called = (each.segment for each in walk((item,)) if isinstance(each, CallSegment))
    bodies = (walk(program.segments[number].body) for number in called)
    return max((sum(_bytes(program, each, sizes) for each in body) for body in bodies), default=0)


def _bytes(program: LoopProgram, statement: Statement, sizes: Sizes) -> int:
    if isinstance(statement, Compute):
        return _size(statement.type.shape, sizes) * dtypes.itemsize(statement.type.dtype)
    if isinstance(statement, Read) and (statement.fresh or any(_may_copy(statement))):
        buffer = program.buffers[statement.buffer]
        windows = [entry.extent for entry in statement.index if isinstance(entry, WindowIndex)]
        return _size((*windows, *buffer.shape), sizes) * dtypes.itemsize(buffer.dtype)
    return 0


def _may_copy(read: Read) -> Iterator[bool]:
    """A window that may leave the dim, or wrap around, is gathered."""
    return (isinstance(entry, WindowIndex) and not entry.exact for entry in read.index)


def _size(shape: tuple[Expr, ...], sizes: Sizes) -> int:
    return math.prod(max(0, int(extent.evaluate(sizes))) for extent in shape)  # below 0: it never runs
