"""Composites that a backend takes whole, found in what is spelled out, or came apart for what other passes do with it.

This comes late: gradients, lifting and splitting know primitives. Only values of varying length are still as written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.attention.match import Attention, find_attention, normalised
from tempo.passes.attention.operands import Operands, has_numbers, inside, summed
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.dce import without_dead_nodes
from tempo.passes.rewrite.driver import Draft
from tempo.passes.simplify.movement import GraphViews
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.operators.special import HALF
from tempo.sdg.rewriter import Rewriter, Tensors


@dataclass(frozen=True)
class Compose:
    """`composites` names what the backend takes. What others read, too, is left as it is.

    A softmax over an axis of varying length is one for `static_extents`, which takes it apart again.
    """

    composites: tuple[str, ...] = ()
    name: ClassVar[str] = "compose"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        views, new, is_changed = GraphViews(graph), Rewriter(graph), False
        for node in graph.nodes.values():
            made = self.composite(graph, node, views, Tensors(new, node.location))
            if made is not None:
                new.put(node, made)
                is_changed = True
        return without_dead_nodes(replace(graph, nodes=new.nodes)) if is_changed else graph

    def composite(self, graph: Graph, node: Node, views: GraphViews, tensors: Tensors) -> Edge | None:
        scores = _varying_softmax(graph, node, views)
        if scores is not None:
            return tensors.apply("softmax", scores[0], axes=(scores[1],))
        found = attention_at(graph, node, views) if "attention" in self.composites else None
        if found is None or inside(graph, node, found.given()) is None:
            return None
        return tensors.reshape(_attention(found, tensors), node.shape)


def _varying_softmax(graph: Graph, node: Node, views: GraphViews) -> tuple[Edge, int] | None:
    """The scores of a softmax over an axis of varying length, and that axis: padding is masked once, not by step.

    The operator computes halves in float32, which these steps do not.
    """
    if node.op != "div" or node.dtype in HALF:
        return None
    found = normalised(Draft(node.op, node.operands, node.attrs, node.type), views)
    if found is None or not graph.seen_type(found[0]).shape[found[1]].dims():
        return None
    return None if inside(graph, node, found[:1]) is None else found


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
