"""LoopIR as text: stable, readable, and read back by `tempo.loop_ir.parse`.

    buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
    buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
    input "x" = b0
    output "h" = b1
    segment segment_0(t.size; b0, b1) -> (b1) loop:
      for t in 0..t.size:
        v1 = read b0[t]
        v2: float32[3] = neg(v1: float32[3]) "h"
        write b1[t] = v2
    driver:
      run segment_0

An axis is `dim@position: kind extent`. An index has one entry per axis: a point, or `start +: extent`, with `of length`
where only so many positions mean anything, and `clamped` where positions may lie outside of the dim. Run-time scalars
of an operator stand in backticks behind its operands; types, attributes and placeholders are those of `tempo.sdg.text`.
A choice between two sides that mean the same is `choose`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tempo.loop_ir.ir import (
    Assign,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Guard,
    LastValue,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Stop,
    WindowIndex,
    Write,
)
from tempo.sdg.graph import Port, TensorType
from tempo.sdg.text import PlaceholderNames, node_text, type_text, value_text


def render(program: LoopProgram) -> str:
    """Buffers, what is given and taken, segments, and the items of the driver; ends in a newline."""
    return _ProgramWriter().program(program)


def placeholders(program: LoopProgram) -> Mapping[str, Any]:
    """What the placeholders in `str(program)` stand for: `parse(str(program), placeholders(program)) == program`."""
    writer = _ProgramWriter()
    writer.program(program)
    return writer.names.values


def statement_text(statement: Statement) -> str:
    """The first line of a statement as it stands in the text of its program, but for the numbers of placeholders."""
    return next(_ProgramWriter().statement(statement, 0))


class _ProgramWriter:
    def __init__(self) -> None:
        self.names = PlaceholderNames()

    def program(self, program: LoopProgram) -> str:
        return "\n".join([*self.header(program), *self.bodies(program)]) + "\n"

    def header(self, program: LoopProgram) -> Iterator[str]:
        yield from (f"buffer {buffer.label} {_buffer(buffer)}" for buffer in program.buffers.values())
        yield from (f"register {_buffer(buffer)}" for buffer in program.registers)
        yield from (f"constant b{id} = {value_text(value, self.names)}" for id, value in program.constants.items())
        yield from (f"{_port('input', port)} = b{id}" for port, id in program.inputs.items())
        yield from (f"{_port('output', port)} = b{id}" for port, id in program.outputs.items())
        yield from (f"{_port('state', port)} = {_state(state)}" for port, state in program.states.items())
        yield from (f"host {number} = {node_text(node, self.names)}" for number, node in enumerate(program.hosts))
        yield from (f"table {table} = %{node}" for table, node in program.tables.items())
        for item, offsets in program.offsets.items():
            yield f"offsets {item} ({_listed(f'b{id} {lo}..{hi}' for id, (lo, hi) in offsets.items())})"
        if any(slot is not None for slot in program.stopped):
            yield f"stopped ({_listed('-' if slot is None else f'b{slot}' for slot in program.stopped)})"

    def bodies(self, program: LoopProgram) -> Iterator[str]:
        for segment in program.segments:
            yield _segment(segment)
            yield from self.block(segment.body, 1)
        yield "driver:"
        yield from self.block(program.items, 1)

    def block(self, statements: Iterable[Statement], depth: int) -> Iterator[str]:
        for statement in statements:
            yield from self.statement(statement, depth)

    def statement(self, statement: Statement, depth: int) -> Iterator[str]:
        indent = "  " * depth
        match statement:
            case Read():
                yield f"{indent}{statement.result} = {_read(statement)}"
            case Write(buffer, index, value, extents):
                pairs = zip(index, extents, strict=True)
                places = (str(at) if extent is None else f"{at} +: {extent}" for at, extent in pairs)
                yield f"{indent}write b{buffer}[{_listed(places)}] = {value}"
            case Compute():
                yield f"{indent}{self.compute(statement)}"
            case Assign(result, value):
                yield f"{indent}{result} = {value}"
            case Branch(condition, then, otherwise, is_choice):
                yield f"{indent}{'choose' if is_choice else 'if'} {condition}:"
                yield from self.block(then, depth + 1)
                if otherwise:
                    yield f"{indent}else:"
                    yield from self.block(otherwise, depth + 1)
            case Guard(table, point, body):
                yield f"{indent}if table_{table}[{_listed(point)}]:"
                yield from self.block(body, depth + 1)
            case Loop(var, lo, hi, direction, body, strip):
                span = f"{lo}..{hi}" if direction == "forward" else f"{hi}..{lo} backwards"
                yield f"{indent}for {var} in {span}{f', calls of {strip} ahead' if strip > 1 else ''}:"
                yield from self.block(body, depth + 1)
            case Stop(buffer):
                yield f"{indent}stop if b{buffer} != 0"
            case CallHost(call, point, reads, trims, writes):
                shown = f" trims {value_text(trims, self.names)}" if trims else ""
                yield f"{indent}call {call}({_listed(point)}){shown}:"
                yield from self.block((*reads, *writes), depth + 1)
            case CallSegment(segment):
                yield f"{indent}run segment_{segment}"

    def compute(self, compute: Compute) -> str:
        given = [f"{name}: {type_text(type)}" for name, type in zip(compute.operands, compute.operand_types)]
        given += [value_text(scalar, self.names) for scalar in compute.scalars]
        attrs = _listed(f"{key}: {value_text(value, self.names)}" for key, value in compute.attrs.items())
        at = _listed(f"{symbol}: {index}" for symbol, index in compute.point)
        tail = [f" {{{attrs}}}" if attrs else "", f" at ({at})" if at else ""]
        tail += [f" {json.dumps(compute.name)}" if compute.name else ""]
        return f"{compute.result}: {type_text(compute.type)} = {compute.op}({_listed(given)}){''.join(tail)}"


def _buffer(buffer: Buffer) -> str:
    axes = _listed(f"{axis.dim}@{axis.position}: {axis.kind} {axis.extent}" for axis in buffer.axes)
    parts = [f"{json.dumps(buffer.name)}: {type_text(TensorType(buffer.shape, buffer.dtype))} {buffer.role}"]
    parts += [f"over ({axes})"] if axes else []
    parts += [f"as {value_text(buffer.layout, PlaceholderNames())}"] if buffer.layout else []
    parts += [f"local ({_listed(sorted(buffer.local))})"] if buffer.local else []
    return " ".join([*parts, *(["zeroed"] if buffer.zeroed else [])])


def _read(read: Read) -> str:
    where = f"[{_listed(map(_entry, read.index))}]" if read.index else ""
    return f"read b{read.buffer}{where}{' fresh' if read.fresh else ''}"


def _entry(entry: PointIndex | WindowIndex) -> str:
    if isinstance(entry, PointIndex):
        return str(entry.index)
    length = "" if entry.length is None else f" of {entry.length}"
    return f"{entry.start} +: {entry.extent}{length}{'' if entry.exact else ' clamped'}"


def _port(given: str, port: Port) -> str:
    """`given` is whether it is taken or handed out; its role follows where that is not the same."""
    return f"{given} {'' if port.role == given else f'{port.role} '}{json.dumps(port.name)}"


def _state(state: LastValue) -> str:
    over = _listed(f"{dim.symbol}: {dim.size}" for dim in state.dims)
    shown = f"shape [{_listed(state.shape)}] axes ({_listed(state.axes)}) over ({over})"
    return f"{state.read.result} = {_read(state.read)} {shown} where {state.made}"


def _segment(segment: Segment) -> str:
    parts = [
        f"segment {segment.name}({_listed(segment.arguments)}; {_ids(segment.buffers)}) -> ({_ids(segment.results)})"
    ]
    parts += [f"tables ({_listed(segment.tables)})"] if segment.tables else []
    parts += [f"unread ({_ids(sorted(segment.unread))})"] if segment.unread else []
    return " ".join([*parts, *(["loop"] if segment.loop else [])]) + ":"


def _ids(buffers: Iterable[int]) -> str:
    return _listed(f"b{id}" for id in buffers)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
