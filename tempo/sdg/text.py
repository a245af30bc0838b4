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

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, Element, Graph, IndexMap, Node, Output, Point, Slice, TensorType
from tempo.symbolic import Condition, Expr, Symbol

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


def graph_text(graph: Graph) -> str:
    """The whole graph, ending in a newline."""
    return _write(graph, PlaceholderNames())


def placeholders(graph: Graph) -> Mapping[str, Any]:
    """What the placeholders in `str(graph)` stand for: `parse(str(graph), placeholders(graph)) == graph`."""
    names = PlaceholderNames()
    _write(graph, names)
    return names.values


def node_text(node: Node, names: PlaceholderNames | None = None) -> str:
    """One node as it stands in the text of its graph, but for the numbers of placeholders, unless `names` has them."""
    return _node(node, names or PlaceholderNames())


def output_text(output: Output) -> str:
    layout = ", ".join(f"${axis}" if isinstance(axis, Symbol) else str(axis) for axis in output.layout)
    over = f"{type_text(output.type)}{_domain(output.domain)}"
    return f"{output.role} {json.dumps(output.name)}: {over} = {_edge(output.edge)} as ({layout})"


def _write(graph: Graph, names: PlaceholderNames) -> str:
    lines = [f"dims {', '.join(f'{dim.symbol}: {dim.size}' for dim in graph.dims)}".rstrip()]
    lines += [_node(node, names) for node in graph.nodes.values()]
    lines += [output_text(output) for output in graph.outputs]
    if graph.sinks:
        lines.append(f"sinks {', '.join(f'%{id}' for id in graph.sinks)}")
    return "\n".join(lines) + "\n"


def _node(node: Node, names: PlaceholderNames) -> str:
    types = ", ".join(map(type_text, node.results)) or "nothing"
    reads = f"({', '.join(map(_edge, node.operands))})" if node.operands else ""
    attrs = f" {{{', '.join(f'{key}: {value_text(value, names)}' for key, value in node.attrs)}}}" if node.attrs else ""
    declaration = "" if node.declaration is None else f" @{node.declaration}"
    name = f" {json.dumps(node.name)}" if node.name else ""
    head = f"%{node.id}: {types}{_domain(node.domain)} = {node.op}{reads}{attrs}{declaration}{name}"
    return "\n".join([head, *(f"  | {case.condition} -> {_edge(case.edge)}{_part(case.part)}" for case in node.cases)])


def _part(part: Element | None) -> str:
    return "" if part is None else f" at {part.at} of axes ({', '.join(map(str, part.order))})"


def type_text(type: TensorType) -> str:
    return f"{type.dtype}[{', '.join(map(str, type.shape))}]"


def _domain(domain: Iterable[Symbol]) -> str:
    names = ", ".join(map(str, domain))
    return f" over ({names})" if names else ""


def _edge(edge: Edge) -> str:
    result = f".{edge.result}" if edge.result else ""
    return f"%{edge.node}{result}{_map(edge.map)}"


def _map(map: IndexMap) -> str:
    return f"[{', '.join(_index(index) for index in map)}]" if map else ""


def _index(index: Point | Slice) -> str:
    if isinstance(index, Point):
        return str(index.index)
    extent = "" if index.extent is None else f" of {index.extent}"
    return f"{index.start} +: {index.length}{extent}"


def value_text(value: Any, names: PlaceholderNames) -> str:
    if isinstance(value, tuple):
        inside = ", ".join(value_text(item, names) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, Symbol):
        return f"${value}"
    if isinstance(value, Expr):
        return f"`{value}`"
    if isinstance(value, Condition):
        return f"?`{value}`"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, ArrayValue) and value.array.size <= INLINE_ELEMENTS:
        return _array(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    return f"!{names.of(value)}"


def _array(value: ArrayValue) -> str:
    """`array(dtype, shape, elements)`; the bytes in hexadecimal where decimals would lose them (the bits of a NaN)."""
    shape = value_text(tuple(int(size) for size in value.shape), PlaceholderNames())
    flat = value.array.reshape(-1)
    if any(isinstance(item, float) and math.isnan(item) for item in flat.tolist()):
        return f"array({value.dtype}, {shape}, x{flat.tobytes().hex()})"
    return f"array({value.dtype}, {shape}, ({', '.join(map(_element, flat))}))"


def _element(item: Any) -> str:
    """A NumPy scalar as a decimal that gives it back: the shortest for its dtype where that is exact (0.1)."""
    value = item.item()
    return str(item) if isinstance(value, float) and type(item)(float(str(item))) == item else repr(value)
