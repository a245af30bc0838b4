"""Dead code elimination: what neither an output nor a sink needs is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.sdg.graph import Graph


@dataclass(frozen=True)
class DeadCodeElimination:
    name: ClassVar[str] = "dce"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return without_dead_nodes(graph)


def without_dead_nodes(graph: Graph) -> Graph:
    """The graph with the nodes that an output or a sink reaches, and no others."""
    needed = graph.reachable()
    if len(needed) == len(graph.nodes):
        return graph
    return replace(graph, nodes={id: node for id, node in graph.nodes.items() if id in needed})
