"""Reads back what `str(graph)` writes (`tempo.sdg.text` says how), so that passes are tested text in, text out."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np

from tempo import dtypes
from tempo.errors import TempoError
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Case, Edge, Element, Graph, IndexMap, Node, Output, Point, Role, Slice, TensorType
from tempo.sdg.text import Placeholder
from tempo.symbolic import Dim, Symbol, parse_condition, parse_expr

_NODE = re.compile(r"%(\d+): (.*)")
_OUTPUT = re.compile(r'(\w+) ("(?:[^"\\]|\\.)*"): (.*)')
_CALL = re.compile(r"(\w+)(.*)", re.DOTALL)
_READ = re.compile(r"%(\d+)(?:\.(\d+))?(?:\[(.*)\])?")
_TYPE = re.compile(r"(\w+)\[(.*)\]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_OPENING, _CLOSING = "([{", ")]}"


class ParseError(TempoError, ValueError):
    """The text is none that a graph prints as."""


@contextmanager
def reading(line: str) -> Iterator[None]:
    """Whatever goes wrong inside is a ParseError about the line, or about one within it."""
    try:
        yield
    except ParseError:
        raise
    except (ValueError, SyntaxError, LookupError, TypeError) as error:
        raise ParseError(f"cannot read {line!r}: {error}") from error


def parse(text: str, values: Mapping[str, Any] | None = None) -> Graph:
    """The graph that prints as `text`; `values` gives what placeholders stand for.

    Blank lines and lines that start with `#` are passed over. A placeholder without a value becomes a `Placeholder`.
    Raises ParseError with the line. `parse(str(graph), placeholders(graph)) == graph`.
    """
    dims: tuple[Dim, ...] = ()
    nodes: dict[int, Node] = {}
    outputs: list[Output] = []
    sinks: tuple[int, ...] = ()
    for line in _lines(text):
        with reading(line):
            if line.startswith("dims"):
                dims = tuple(_dim(item) for item in split(line[4:]))
            elif line.startswith("%"):
                node = parse_node(line, values or {})
                nodes[node.id] = node
            elif line.startswith("sinks"):
                sinks = tuple(int(item.removeprefix("%")) for item in split(line[5:]))
            else:
                outputs.append(_output(line))
    return Graph(dims, nodes, tuple(outputs), sinks)


def _lines(text: str) -> list[str]:
    """The lines, with those of a node's cases joined to it."""
    found: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("| "):
            found[-1] += "\n" + stripped[2:]
        else:
            found.append(stripped)
    return found


def _masked(text: str) -> str:
    """The text with strings and what stands in backticks blanked out, so that brackets and commas in them are gone."""
    return _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that stand outside brackets, strings and backticks; none for blank text."""
    masked, parts, depth, start = _masked(text), [], 0, 0
    for position, char in enumerate(masked):
        depth += (char in _OPENING) - (char in _CLOSING)
        if not depth and masked.startswith(separator, position):
            parts.append(text[start:position])
            start = position + len(separator)
    if text[start:].strip():  # a comma may trail
        parts.append(text[start:])
    return [part.strip() for part in parts]


def bracketed(text: str) -> tuple[str, str]:
    """What stands inside the bracket that `text` starts with, and what follows it; empty where it starts with none."""
    if not text or text[0] not in _OPENING:
        return "", text
    depth = 0
    for position, char in enumerate(_masked(text)):
        depth += (char in _OPENING) - (char in _CLOSING)
        if not depth:
            return text[1:position], text[position + 1 :]
    raise ValueError("a bracket is not closed")


def _dim(text: str) -> Dim:
    name, size = text.split(":", 1)
    return Dim(parse_symbol(name.strip()), parse_expr(size))


def parse_node(text: str, values: Mapping[str, Any]) -> Node:
    head, *cases = text.split("\n")
    matched = match(_NODE, head)
    results, domain, call = _typed(matched[2])
    op, rest = match(_CALL, call).groups()
    reads, rest = bracketed(rest)
    attrs, rest = bracketed(rest.strip())
    declaration, name = _tail(rest.strip())
    return Node(
        int(matched[1]),
        op,
        domain,
        results,
        tuple(_edge(read) for read in split(reads)),
        tuple(_attribute(attribute, values) for attribute in split(attrs)),
        tuple(_case(case) for case in cases),
        declaration,
        name,
    )


def _typed(text: str) -> tuple[tuple[TensorType, ...], tuple[Symbol, ...], str]:
    """`types over (domain) = rest`."""
    left, right = split(text, " = ")
    types, *domain = split(left, " over ")
    results = () if types == "nothing" else tuple(parse_type(type) for type in split(types))
    symbols = split(domain[0][1:-1]) if domain else []
    return results, tuple(map(parse_symbol, symbols)), right


def _tail(text: str) -> tuple[int | None, str]:
    number, name = match(re.compile(r'(?:@(\d+))?\s*("(?:[^"\\]|\\.)*")?'), text).groups()
    return None if number is None else int(number), json.loads(name) if name else ""


def _case(text: str) -> Case:
    condition, value = text.rsplit(" -> ", 1)
    edge, *part = split(value, " at ")
    return Case(parse_condition(condition), _edge(edge), part=_part(part[0]) if part else None)


def _part(text: str) -> Element:
    at, axes = split(text, " of axes ")
    return Element(tuple(int(axis) for axis in split(axes[1:-1])), parse_expr(at))


def parse_role(text: str) -> Role:
    roles: dict[str, Role] = {each: each for each in get_args(Role)}
    return roles[text]


def _output(text: str) -> Output:
    written, name, rest = match(_OUTPUT, text).groups()
    role = parse_role(written)
    (type,), domain, right = _typed(rest)
    edge, layout = split(right, " as ")
    axes = tuple(parse_symbol(axis) if axis.startswith("$") else int(axis) for axis in split(layout[1:-1]))
    return Output(json.loads(name), _edge(edge), domain, type, axes, role)


def parse_type(text: str) -> TensorType:
    dtype, shape = match(_TYPE, text).groups()
    return TensorType(tuple(parse_expr(size) for size in split(shape)), dtype)


def _edge(text: str) -> Edge:
    node, result, indices = match(_READ, text).groups()
    map: IndexMap = tuple(_index(index) for index in split(indices or ""))
    return Edge(int(node), map, int(result or 0))


def _index(text: str) -> Point | Slice:
    start, *length = split(text, " +: ")
    if not length:
        return Point(parse_expr(start))
    logical, *extent = split(length[0], " of ")
    return Slice(parse_expr(start), parse_expr(logical), parse_expr(extent[0]) if extent else None)


def _attribute(text: str, values: Mapping[str, Any]) -> tuple[str, Any]:
    key, value = text.split(":", 1)
    return key.strip(), parse_value(value.strip(), values)


def parse_value(text: str, values: Mapping[str, Any]) -> Any:
    if text.startswith("("):
        return tuple(parse_value(item, values) for item in split(text[1:-1]))
    if text.startswith("$"):
        return parse_symbol(text)
    if text.startswith("?`"):
        return parse_condition(text[2:-1])
    if text.startswith("`"):
        return parse_expr(text[1:-1])
    if text.startswith("!"):
        return values.get(text[1:], Placeholder(text[1:]))
    if text.startswith("array("):
        return _array(text)
    if text.startswith('"'):
        return json.loads(text)
    return _number(text)


def _number(text: str) -> Any:
    return float(text) if text.lstrip("-") in ("nan", "inf") else ast.literal_eval(text)


def parse_symbol(text: str) -> Symbol:
    name = text.lstrip("$")
    return Symbol(name.removesuffix(".size"), "size") if name.endswith(".size") else Symbol(name, "dim")


def _array(text: str) -> ArrayValue:
    dtype, shape_text, elements = split(bracketed(text.removeprefix("array"))[0])
    shape, numpy_dtype = parse_value(shape_text, {}), dtypes.to_numpy(dtype)
    if elements.startswith("x"):
        return ArrayValue(np.frombuffer(bytes.fromhex(elements[1:]), numpy_dtype).reshape(shape))
    numbers = [_number(item) for item in split(elements[1:-1])]
    return ArrayValue(np.array(numbers, numpy_dtype).reshape(shape))


def match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    matched = pattern.fullmatch(text)
    if matched is None:
        raise ValueError(f"expected {pattern.pattern}")
    return matched
