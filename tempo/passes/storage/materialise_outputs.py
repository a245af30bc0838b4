"""Every output reads one tensor at itself, so that its buffer is written where that tensor is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.graph import Graph, Node, Output


@dataclass(frozen=True)
class MaterialiseOutputs:
    """A `copy` node for each output that reads through a map, or that reads an input or a constant.

    Each stop has one as well, which nothing else is a part of: it is the last of all that runs at a point.
    """

    name: ClassVar[str] = "materialise_outputs"
    needed: ClassVar[str] = "every output is written where some tensor is made"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        if all(_is_direct(graph, output) for output in graph.outputs):
            return graph
        new, outputs = NodeBuilder(graph.dims, graph.nodes), []
        for output in graph.outputs:
            if not _is_direct(graph, output):
                output = replace(output, edge=new.numbered(_copy(output)))
            outputs.append(output)
        return replace(graph, nodes=new.nodes, outputs=tuple(outputs))


def _is_direct(graph: Graph, output: Output) -> bool:
    producer = graph.nodes[output.edge.node]
    if producer.is_given or output.role == "stop":
        return False
    return producer.domain == output.domain and graph.is_identity(output.edge)


def _copy(output: Output) -> Node:
    return Node(
        -1,
        "copy",
        output.domain,
        (output.type,),
        (output.edge,),
        name=output.name,
        location=output.location,
    )
