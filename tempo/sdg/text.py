"""The graph as text: stable, readable, and read back by `tempo.sdg.parse`.

    dims b: 4, t: t.size
    %0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
    %1: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
    %2: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
      | t == 0 -> %3
      | True -> %4[t - 1]
    output "y": float32[3] over (t) = %2[t] as ($t, 0)
    sinks %5

A case may be an element of what it reads: ` at t of axes (1, 0)` stands behind it then (`tempo.sdg.graph.Element`).
A map has one index per dim of the producer, `start +: length` for a slice, `start +: length of extent` where static
tiling widened it; `%5.1` reads result 1. Expressions in attributes stand in backticks, conditions as `?`...``, dims as
`$t`. Small arrays stand inline; large ones, and objects like functions, as the name of a placeholder (`!array0`).
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args

import numpy as np

from tempo import dtypes
from tempo.sdg.call import ArrayValue
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
    read_symbol,
    record,
    row,
    split,
)
from tempo.sdg.graph import Case, Edge, Element, Graph, Node, Output, Point, Role, Slice, TensorType
from tempo.symbolic import Condition, Dim, Expr, Symbol

INLINE_ELEMENTS = 16
"""Arrays with more elements are printed as placeholders."""


@dataclass(frozen=True)
class Placeholder:
    """What parsing makes of a placeholder that it is given no value for."""

    name: str


@dataclass
class PlaceholderNames:
    """The names of placeholders, numbered in order of their first appearance. Equal arrays share one."""

    values: dict[str, Any] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def of(self, value: Any) -> str:
        if isinstance(value, Placeholder):
            return value.name
        key = value if isinstance(value, ArrayValue) else id(value)
        if key not in self._known:
            stem = "array" if isinstance(value, ArrayValue) else "function" if callable(value) else "object"
            name = f"{stem}{self._counts[stem]}"
            self._counts[stem] += 1
            self._known[key] = name
            self.values[name] = value
        return self._known[key]

    def value(self, name: str) -> Any:
        return self.values.get(name, Placeholder(name))


def arrays_told(placeholders: Mapping[str, Any]) -> str | None:
    """What tells a text with these placeholders from one with others, beside itself. None where one is no array."""
    if not all(isinstance(each, ArrayValue) for each in placeholders.values()):
        return None
    return "\n".join(f"{name} {each.dtype} {each.shape} {each.digest.hex()}" for name, each in placeholders.items())


# -- values of attributes ------------------------------------------------------------------------------------------


def _tuple_text(values: tuple[Any, ...], names: PlaceholderNames) -> str:
    return f"({_VALUES.write(values, names)}{',' if len(values) == 1 else ''})"


def _tuple(text: str, names: PlaceholderNames) -> tuple[Any, ...]:
    found: tuple[Any, ...] = _VALUES.read(text[1:-1], names)
    return found


def _number(text: str) -> Any:
    return float(text) if text.lstrip("-") in ("nan", "inf") else ast.literal_eval(text)


def _array_text(value: ArrayValue, names: PlaceholderNames) -> str:
    """`array(dtype, shape, elements)`; the bytes in hexadecimal where decimals would lose them (the bits of a NaN)."""
    if value.array.size > INLINE_ELEMENTS:
        return _PLACEHOLDER.write(value, names)
    shape = _tuple_text(tuple(int(size) for size in value.shape), names)
    flat = value.array.reshape(-1)
    if any(isinstance(item, float) and math.isnan(item) for item in flat.tolist()):
        return f"array({value.dtype}, {shape}, x{flat.tobytes().hex()})"
    return f"array({value.dtype}, {shape}, ({', '.join(map(_element, flat))}))"


def _element(item: Any) -> str:
    """A NumPy scalar as a decimal that gives it back: the shortest for its dtype where that is exact (0.1)."""
    value = item.item()
    return str(item) if isinstance(value, float) and type(item)(float(str(item))) == item else repr(value)


def _array(text: str, names: PlaceholderNames) -> ArrayValue:
    dtype, shape_text, elements = split(text.removeprefix("array")[1:-1])
    shape, numpy_dtype = _tuple(shape_text, names), dtypes.to_numpy(dtype)
    if elements.startswith("x"):
        return ArrayValue(np.frombuffer(bytes.fromhex(elements[1:]), numpy_dtype).reshape(shape))
    numbers = [_number(item) for item in split(elements[1:-1])]
    return ArrayValue(np.array(numbers, numpy_dtype).reshape(shape))


_PLACEHOLDER = Syntax(lambda value, names: f"!{names.of(value)}", lambda text, names: names.value(text[1:]), r"!\w+")
_NUMBER = plain(repr, _number, "[^!]*")
VALUE = either(
    {
        tuple: Syntax(_tuple_text, _tuple, r"\(.*\)"),
        Symbol: plain("${}".format, read_symbol, r"\$.*"),
        Expr: plain("`{}`".format, lambda text: EXPR.read(text[1:-1], None), "`.*`"),
        Condition: plain("?`{}`".format, lambda text: CONDITION.read(text[2:-1], None), r"\?`.*`"),
        str: STRING,
        ArrayValue: Syntax(_array_text, _array, r"array\(.*\)"),
        np.generic: _PLACEHOLDER,
        bool | int | float | NoneType: _NUMBER,
        object: _PLACEHOLDER,
    }
)
_VALUES = many(VALUE)

# -- nodes ---------------------------------------------------------------------------------------------------------

TYPE = record(TensorType, "{dtype}[{shape}]", dtype=WORD, shape=many(EXPR))
_DOMAIN = optional(" over ({})", many(SYMBOL), ())
_SLICE = record(Slice, "{start} +: {length}{extent}", start=EXPR, length=EXPR, extent=optional(" of {}", EXPR))
_INDEX = either({Slice: _SLICE, Point: record(Point, "{index}", index=EXPR)})
_EDGE = record(
    Edge,
    "%{node}{result}{map}",
    node=NUMBER,
    result=optional(".{}", NUMBER, 0),
    map=optional("[{}]", many(_INDEX), ()),
)
_PART = record(Element, "{at} of axes ({order})", at=EXPR, order=many(NUMBER))
_CASE = record(Case, "{condition} -> {edge}{part}", condition=CONDITION, edge=_EDGE, part=optional(" at {}", _PART))
NODE = record(
    Node,
    "%{id}: {results}{domain} = {op}{operands}{attrs}{declaration}{name}{cases}",
    id=NUMBER,
    results=many(TYPE, none="nothing"),
    domain=_DOMAIN,
    op=WORD,
    operands=optional("({})", many(_EDGE), ()),
    attrs=optional(" {{{}}}", many(row("{}: {}", WORD, VALUE)), ()),
    declaration=optional(" @{}", NUMBER),
    name=optional(" {}", STRING, ""),
    cases=optional("\n  | {}", many(_CASE, between="\n  | "), ()),
)
OUTPUT = record(
    Output,
    "{role} {name}: {type}{domain} = {edge} as ({layout})",
    role=choice({role: role for role in get_args(Role)}),
    name=STRING,
    type=TYPE,
    domain=_DOMAIN,
    edge=_EDGE,
    layout=_VALUES,
)
DIM = record(Dim, "{symbol}: {size}{sequential}", symbol=SYMBOL, size=EXPR, sequential=flag(" in order"))
DIMS, SINKS = many(DIM), many(_EDGE)


def graph_text(graph: Graph) -> str:
    """The whole graph, ending in a newline."""
    return _write(graph, PlaceholderNames())


def placeholders(graph: Graph) -> Mapping[str, Any]:
    """What the placeholders in `str(graph)` stand for: `parse(str(graph), placeholders(graph)) == graph`."""
    names = PlaceholderNames()
    _write(graph, names)
    return names.values


def node_text(node: Node) -> str:
    """One node as it stands in the text of its graph, but for the numbers of placeholders."""
    return NODE.write(node, PlaceholderNames())


def type_text(type: TensorType) -> str:
    return TYPE.write(type, None)


def output_text(output: Output) -> str:
    return OUTPUT.write(output, PlaceholderNames())


def graph_lines(graph: Graph) -> list[tuple[str, Node | Output | None]]:
    """The text of a graph in pieces, each with the node or the output that it is of; a node may have several lines."""
    return list(_lines(graph, PlaceholderNames()))


def _write(graph: Graph, names: PlaceholderNames) -> str:
    return "\n".join(line for line, _ in _lines(graph, names)) + "\n"


def _lines(graph: Graph, names: PlaceholderNames) -> Iterator[tuple[str, Node | Output | None]]:
    yield f"dims {DIMS.write(graph.dims, names)}".rstrip(), None
    for node in graph.nodes.values():
        yield NODE.write(node, names), node
    for output in graph.outputs:
        yield OUTPUT.write(output, names), output
    if graph.sinks:
        yield f"sinks {SINKS.write(map(Edge, graph.sinks), names)}", None
