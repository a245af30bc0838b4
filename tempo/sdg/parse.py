"""Reads back what `str(graph)` writes (`tempo.sdg.text` says how), so that passes are tested text in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempo.sdg.grammar import ParseError, reading
from tempo.sdg.graph import Graph, Node, Output
from tempo.sdg.text import DIMS, NODE, OUTPUT, SINKS, PlaceholderNames
from tempo.symbolic import Dim

__all__ = ["ParseError", "parse"]


def parse(text: str, values: Mapping[str, Any] | None = None) -> Graph:
    """The graph that prints as `text`; `values` gives what placeholders stand for.

    Blank lines and lines that start with `#` are passed over. A placeholder without a value becomes a `Placeholder`.
    Raises ParseError with the line. `parse(str(graph), placeholders(graph)) == graph`.
    """
    names = PlaceholderNames(dict(values or {}))
    dims: tuple[Dim, ...] = ()
    nodes: dict[int, Node] = {}
    outputs: list[Output] = []
    sinks: tuple[int, ...] = ()
    for line in _lines(text):
        with reading(line):
            if line.startswith("dims"):
                dims = DIMS.read(line[4:], names)
            elif line.startswith("%"):
                node = NODE.read(line, names)
                nodes[node.id] = node
            elif line.startswith("sinks"):
                sinks = tuple(edge.node for edge in SINKS.read(line[5:], names))
            else:
                outputs.append(OUTPUT.read(line, names))
    return Graph(dims, nodes, tuple(outputs), sinks)


def _lines(text: str) -> list[str]:
    """The lines, with those of a node's cases joined to it."""
    found: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("| "):
            found[-1] += f"\n  {stripped}"
        elif stripped and not stripped.startswith("#"):
            found.append(stripped)
    return found
