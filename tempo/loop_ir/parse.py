"""Reads back what `str(program)` writes (`tempo.loop_ir.text` says how): passes are tested text in, text out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Block,
    Branch,
    Buffer,
    BufferIndex,
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
from tempo.sdg.graph import Node, Port
from tempo.sdg.parse import (
    bracketed,
    match,
    parse_node,
    parse_role,
    parse_symbol,
    parse_type,
    parse_value,
    reading,
    split,
)
from tempo.symbolic import Dim, Expr, parse_condition, parse_expr

Lines = list[tuple[int, str]]
"""Texts with how deep each stands."""

_NAME = r'"(?:[^"\\]|\\.)*"'
_PORT = re.compile(rf"(?:(\w+) )?({_NAME})")
_BUFFER = re.compile(rf"({_NAME}): (\w+\[.*?\]) (internal|input|constant|output)\b(.*)")
_READ = re.compile(r"read b(\d+)(.*)", re.DOTALL)
_SEGMENT = re.compile(r"segment segment_(\d+)\(.*?; .*?\) -> \((.*?)\)(.*):")
_STATE = re.compile(r"(read .*) shape \[(.*)\] axes \((.*)\) over \((.*)\) where (.*)")
_LOOP = re.compile(r"for (\S+) in (.*?)\.\.(.*?)( backwards)?(?:, calls of (\d+) ahead)?:")


def parse(text: str, values: Mapping[str, Any] | None = None) -> LoopProgram:
    """The program that prints as `text`; `values` gives what placeholders stand for.

    Blank lines and lines that start with `#` are passed over. Raises ParseError with the line.
    `parse(str(program), placeholders(program)) == program`.
    """
    reader = _ProgramReader(values or {})
    lines = [(len(line) - len(line.lstrip(" ")), line.strip()) for line in text.splitlines() if line.strip()]
    lines = [(depth, line) for depth, line in lines if not line.startswith("#")]
    lines.reverse()  # the next is the last
    while lines:
        depth, line = lines.pop()
        with reading(line):
            reader.top(line, lines, depth)
    return reader.program()


@dataclass
class _ProgramReader:
    values: Mapping[str, Any]
    buffers: dict[int, Buffer] = field(default_factory=dict)
    registers: list[Buffer] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    inputs: dict[Port, int] = field(default_factory=dict)
    outputs: dict[Port, int] = field(default_factory=dict)
    states: dict[Port, LastValue] = field(default_factory=dict)
    hosts: list[Node] = field(default_factory=list)
    tables: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    stopped: tuple[int | None, ...] = ()
    segments: list[Segment] = field(default_factory=list)
    items: Block = ()

    def program(self) -> LoopProgram:
        return LoopProgram(
            self.items,
            tuple(self.segments),
            self.buffers,
            tuple(self.hosts),
            self.constants,
            self.inputs,
            self.outputs,
            self.tables,
            tuple(self.registers),
            self.stopped or (None,) * len(self.items),
            self.states,
            self.offsets,
        )

    # -- the top ---------------------------------------------------------------------------------------------------

    def top(self, line: str, lines: Lines, depth: int) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "buffer":
                label, _, described = rest.partition(" ")
                self.buffers[_id(label)] = _buffer(_id(label), described)
            case "register":
                self.registers.append(_buffer(-1, rest))
            case "constant":
                label, value = split(rest, " = ")
                self.constants[_id(label)] = parse_value(value, self.values)
            case "input" | "output":
                port, label = split(rest, " = ")
                (self.inputs if word == "input" else self.outputs)[_port(word, port)] = _id(label)
            case "state":
                name, result, value = split(rest, " = ")
                self.states[_port(word, name)] = _state(result, value)
            case "host":
                self.hosts.append(parse_node(rest.partition(" = ")[2], self.values))
            case "segment":
                self.segments.append(self.segment(line, lines, depth))
            case "driver:":
                self.items = self.block(lines, depth)
            case _:
                self.note(word, rest)

    def note(self, word: str, rest: str) -> None:
        """What stands beside buffers and statements."""
        match word:
            case "table":
                table, node = rest.split(" = %")
                self.tables[int(table)] = int(node)
            case "offsets":
                item, pairs = rest.split(" ", 1)
                found = (re.fullmatch(r"b(\d+) (-?\d+)\.\.(-?\d+)", pair) for pair in split(pairs[1:-1]))
                self.offsets[int(item)] = {int(each[1]): (int(each[2]), int(each[3])) for each in found if each}
            case "stopped":
                self.stopped = tuple(None if slot == "-" else _id(slot) for slot in split(rest[1:-1]))
            case _:
                raise ValueError(f"{word!r} begins nothing")

    def segment(self, line: str, lines: Lines, depth: int) -> Segment:
        number, results, rest = match(_SEGMENT, line).groups()  # what it is given follows from the body
        flags, body = _flags(rest), self.block(lines, depth)
        if "loop" in flags and not isinstance(body[0], Loop):
            raise ValueError("its body is no loop")
        return Segment(int(number), body, _ids(results), "loop" in flags, frozenset(_ids(flags.get("unread", ""))))

    # -- statements ------------------------------------------------------------------------------------------------

    def block(self, lines: Lines, depth: int) -> Block:
        """What stands deeper than `depth`."""
        found: list[Statement] = []
        while lines and lines[-1][0] > depth:
            inner, line = lines.pop()
            with reading(line):
                found.append(self.statement(line, lines, inner))
        return tuple(found)

    def statement(self, line: str, lines: Lines, depth: int) -> Statement:
        if line.endswith(":"):
            return self.compound(line, lines, depth)
        if found := re.fullmatch(r"stop if b(\d+) != 0", line):
            return Stop(int(found[1]))
        if found := re.fullmatch(r"run segment_(\d+)", line):
            return CallSegment(int(found[1]))
        if line.startswith("write "):
            place, value = split(line.removeprefix("write "), " = ")
            return _write(place, value)
        target, value = split(line, " = ")
        if value.startswith("read "):
            return replace(_read(value), result=target)
        return self.compute(target, value) if ":" in target else Assign(target, value)

    def compound(self, line: str, lines: Lines, depth: int) -> Statement:
        head, _, trims = line[:-1].partition(" trims ")
        if found := re.fullmatch(r"call (\d+)\((.*)\)", head):
            block, given = self.block(lines, depth), parse_value(trims, self.values) if trims else ()
            reads = tuple(each for each in block if isinstance(each, Read))
            writes = tuple(each for each in block if isinstance(each, Write))
            return CallHost(int(found[1]), _exprs(found[2]), reads, given, writes)
        if found := re.fullmatch(r"if table_(\d+)\[(.*)\]:", line):
            return Guard(int(found[1]), _exprs(found[2]), self.block(lines, depth))
        if line.startswith("for "):
            var, first, last, backwards, strip = match(_LOOP, line).groups()
            lo, hi = (last, first) if backwards else (first, last)
            direction: Any = "backward" if backwards else "forward"
            bounds = parse_expr(lo), parse_expr(hi)
            return Loop(parse_symbol(var), *bounds, direction, self.block(lines, depth), int(strip or 1))
        word, _, condition = line[:-1].partition(" ")
        if word not in ("if", "choose"):
            raise ValueError(f"{word!r} begins no statement")
        then = self.block(lines, depth)
        otherwise: Block = ()
        if lines and lines[-1] == (depth, "else:"):
            lines.pop()
            otherwise = self.block(lines, depth)
        return Branch(parse_condition(condition), then, otherwise, word == "choose")

    def compute(self, target: str, value: str) -> Compute:
        result, type = target.split(": ", 1)
        op, rest = match(re.compile(r"(\w+)(.*)", re.DOTALL), value).groups()
        given, rest = bracketed(rest)
        attrs, rest = bracketed(rest.strip()) if rest.startswith(" {") else ("", rest)
        at, rest = bracketed(rest.removeprefix(" at ")) if rest.startswith(" at (") else ("", rest)
        parts = split(given)
        operands = [part.split(": ", 1) for part in parts if part[0] not in "`?"]
        return Compute(
            result,
            op,
            dict(self.attribute(each) for each in split(attrs)),
            tuple(name for name, _ in operands),
            tuple(parse_type(each) for _, each in operands),
            parse_type(type),
            tuple(parse_value(part, self.values) for part in parts if part[0] in "`?"),
            tuple((parse_symbol(dim), parse_expr(index)) for dim, index in (each.split(": ") for each in split(at))),
            json.loads(rest) if rest.strip() else "",
        )

    def attribute(self, text: str) -> tuple[str, Any]:
        key, value = text.split(": ", 1)
        return key, parse_value(value, self.values)


def _buffer(id: int, text: str) -> Buffer:
    name, type, named, rest = match(_BUFFER, text).groups()
    role: Any = named
    described, flags = parse_type(type), _flags(rest)
    layout = tuple(parse_symbol(each) if each.startswith("$") else int(each) for each in split(flags.get("as", "")))
    return Buffer(
        id,
        json.loads(name),
        described.dtype,
        tuple(map(_axis, split(flags.get("over", "")))),
        described.shape,
        role,
        layout,
        frozenset(map(parse_symbol, split(flags.get("local", "")))),
        "zeroed" in flags,
    )


def _axis(text: str) -> Axis:
    dim, position, named, extent = match(re.compile(r"(\S+)@(\d+): (window|full) (.*)"), text).groups()
    kind: Any = named
    return Axis(parse_symbol(dim), int(position), kind, parse_expr(extent))


def _flags(text: str) -> dict[str, str]:
    """Words, with what stands in brackets behind them."""
    found: dict[str, str] = {}
    rest = text.strip()
    while rest:
        word, _, rest = rest.partition(" ")
        found[word], rest = bracketed(rest)
        rest = rest.strip()
    return found


def _port(given: str, text: str) -> Port:
    role, name = match(_PORT, text).groups()
    return Port(parse_role(role or given), json.loads(name))


def _state(result: str, text: str) -> LastValue:
    read, shape, axes, over, made = match(_STATE, text).groups()
    dims = (each.split(": ") for each in split(over))
    return LastValue(
        replace(_read(read), result=result),
        _exprs(shape),
        tuple(int(axis) for axis in split(axes)),
        tuple(Dim(parse_symbol(dim), parse_expr(size)) for dim, size in dims),
        parse_condition(made),
    )


def _read(text: str) -> Read:
    buffer, rest = match(_READ, text).groups()
    index, rest = bracketed(rest)
    return Read("", int(buffer), _index(index), rest.strip() == "fresh")


def _index(text: str) -> BufferIndex:
    return tuple(map(_entry, split(text)))


def _entry(text: str) -> PointIndex | WindowIndex:
    start, *extent = split(text, " +: ")
    if not extent:
        return PointIndex(parse_expr(start))
    exact = not extent[0].endswith(" clamped")
    count, *length = split(extent[0].removesuffix(" clamped"), " of ")
    return WindowIndex(parse_expr(start), parse_expr(count), exact, parse_expr(length[0]) if length else None)


def _write(place: str, value: str) -> Write:
    label, index = place.split("[", 1)
    entries = [split(entry, " +: ") for entry in split(index[:-1])]
    extents = tuple(parse_expr(entry[1]) if len(entry) > 1 else None for entry in entries)
    return Write(_id(label), tuple(parse_expr(entry[0]) for entry in entries), value, extents)


def _exprs(text: str) -> tuple[Expr, ...]:
    return tuple(map(parse_expr, split(text)))


def _id(label: str) -> int:
    return int(label.removeprefix("b"))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(_id, split(text)))
