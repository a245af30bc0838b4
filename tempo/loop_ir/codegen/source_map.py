"""Source maps: which of the user's tensors, made at which line, each line of generated source is of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tempo.errors import Location
from tempo.loop_ir.ir import CallHost, Compute, LoopProgram, Segment, Statement, Write
from tempo.loop_ir.text import segment_lines


@dataclass(frozen=True)
class Origin:
    """What a line does, an operator's name, "write" or "call"; of which tensor; and the line that made that one."""

    op: str
    name: str
    location: Location | None

    def __str__(self) -> str:
        where = "" if self.location is None else f"  {self.location.path}:{self.location.line}"
        return f"{self.op} {self.name}{where}"


SourceMap = Mapping[int, Origin]
"""By the number of a line, from 1 on."""


def origin_of(statement: Statement, program: LoopProgram) -> Origin | None:
    """None for what orders others, and for what only looks something up."""
    match statement:
        case Compute():
            return Origin(statement.op, statement.name or statement.result, statement.location)
        case Write():
            buffer = program.buffers[statement.buffer]
            return Origin("write", buffer.name, buffer.location)
        case CallHost():
            node = program.hosts[statement.call]
            return Origin("call", node.name or node.op, node.location)
    return None


def mark(trees: Iterable[ast.stmt], statements: Sequence[Statement], program: LoopProgram) -> None:
    """Notes what the source of some statements is of, of the last one that says so; what is noted stays."""
    found = [origin for each in statements if (origin := origin_of(each, program))]
    for tree in trees if found else ():
        vars(tree).setdefault("origin", found[-1])


def source_map(made: ast.FunctionDef, text: str) -> SourceMap:
    """Of what was emitted, and of the text that it has become."""
    pairs = _pairs([made], ast.parse(text).body, None)
    return {line: origin for tree, origin in pairs if origin for line in _lines(tree)}


Listing = tuple[str, SourceMap]
"""A text, and what its lines are of."""


def text_of(program: LoopProgram, segment: Segment) -> Listing:
    """The statements of a segment, which is what there is to read where a backend compiles them as they are."""
    lines = segment_lines(segment)
    found = ((line, each and origin_of(each, program)) for line, (_, each) in enumerate(lines, start=1))
    return "\n".join(text for text, _ in lines), {line: origin for line, origin in found if origin}


def _pairs(
    made: Sequence[ast.AST], parsed: Sequence[ast.AST], outer: Origin | None
) -> Iterator[tuple[ast.AST, Origin | None]]:
    """The statements of the text, each with what it is of: a text has the statements that it was made of."""
    for tree, found in zip(made, parsed, strict=True):
        origin = vars(tree).get("origin", outer)
        yield found, origin
        for inner in ("body", "orelse"):
            yield from _pairs(getattr(tree, inner, ()), getattr(found, inner, ()), origin)


def _lines(tree: ast.AST) -> range:
    """Those of a statement; of one that holds others those before them."""
    first, last = getattr(tree, "lineno", 1), getattr(tree, "end_lineno", 0)
    inner = getattr(tree, "body", None)
    return range(first, inner[0].lineno if inner else last + 1)
