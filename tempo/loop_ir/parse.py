"""Reads back what `str(program)` writes (`tempo.loop_ir.text` says how): passes are tested text in, text out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tempo.loop_ir.ir import Block, Branch, CallHost, Guard, Loop, LoopProgram, Read, Segment, Statement, Write
from tempo.loop_ir.text import SECTIONS, SEGMENT, STATEMENT
from tempo.sdg.grammar import reading
from tempo.sdg.text import PlaceholderNames

Lines = list[tuple[int, str]]
"""Texts with how deep each stands; the next is the last."""


def parse(text: str, values: Mapping[str, Any] | None = None) -> LoopProgram:
    """The program that prints as `text`; `values` gives what placeholders stand for.

    Blank lines and lines that start with `#` are passed over. Raises ParseError with the line.
    `parse(str(program), placeholders(program)) == program`.
    """
    names = PlaceholderNames(dict(values or {}))
    lines = [(len(line) - len(line.lstrip(" ")), line.strip()) for line in text.splitlines() if line.strip()]
    lines = [(depth, line) for depth, line in reversed(lines) if not line.startswith("#")]
    found: dict[str, list[Any]] = defaultdict(list)
    segments: list[Segment] = []
    items: Block = ()
    while lines:
        depth, line = lines.pop()
        word = line.split(" ")[0]
        with reading(line):
            if word == "driver:":
                items = _block(lines, depth, names)
            elif word == "segment":
                segments.append(replace(SEGMENT.read(line, names), body=_block(lines, depth, names)))
            else:
                found[word].append(SECTIONS[word].line.read(line, names))
    fields = {section.name: section.gathered(found[word]) for word, section in SECTIONS.items()}
    stopped = fields.pop("stopped") or (None,) * len(items)
    return LoopProgram(items=items, segments=tuple(segments), stopped=stopped, **fields)


def _block(lines: Lines, depth: int, names: PlaceholderNames) -> Block:
    """What stands deeper than `depth`."""
    found: list[Statement] = []
    while lines and lines[-1][0] > depth:
        inner, line = lines.pop()
        with reading(line):
            statement: Statement = STATEMENT.read(line, names)
            found.append(_filled(statement, _block(lines, inner, names), lines, inner, names))
    return tuple(found)


def _filled(statement: Statement, body: Block, lines: Lines, depth: int, names: PlaceholderNames) -> Statement:
    """The statement with what stands deeper than its line."""
    match statement:
        case Loop() | Guard():
            return replace(statement, body=body)
        case CallHost():
            reads = tuple(each for each in body if isinstance(each, Read))
            return replace(statement, reads=reads, writes=tuple(each for each in body if isinstance(each, Write)))
        case Branch() if lines and lines[-1] == (depth, "else:"):
            lines.pop()
            return replace(statement, then=body, otherwise=_block(lines, depth, names))
        case Branch():
            return replace(statement, then=body)
    if body:
        raise ValueError("nothing stands inside of it")
    return statement
