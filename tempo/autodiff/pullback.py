"""From the cotangent of a node to those of what it reads."""

from __future__ import annotations

from collections.abc import Sequence

from tempo.autodiff.nodes import Nodes
from tempo.errors import UnsupportedError
from tempo.sdg.graph import Edge, Node
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.gradients import Reverse


def pulled_back(nodes: Nodes, node: Node, result: Edge, cotangent: Edge) -> Sequence[Edge | None]:
    """One cotangent per operand, None where it is constant in it. By the operator's rule."""
    operator = OPERATORS[node.op]
    if operator.gradient is None:
        raise UnsupportedError(
            f"{node.op} has no gradient: {operator.gradient_note}", location=node.location or nodes.location
        )
    reverse = Reverse(node.attributes, node.operands, result, cotangent, nodes)
    found: Sequence[Edge | None] = operator.gradient(reverse)
    return found
