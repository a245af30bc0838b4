"""All segments as one, where the host has no part in a program: for backends that compile whole segments.

Loops at the top are segments of their own, so that they can be run in chunks. A run that asks for no chunks gains
nothing by that: as one executable it is one call, what only its loops hand to one another never leaves it, and inputs
and outputs are brought into the order of axes that loops want, and out of it, by the executable itself.

Slots that are written anew before anything reads them neither go in nor out (`PassThrough`): such a backend pays for
each array that goes in and out of a call, and a loop of the host makes a call at every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from tempo import dtypes
from tempo.loop_ir.analysis.layouts import read_by_iteration, read_in_parts
from tempo.loop_ir.analysis.liveness import Liveness
from tempo.loop_ir.analysis.whole_points import replaced
from tempo.loop_ir.ir import (
    Block,
    Buffer,
    CallSegment,
    Compute,
    LoopProgram,
    Read,
    Segment,
    WindowIndex,
    Write,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import with_segments
from tempo.sdg.graph import Port, TensorType
from tempo.symbolic import Expr, const


@dataclass(frozen=True)
class FuseSegments:
    """The program as one segment; itself where the host has a part in it: also that of leaving out what comes after
    an early end. And where a loop of a few iterations reads a large part of an input in each, as layers do: iterations
    may then be called one by one, with parts that lie where they were given.
    """

    name: ClassVar[str] = "fuse_segments"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        if not (context.fuses_segments and context.whole) or not _is_without_host(program):
            return program
        if any(_reads_large_parts(program, segment, context) for segment in program.called(program.items)):
            return program
        inside, outside = program.buffers, _outside(program)
        given, made = ([id for id in ids.values() if id in outside] for ids in (program.inputs, program.outputs))
        entering = (each for id in given for each in _moved(outside[id], inside[id], inside[id].from_user))
        leaving = (each for id in made for each in _moved(inside[id], outside[id], inside[id].to_user))
        bodies = (segment.body for segment in program.called(program.items))
        body = (*entering, *chain.from_iterable(bodies), *leaving)
        buffers = {**inside, **{each.id: each for each in outside.values()}}
        buffers.update({id: replace(buffers[id], role="internal", layout=()) for id in outside})
        segment = Segment.of(0, body)
        kept = tuple(id for id in segment.results if buffers[id].role != "internal")
        return replace(
            program,
            items=(CallSegment(0),),
            segments=(replace(segment, results=kept),),
            buffers=buffers,
            inputs=_renamed(program.inputs, outside),
            outputs=_renamed(program.outputs, outside),
            stopped=(None,),
        )


def _is_without_host(program: LoopProgram) -> bool:
    is_called = all(isinstance(item, CallSegment) for item in program.items)
    return bool(program.items) and is_called and not any(slot is not None for slot in program.stopped)


_FEW = 64
"""Iterations."""
_LARGE = 1 << 16
"""Bytes."""


def _reads_large_parts(program: LoopProgram, segment: Segment, context: LoopContext) -> bool:
    loop = segment.loop
    if loop is None or not (loop.lo.symbols() | loop.hi.symbols()) <= context.sizes.keys():
        return False
    if not 1 < int((loop.hi - loop.lo).evaluate(context.sizes)) <= _FEW:
        return False
    read = (program.buffers[id] for id in read_by_iteration(program, loop))
    parts = ((each, each.extents(context.sizes)[1:]) for each in read if each.is_as_given)
    return any(math.prod(shape) * dtypes.itemsize(each.dtype) >= _LARGE for each, shape in parts)


def _outside(program: LoopProgram) -> dict[int, Buffer]:
    """The user's arrays whose axes have another order than those of their buffers, by the number of the buffer; but
    for those that segments read as they lie."""
    inputs = set(program.inputs.values()) - read_in_parts(program)
    given = [program.buffers[id] for id in (*sorted(inputs), *program.outputs.values())]
    turned = (each for each in given if each.from_user != tuple(range(len(each.from_user))))
    return {
        each.id: Buffer(number, each.name, each.dtype, (), _permuted(each.logical_shape, each.to_user), each.role)
        for number, each in enumerate(turned, len(program.buffers))
    }


def _moved(source: Buffer, target: Buffer, axes: tuple[int, ...]) -> Block:
    """Brings all of a buffer to another one, with its axes in the order of that."""
    whole = tuple(WindowIndex(const(0), axis.extent, exact=True) for axis in source.axes)
    read, moved = f"given_{source.id}", f"moved_{target.id}"
    types = [TensorType(shape, source.dtype) for shape in (source.logical_shape, _permuted(source.logical_shape, axes))]
    compute = Compute(moved, "transpose", {"axes": axes}, (read,), (types[0],), types[1])
    return Read(read, source.id, whole), compute, Write(target.id, (), moved)


def _permuted(shape: tuple[Expr, ...], axes: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(shape[axis] for axis in axes)


def _renamed(ids: Mapping[Port, int], outside: Mapping[int, Buffer]) -> dict[Port, int]:
    return {port: outside[id].id if id in outside else id for port, id in ids.items()}


_SMALL = 1 << 16
"""Bytes. What is written to a larger slot is better written to where the last value was, so that goes in."""


@dataclass(frozen=True)
class PassThrough:
    """The program whose segments return no more than something may read, and are given no more than they read. The
    latter where segments make the buffers that they are given None for."""

    name: ClassVar[str] = "pass_through"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        remembered = replaced(program)
        return with_segments(program, lambda each: _less(each, program, context, remembered))


def _less(segment: Segment, program: LoopProgram, context: LoopContext, remembered: frozenset[int]) -> Segment:
    live = Liveness(program, segment, [segment.body])
    slots = {id for id in segment.buffers if program.buffers[id].is_slot}
    scratch = {id for id in slots.intersection(segment.results) if id not in live.at_end}
    results = tuple(id for id in segment.results if id not in scratch)
    if not context.allocates_inside:
        return replace(segment, results=results)
    made = (program.buffers[id] for id in slots.intersection(results) if id not in live.at_start)
    anew = {each.id for each in made if each.role == "internal" and (each.id in remembered or _is_small(each, context))}
    return replace(segment, results=results, unread=frozenset(scratch if segment.loop else scratch | anew))


def _is_small(buffer: Buffer, context: LoopContext) -> bool:
    return math.prod(buffer.extents(context.sizes)) * dtypes.itemsize(buffer.dtype) <= _SMALL
