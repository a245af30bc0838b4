"""Which reads derivatives go through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tempo import dtypes
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.operators import OPERATORS

LEAVES = frozenset({"input", "host_call", "sink", "random_bits", "stop_gradient", "gradient", "cotangent"})


def differentiable_reads(graph: Graph, node: Node) -> Iterator[Edge]:
    """The reads of floating values on which the value of `node` depends smoothly. A parameter is a leaf.

    Of a function of the backend nothing is known, so it may: it has no rule, and to need one is an error.
    """
    if (
        node.op in LEAVES
        or not any(_is_float(type.dtype) for type in node.results)
        or (node.is_merge and node.attr("role") == "parameter")
    ):
        return
    edges = [edge for _, edge in node.reads()]
    if node.op == "custom_gradient":
        edges = edges[1:]  # the first is the value; its rule says what the others get
    elif node.op not in ("merge", "backend_call") and OPERATORS[node.op].gradient is None:
        return
    yield from (edge for edge in edges if _is_float(graph.nodes[edge.node].results[edge.result].dtype))


def _is_float(dtype: str) -> bool:
    return dtypes.is_float(dtype)


def differentiated(graph: Graph) -> Graph:
    """The graph with leaves that read nothing, so that a demand follows what a derivative does."""
    nodes = {id: _cut(node) for id, node in graph.nodes.items()}
    return replace(graph, nodes=nodes)


def _cut(node: Node) -> Node:
    if node.is_merge:
        return replace(node, cases=()) if node.attr("role") == "parameter" else node
    if node.op == "custom_gradient":
        return replace(node, operands=node.operands[1:])
    return replace(node, operands=()) if node.op in LEAVES else node
