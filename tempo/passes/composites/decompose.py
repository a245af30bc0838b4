"""Composites that a backend does not take whole become what they are made of, and so does what has no other meaning
along axes whose length varies.

This comes first, not late: what is not taken whole is then optimized like everything else (the exponentials of a
softmax are those of its gradient), and what is taken is one node to all passes, which know it by its axis rule.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.operators.gradients import Formula
from tempo.sdg.rewriter import Rewriter, Tensors


@dataclass(frozen=True)
class Decompose:
    """`composites` names what the backend takes.

    What is opaque along an axis whose length varies is taken apart as well: what it is made of tells padding from
    values. (`attention`, made later, is told a length instead.)
    """

    composites: tuple[str, ...] = ()
    name: ClassVar[str] = "decompose"
    needed: ClassVar[str] = "backends have primitives, and the composites that they name"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        found = [node for node in graph.nodes.values() if _comes_apart(graph, node, self.composites)]
        if not found:
            return graph
        new = Rewriter(graph)
        for node in found:
            formula = Formula(node.attributes, node.operands, Tensors(new, node.location))
            new.put(node, OPERATORS[node.op].decompose(formula))  # type: ignore[misc]
        return replace(graph, nodes=new.nodes)


def _comes_apart(graph: Graph, node: Node, taken: Collection[str]) -> bool:
    operator = OPERATORS[node.op]
    if operator.decompose is None:
        return False
    if operator.kind == "composite" and node.op not in taken:
        return True
    shapes = [graph.seen_type(edge).shape for edge in node.operands]
    opaque = (each for each in operator.axes(node.attributes, shapes, node.shape) if each.role is Role.OPAQUE)
    return any(shapes[number][axis].dims() for factor in opaque for number, axis in factor.places)
