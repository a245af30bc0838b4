"""How messages name tensors, points and instances: in the user's words, never by node numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tempo.errors import Location
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol


class Instance(NamedTuple):
    """One point of one node's domain."""

    node: int
    point: tuple[int, ...]


def tensor_name(node: Node) -> str:
    """The name that the user gave, or the operator that made the tensor."""
    name = node.name or node.attr("name")
    return str(name) if name else f"the result of {node.op}"


def point_text(dims: Iterable[Symbol], point: Sequence[int]) -> str:
    """`i = 3, t = 7`; the empty point is named as such."""
    pairs = [f"{symbol.name} = {int(value)}" for symbol, value in zip(dims, point)]
    return ", ".join(pairs) or "its only point"


def instance_text(graph: Graph, instance: Instance) -> str:
    """`h[i = 3, t = 7]`."""
    node = graph.nodes[instance.node]
    point = point_text(node.domain, instance.point) if node.domain else ""
    return tensor_name(node) + (f"[{point}]" if point else "")


def cycle_text(graph: Graph, cycle: Sequence[Instance]) -> str:
    """One line per instance, each needed by the one above it; the last needs the first.

    Nodes without a name of the user's are left out where others remain, since the user never wrote them.
    """
    named = [instance for instance in cycle if graph.nodes[instance.node].name] or list(cycle)
    lines = [_cycle_line(graph, instance) for instance in (*named, named[0])]
    return "\n  needs ".join(lines)


def _cycle_line(graph: Graph, instance: Instance) -> str:
    location = graph.nodes[instance.node].location
    return instance_text(graph, instance) + (f" ({_short(location)})" if location else "")


def _short(location: Location) -> str:
    return f"{location.path}:{location.line}"
