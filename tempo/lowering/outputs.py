"""Every output reads one tensor at itself, so that its buffer is written where that tensor is made."""

from __future__ import annotations

from dataclasses import replace

from tempo.sdg.graph import Edge, Graph, Node, Output, identity_map
from tempo.sdg.stops import STOP

_WITHOUT_STATEMENT = frozenset({"input", "constant"})


def materialise_outputs(graph: Graph) -> Graph:
    """A `copy` node for each output that reads through a map, or that reads an input, a constant or a host call.

    Each stop has one as well, which nothing else is a part of: it is the last of all that runs at a point.
    """
    nodes = dict(graph.nodes)
    outputs = []
    for output in graph.outputs:
        if not _is_direct(graph, output):
            copy = _copy(max(nodes) + 1, output)
            nodes[copy.id] = copy
            output = replace(output, edge=Edge(copy.id, identity_map(copy.domain)))
        outputs.append(output)
    return replace(graph, nodes=nodes, outputs=tuple(outputs))


def _is_direct(graph: Graph, output: Output) -> bool:
    producer = graph.nodes[output.edge.node]
    if producer.op in _WITHOUT_STATEMENT or producer.op == "host_call" or output.role == STOP:
        return False
    return producer.domain == output.domain and graph.is_identity(output.edge)


def _copy(id: int, output: Output) -> Node:
    return Node(
        id,
        "copy",
        output.domain,
        (output.type,),
        (output.edge,),
        name=output.name,
        location=output.location,
    )
