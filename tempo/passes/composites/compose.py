"""Composites that a backend takes whole, found in what is spelled out, or came apart for what other passes do with it.

This comes late: gradients, lifting and splitting know primitives. Only values of varying length are still as written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.attention.match import Attention, find_attention
from tempo.passes.attention.operands import Operands, has_numbers, inside, summed
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.dce import without_dead_nodes
from tempo.passes.rewrite.driver import Draft
from tempo.passes.simplify.movement import GraphViews
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.rewriter import Rewriter, Tensors


@dataclass(frozen=True)
class Compose:
    """`composites` names what the backend takes. What others read, too, is left as it is."""

    composites: tuple[str, ...] = ()
    name: ClassVar[str] = "compose"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        if "attention" not in self.composites:
            return graph
        views, new = GraphViews(graph), Rewriter(graph)
        found = [(node, found) for node in graph.nodes.values() if (found := attention_at(graph, node, views))]
        made = [(node, each) for node, each in found if inside(graph, node, each) is not None]
        for node, each in made:
            tensors = Tensors(new, node.location)
            new.put(node, tensors.reshape(_attention(each, tensors), node.shape))
        return without_dead_nodes(replace(graph, nodes=new.nodes)) if made else graph


def attention_at(graph: Graph, node: Node, views: GraphViews) -> Attention | None:
    """What a node is attention of, where an operator for it can take that; None where it is none."""
    if node.op != "dot" or not node.dtype.endswith(("float16", "float32", "float64")):
        return None
    found = find_attention(Draft(node.op, node.operands, node.attrs, node.type), views)
    return found if found is not None and has_numbers(found, views) else None


def _attention(found: Attention, tensors: Tensors) -> Edge:
    """The operator, and its result as the contraction has it."""
    operands, keys = Operands(found, tensors, found.queries.edge), found.keys
    made = tensors.apply(
        "attention",
        operands.arranged_queries(),
        keys.edge,
        found.values.edge,
        *(operands.arranged_extra(extra) for extra in (*summed(found, tensors), *found.mask)),
        **operands.attrs(),
        length=tensors.shape(keys.edge)[keys.free[0]],
    )
    return operands.result(made)
