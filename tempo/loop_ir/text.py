"""LoopIR as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tempo.loop_ir.ir import (
    Assign,
    Branch,
    CallHost,
    CallSegment,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Statement,
    Stop,
    WindowIndex,
    Write,
)


def render(program: LoopProgram) -> str:
    """Buffers, segments, and the items of the driver."""
    lines = [
        f"{buffer.label} {buffer.name}: {buffer.dtype}[{_listed(buffer.logical_shape)}] {buffer.role} {buffer.storage}"
        for buffer in program.buffers.values()
    ]
    for segment in program.segments:
        buffers = ", ".join(program.buffers[id].label for id in segment.buffers)
        lines.append(f"segment {segment.name}({_listed(segment.arguments)}; {buffers}):")
        lines.extend(_block(segment.body, 1, program))
    lines.append("driver:")
    lines.extend(_block(program.items, 1, program))
    return "\n".join(lines)


def _block(statements: Iterable[Statement], depth: int, program: LoopProgram) -> Iterator[str]:
    for statement in statements:
        yield from _statement(statement, depth, program)


def _statement(statement: Statement, depth: int, program: LoopProgram) -> Iterator[str]:
    indent = "  " * depth
    match statement:
        case Read(result, buffer, index, fresh):
            where = ", ".join(_entry(entry) for entry in index)
            yield f"{indent}{result} = read b{buffer}[{where}]{' fresh' if fresh else ''}"
        case Write(buffer, index, value, extents):
            pairs = zip(index, extents, strict=True)
            places = (str(at) if extent is None else f"{at} +{extent}" for at, extent in pairs)
            yield f"{indent}write b{buffer}[{', '.join(places)}] = {value}"
        case Compute(result, op, _, operands, scalars=scalars):
            yield f"{indent}{result} = {op}({_listed((*operands, *scalars))})"
        case Assign(result, value):
            yield f"{indent}{result} = {value}"
        case Branch(condition, then, otherwise):
            yield f"{indent}if {condition}:"
            yield from _block(then, depth + 1, program)
            if otherwise:
                yield f"{indent}else:"
                yield from _block(otherwise, depth + 1, program)
        case Guard(table, point, body):
            yield f"{indent}if table_{table}[{_listed(point)}]:"
            yield from _block(body, depth + 1, program)
        case Loop(var, lo, hi, direction, body, strip):
            span = f"{lo}..{hi}" if direction == "forward" else f"{hi}..{lo} backwards"
            yield f"{indent}for {var.name} in {span}{f', calls of {strip} ahead' if strip > 1 else ''}:"
            yield from _block(body, depth + 1, program)
        case Stop(buffer):
            yield f"{indent}stop if b{buffer} != 0"
        case CallHost(call, point, reads, _, writes):
            yield from (line for read in reads for line in _statement(read, depth, program))
            yield f"{indent}call {program.hosts[call].name or 'host'}({_listed(point)})"
            yield from (line for write in writes for line in _statement(write, depth, program))
        case CallSegment(segment):
            yield f"{indent}{program.segments[segment].name}()"


def _entry(entry: PointIndex | WindowIndex) -> str:
    if isinstance(entry, PointIndex):
        return str(entry.index)
    return f"{entry.start} +{entry.extent}{'' if entry.exact else ' clamped'}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
