"""A program and its vector-Jacobian product as one graph: the joint graph.

    gradient(x) = sum over outputs y of cotangent(y) . d y / d x

Cotangents are inputs, one for each output of a floating dtype, and gradients are outputs, one for each value that is
asked for. `tempo.autodiff.partition` cuts the graph in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tempo import dtypes
from tempo.autodiff.backward import Backward, Seed, check_rows, with_markers, without_markers
from tempo.autodiff.nodes import Nodes
from tempo.sdg.graph import Edge, Graph, Node, Output, identity_map


@dataclass(frozen=True)
class Joint:
    """`graph` has the outputs of the program and, in `gradients`, those that are added, named by what they are of.
    `cotangents`: the names of the inputs that are added, by output."""

    graph: Graph
    gradients: tuple[Output, ...]
    cotangents: Mapping[str, str]


def joint_graph(graph: Graph, wanted: Mapping[str, int]) -> Joint:
    """`graph` as it was declared; `wanted`: the nodes that its outputs are differentiated with respect to, by name.

    Raises `UnsupportedError` with the line of what has no gradient.
    """
    nodes = Nodes(with_markers(graph), next((each.location for each in graph.outputs), None))
    taken = {node.port.name for node in graph.nodes.values() if node.is_input}
    cotangents, seeds = dict[str, str](), list[Seed]()
    for output in (each for each in graph.outputs if each.role == "output" and dtypes.is_float(each.type.dtype)):
        name = cotangents[output.name] = fresh(f"the cotangent of {output.name}", taken)
        edge = nodes.rewriter.declare(_cotangent(output, name))
        seeds.append(Seed(output.edge, output.domain, edge))
    backward = Backward(nodes, seeds, {(id, 0) for id in wanted.values()})
    check_rows(graph, backward, nodes.location)
    gradients = tuple(_gradient(nodes, backward, name, id) for name, id in wanted.items())
    return Joint(without_markers(nodes.finished()), gradients, cotangents)


def fresh(name: str, taken: Iterable[str]) -> str:
    """The name, or one like it that is not taken."""
    while name in taken:
        name += "'"
    return name


def _cotangent(output: Output, name: str) -> Node:
    attrs = (("layout", output.layout), ("name", name), ("role", "input"))
    return Node(-1, "input", output.domain, (output.type,), (), attrs, (), 0, name, output.location)


def _gradient(nodes: Nodes, backward: Backward, name: str, id: int) -> Output:
    node = nodes.nodes[id]
    merge = nodes.declare(node.domain, node.type, f"gradient of {name}")
    nodes.define(merge.id, backward.gradient((id, 0)))
    nodes.nodes[merge.id] = replace(nodes.nodes[merge.id], location=node.location)
    layout = (*node.domain, *range(len(node.shape)))
    edge = Edge(merge.id, identity_map(node.domain))
    return Output(name, edge, node.domain, node.type, layout, location=node.location)
