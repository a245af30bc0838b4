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

An axis is `dim@position: kind extent`; `placed (data/4, -)` says how axes lie on a mesh. An index has one entry per
axis: a point, or `start +: extent`, with `of length` where only so many positions mean anything, and `clamped` where
positions may lie outside of the dim. Run-time scalars of an operator stand in backticks behind its operands; types,
attributes and placeholders are those of `tempo.sdg.text`. A choice between two sides that mean the same is `choose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, get_args

from tempo.caches import digest
from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Evict,
    Fetch,
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
    nested,
)
from tempo.placement.mesh import Shards
from tempo.sdg.grammar import (
    CONDITION,
    EXPR,
    NUMBER,
    STRING,
    SYMBOL,
    WORD,
    Syntax,
    choice,
    either,
    flag,
    many,
    optional,
    plain,
    record,
    row,
)
from tempo.sdg.graph import Port, Role, TensorType
from tempo.sdg.text import DIM, NODE, TYPE, VALUE, PlaceholderNames, arrays_told

# -- statements ----------------------------------------------------------------------------------------------------


def _shards(text: str) -> Shards | None:
    over, _, count = text.rpartition("/")
    return Shards(over, int(count)) if over else None


_PLACEMENT = many(plain(lambda cut: "-" if cut is None else f"{cut.over}/{cut.count}", _shards))


def _id(label: str) -> int:
    return int(label.removeprefix("b"))


_LABEL = plain("b{}".format, _id, r"b\d+")
_LABELS = many(_LABEL)
_EXPRS = many(EXPR)
_WINDOW = record(
    WindowIndex,
    "{start} +: {extent}{length}{exact}",
    start=EXPR,
    extent=EXPR,
    length=optional(" of {}", EXPR),
    exact=choice({"": True, " clamped": False}),
)
_READ = record(
    Read,
    "{result} = read {buffer}{index}{fresh}",
    result=WORD,
    buffer=_LABEL,
    index=optional(
        "[{}]", many(either({WindowIndex: _WINDOW, PointIndex: record(PointIndex, "{index}", index=EXPR)})), ()
    ),
    fresh=flag(" fresh"),
)


def _write(places: tuple[tuple[Any, Any], ...], **parts: Any) -> Write:
    return Write(index=tuple(start for start, _ in places), extents=tuple(extent for _, extent in places), **parts)


def _parts_of_write(write: Write) -> dict[str, Any]:
    return {**vars(write), "places": zip(write.index, write.extents, strict=True)}


def _compute(given: tuple[Any, ...], **parts: Any) -> Compute:
    """Of what it is given pairs are operands with their types, others scalars."""
    operands = [each for each in given if isinstance(each, tuple)]
    names, types = (tuple(pair[at] for pair in operands) for at in (0, 1))
    scalars = tuple(each for each in given if not isinstance(each, tuple))
    return Compute(operands=names, operand_types=types, scalars=scalars, **parts)


def _parts_of_compute(compute: Compute) -> dict[str, Any]:
    return {**vars(compute), "given": (*zip(compute.operands, compute.operand_types), *compute.scalars)}


def _loop(first: Any, last: Any, direction: Any, **parts: Any) -> Loop:
    lo, hi = (first, last) if direction == "forward" else (last, first)
    return Loop(lo=lo, hi=hi, direction=direction, body=(), **parts)


def _parts_of_loop(loop: Loop) -> dict[str, Any]:
    first, last = (loop.lo, loop.hi) if loop.direction == "forward" else (loop.hi, loop.lo)
    return {**vars(loop), "first": first, "last": last}


_OPERAND = row("{}: {}", WORD, TYPE)
STATEMENT = either(
    {
        Stop: record(Stop, "stop if {buffer} != 0", buffer=_LABEL),
        CallSegment: record(CallSegment, "run segment_{segment}", segment=NUMBER),
        Fetch: record(
            Fetch,
            "fetch {buffer} {start}..{stop} from {base}{ahead}",
            buffer=_LABEL,
            start=EXPR,
            stop=EXPR,
            base=EXPR,
            ahead=optional(" ahead {}", row("{}..{}", EXPR, EXPR)),
        ),
        Evict: record(
            Evict, "evict {buffer} {start}..{stop} from {base}", buffer=_LABEL, start=EXPR, stop=EXPR, base=EXPR
        ),
        Write: record(
            _write,
            "write {buffer}[{places}] = {value}",
            _parts_of_write,
            buffer=_LABEL,
            places=many(row("{}{}", EXPR, optional(" +: {}", EXPR))),
            value=WORD,
        ),
        Read: _READ,
        Compute: record(
            _compute,
            "{result}: {type} = {op}({given}){attrs}{point}{placement}{name}",
            _parts_of_compute,
            result=WORD,
            type=TYPE,
            op=WORD,
            given=many(either({tuple: _OPERAND, object: VALUE})),
            attrs=optional(" {{{}}}", many(row("{}: {}", WORD, VALUE), dict, dict.items), {}),
            point=optional(" at ({})", many(row("{}: {}", SYMBOL, EXPR)), ()),
            placement=optional(" placed ({})", _PLACEMENT),
            name=optional(" {}", STRING, ""),
        ),
        Assign: record(Assign, "{result} = {value}", result=WORD, value=WORD),
        Guard: record(partial(Guard, body=()), "if table_{table}[{point}]:", table=NUMBER, point=_EXPRS),
        Loop: record(
            _loop,
            "for {var} in {first}..{last}{direction}{strip}:",
            _parts_of_loop,
            var=SYMBOL,
            first=EXPR,
            last=EXPR,
            direction=choice({"": "forward", " backwards": "backward"}),
            strip=optional(", calls of {} ahead", NUMBER, 1),
        ),
        CallHost: record(
            partial(CallHost, reads=(), writes=()),
            "call {call}({point}){trims}:",
            call=NUMBER,
            point=_EXPRS,
            trims=optional(" trims {}", VALUE, ()),
        ),
        Branch: record(
            partial(Branch, then=()),
            "{is_choice} {condition}:",
            is_choice=choice({"if": False, "choose": True}),
            condition=CONDITION,
        ),
    }
)
"""The first line of each; what it holds stands deeper, and that of a branch on two sides of `else:`."""


def _parts_of_segment(segment: Segment) -> dict[str, Any]:
    """What it is given and which tables it looks at follow from the body."""
    given = f"{', '.join(map(str, segment.arguments))}; {_LABELS.write(segment.buffers, None)}"
    return {**vars(segment), "given": given, "tables": segment.tables, "unread": sorted(segment.unread)}


def _segment(unread: Iterable[int], given: str, tables: tuple[int, ...], **parts: Any) -> Segment:
    del given, tables
    return Segment(body=(), unread=frozenset(unread), **parts)


SEGMENT = record(
    _segment,
    "segment segment_{id}({given}) -> ({results}){tables}{unread}{is_loop}:",
    _parts_of_segment,
    id=NUMBER,
    given=plain(str, str),
    results=_LABELS,
    tables=optional(" tables ({})", many(NUMBER), ()),
    unread=optional(" unread ({})", _LABELS, []),
    is_loop=flag(" loop"),
)

# -- what stands beside statements ---------------------------------------------------------------------------------


def _buffer(type: TensorType, local: Iterable[Any], id: int = -1, **parts: Any) -> Buffer:
    return Buffer(id=id, dtype=type.dtype, shape=type.shape, local=frozenset(local), **parts)


def _parts_of_buffer(buffer: Buffer) -> dict[str, Any]:
    return {**vars(buffer), "type": TensorType(buffer.shape, buffer.dtype), "local": sorted(buffer.local)}


def _buffers(head: str) -> Syntax:
    axis = record(Axis, "{dim}@{position}: {kind} {extent}", dim=SYMBOL, position=NUMBER, kind=WORD, extent=EXPR)
    return record(
        _buffer,
        head + " {name}: {type} {role}{axes}{layout}{local}{zeroed}{pooled}{donated}{placement}{is_part}",
        _parts_of_buffer,
        id=_LABEL,
        name=STRING,
        type=TYPE,
        role=WORD,
        axes=optional(" over ({})", many(axis), ()),
        layout=optional(" as {}", VALUE, ()),
        local=optional(" local ({})", many(SYMBOL), []),
        zeroed=flag(" zeroed"),
        pooled=optional(" pooled {}", row("{} of {}", NUMBER, NUMBER)),
        donated=flag(" donated"),
        placement=optional(" placed ({})", _PLACEMENT, ()),
        is_part=flag(" part"),
    )


def _port(given: str) -> Syntax:
    """`given` is whether it is taken or handed out; its role follows where that is not the same."""
    roles = {"" if role == given else f"{role} ": role for role in get_args(Role)}
    return record(Port, f"{given} {{role}}{{name}}", Port._asdict, role=choice(roles), name=STRING)


_STATE = record(
    LastValue,
    "{read} shape [{shape}] axes ({axes}) over ({dims}) where {made}",
    read=_READ,
    shape=_EXPRS,
    axes=many(NUMBER),
    dims=many(DIM),
    made=CONDITION,
)
_OFFSETS = many(row("{} {}", _LABEL, row("{}..{}", NUMBER, NUMBER)), dict, dict.items)
_SLOT = either({int: _LABEL, NoneType: choice({"-": None})})


@dataclass(frozen=True)
class Section:
    """A field of a program: how each of its entries is written, of which `gathered` makes it."""

    name: str
    line: Syntax
    entries: Callable[[Any], Iterable[Any]] = dict.items
    gathered: Callable[[list[Any]], Any] = dict


def _by_number(buffers: Iterable[Buffer]) -> dict[int, Buffer]:
    return {buffer.id: buffer for buffer in buffers}


def _behind_numbers(pairs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    return tuple(each for _, each in pairs)


def _stops(stopped: tuple[int | None, ...]) -> Iterator[tuple[Any]]:
    if any(slot is not None for slot in stopped):
        yield (stopped,)


def _stopped(lines: list[tuple[Any]]) -> tuple[int | None, ...]:
    return lines[0][0] if lines else ()


SECTIONS = {
    "buffer": Section("buffers", _buffers("buffer {id}"), dict.values, _by_number),
    "register": Section("registers", _buffers("register"), iter, tuple),
    "constant": Section("constants", row("constant {} = {}", _LABEL, VALUE)),
    "input": Section("inputs", row("{} = {}", _port("input"), _LABEL)),
    "output": Section("outputs", row("{} = {}", _port("output"), _LABEL)),
    "state": Section("states", row("{} = {}", _port("state"), _STATE)),
    "host": Section("hosts", row("host {} = {}", NUMBER, NODE), enumerate, _behind_numbers),
    "table": Section("tables", row("table {} = %{}", NUMBER, NUMBER)),
    "offsets": Section("offsets", row("offsets {} ({})", NUMBER, _OFFSETS)),
    "stopped": Section("stopped", row("stopped ({})", many(_SLOT)), _stops, _stopped),
}
"""By the word that their lines begin with."""

# -- programs ------------------------------------------------------------------------------------------------------


def render(program: LoopProgram) -> str:
    """Buffers, what is given and taken, segments, and the items of the driver; ends in a newline."""
    return _written(program, PlaceholderNames())


def placeholders(program: LoopProgram) -> Mapping[str, Any]:
    """What the placeholders in `str(program)` stand for: `parse(str(program), placeholders(program)) == program`."""
    names = PlaceholderNames()
    _written(program, names)
    return names.values


def identity(program: LoopProgram) -> str | None:
    """Its text, and what tells its placeholders from others; None where it has functions in it."""
    names = PlaceholderNames()
    text, arrays = _written(program, names), arrays_told(names.values)
    return None if arrays is None else digest(arrays, text)


def statement_text(statement: Statement) -> str:
    """The first line of a statement as it stands in the text of its program, but for the numbers of placeholders."""
    return STATEMENT.write(statement, PlaceholderNames())


StatementLine = tuple[str, Statement | None]
"""And the statement that begins there."""

Line = tuple[str, Statement | Buffer | None]
"""Likewise, or the buffer that it declares."""


def program_lines(program: LoopProgram) -> list[Line]:
    """All of a program as it stands in its text."""
    return list(_lines(program, PlaceholderNames()))


def _written(program: LoopProgram, names: PlaceholderNames) -> str:
    return "\n".join(line for line, _ in _lines(program, names)) + "\n"


def _lines(program: LoopProgram, names: PlaceholderNames) -> Iterator[Line]:
    for section in SECTIONS.values():
        for entry in section.entries(getattr(program, section.name)):
            yield section.line.write(entry, names), entry if isinstance(entry, Buffer) else None
    for segment in program.segments:
        yield from _segment_lines(segment, names)
    yield "driver:", None
    yield from _block(program.items, "  ", names)


def segment_lines(segment: Segment) -> list[StatementLine]:
    """A segment as it stands in the text of its program, but for the numbers of placeholders."""
    return list(_segment_lines(segment, PlaceholderNames()))


def driver_lines(program: LoopProgram) -> list[StatementLine]:
    """The same of what runs the segments."""
    return [("driver:", None), *_block(program.items, "  ", PlaceholderNames())]


def _segment_lines(segment: Segment, names: PlaceholderNames) -> Iterator[StatementLine]:
    yield SEGMENT.write(segment, names), None
    yield from _block(segment.body, "  ", names)


def _block(statements: Iterable[Statement], indent: str, names: PlaceholderNames) -> Iterator[StatementLine]:
    for statement in statements:
        yield indent + STATEMENT.write(statement, names), statement
        for number, block in enumerate(nested(statement)):
            if number and block and isinstance(statement, Branch):
                yield f"{indent}else:", None
            yield from _block(block, indent + "  ", names)
