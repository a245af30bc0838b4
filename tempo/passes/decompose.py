"""Composites that a backend does not take whole become what they are made of.

This comes first, not late: what is not taken whole is then optimized like everything else (the exponentials of a
softmax are those of its gradient), and what is taken is one node to all passes, which know it by its roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tempo.passes.manager import PassContext
from tempo.passes.rewriting import Rewriter, Tensors
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.gradients import Formula


@dataclass(frozen=True)
class Decompose:
    """`PassContext.options["composites"]` names what the backend takes.

    A composite along an axis whose length varies is taken apart as well: only primitives tell padding from values.
    (`attention` is told a length instead.)
    """

    name: ClassVar[str] = "decompose"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        found = [node for node in graph.nodes.values() if _comes_apart(graph, node, context.options)]
        if not found:
            return graph
        new = Rewriter(graph)
        for node in found:
            formula = Formula(node.attributes, node.operands, Tensors(new, node.location))
            new.put(node, OPERATORS[node.op].decompose(formula))  # type: ignore[misc]
        return replace(graph, nodes=new.nodes)


def undecomposed(graph: Graph, taken: Iterable[str]) -> Node | None:
    """A composite that is not one of those that are taken."""
    known = frozenset(taken)
    composites = (node for node in graph.nodes.values() if OPERATORS[node.op].decompose is not None)
    return next((node for node in composites if node.op not in known), None)


def _comes_apart(graph: Graph, node: Node, options: Mapping[str, Any]) -> bool:
    if OPERATORS[node.op].decompose is None:
        return False
    if node.op not in options.get("composites", ()):
        return True
    shape = graph.seen_type(node.operands[0]).shape
    return any(shape[axis].dims() for axis in node.attr("axes", ()))
