"""Placeholders of gradients become what they stand for."""

from __future__ import annotations

from dataclasses import replace

from tempo.autodiff.backward import Backward, Loss, differentiable_reads
from tempo.autodiff.nodes import Nodes
from tempo.errors import UnsupportedError
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.graph import Graph
from tempo.sdg.operators.nominal import PLACEHOLDERS

_NAMES = frozenset(operator.name for operator in PLACEHOLDERS)


def expand_gradients(graph: Graph) -> Graph:
    """The graph without placeholders: gradients of inner losses first, since outer ones differentiate through them.

    Raises `UnsupportedError` at the line of `tp.grad` where a gradient is part of what it differentiates.
    """
    if not any(node.op in _NAMES for node in graph.nodes.values()):
        return graph
    for loss, ids in _losses(graph):
        graph = _expanded(graph, loss, ids)
    return _without_markers(graph)


def _losses(graph: Graph) -> list[tuple[Loss, list[int]]]:
    """The placeholders by loss, those that a loss goes through before those of that loss."""
    groups: dict[Loss, list[int]] = {}
    for node in graph.nodes.values():
        if node.op == "gradient":
            groups.setdefault(Loss(node.attr("loss"), node.attr("over")), []).append(node.id)
    reads = {id: [edge.node for edge in differentiable_reads(graph, node)] for id, node in graph.nodes.items()}
    owner = {id: loss for loss, ids in groups.items() for id in ids}
    reads |= {id: [loss.edge.node] for id, loss in owner.items()}
    for component in strongly_connected(owner, reads):
        inside = [id for id in component if id in owner]
        if len(component) > 1 and inside:
            raise UnsupportedError(
                "a gradient is part of the loss that it differentiates",
                location=graph.nodes[inside[0]].location,
                hint="Declare what is updated with it as a tp.parameter, which is a leaf, "
                "or stop it with tp.stop_gradient.",
            )
    below = {loss: reached([loss.edge.node], reads.__getitem__) for loss in groups}
    # By how many other losses each goes through, one in another.
    return sorted(groups.items(), key=lambda item: len({owner[id] for id in below[item[0]] if id in owner}))


def _expanded(graph: Graph, loss: Loss, ids: list[int]) -> Graph:
    nodes = Nodes(graph, graph.nodes[ids[0]].location)
    wanted = {graph.nodes[id].attr("wrt") for id in ids}
    backward = Backward(nodes, loss, wanted)
    for id in ids:
        placeholder = graph.nodes[id]
        value = placeholder.attr("wrt")
        merge = nodes.declare(placeholder.domain, placeholder.type, placeholder.name)
        nodes.define(merge.id, backward.gradient(value))
        nodes.nodes[id] = replace(nodes.nodes.pop(merge.id), id=id, location=placeholder.location)
    return nodes.finished()


def _without_markers(graph: Graph) -> Graph:
    """`stop_gradient` and `custom_gradient` are their first operand; what reads a cotangent was only a pattern."""
    cotangents = [node.id for node in graph.nodes.values() if node.op == "cotangent"]
    patterns = reached(cotangents, lambda id: [reader for reader, _ in graph.consumers[id]])
    nodes = {
        id: replace(node, op="copy", operands=node.operands[:1], attrs=()) if node.op in _NAMES else node
        for id, node in graph.nodes.items()
        if id not in patterns
    }
    return replace(graph, nodes=nodes)
