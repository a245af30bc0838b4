"""From the cotangent of a node to those of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tempo.autodiff.nodes import Nodes
from tempo.errors import UnsupportedError
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Node
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import Reverse
from tempo.symbolic import TRUE


def pulled_back(nodes: Nodes, node: Node, result: Edge, cotangent: Edge) -> Sequence[Edge | None]:
    """One cotangent per operand, None where it is constant in it: by the operator's rule, or the user's."""
    if node.op == "custom_gradient":
        return [None, *_by_pattern(nodes, node, cotangent)]
    operator = OPERATORS[node.op]
    if operator.gradient is None:
        raise UnsupportedError(
            f"{node.op} has no gradient: {operator.gradient_note}", location=node.location or nodes.location
        )
    reverse = Reverse(node.attributes, node.operands, nodes, result, cotangent)
    found: Sequence[Edge | None] = operator.gradient(reverse)
    return found


def _by_pattern(nodes: Nodes, node: Node, cotangent: Edge) -> list[Edge | None]:
    """What the user wrote as functions of a cotangent that had no value, with the one that there is."""
    placeholder = nodes.nodes[node.attr("cotangent")]
    given = nodes.declare(placeholder.domain, placeholder.type, "cotangent", (Case(TRUE, cotangent),))
    copied = {placeholder.id: given.id}
    gradients: tuple[Edge | None, ...] = node.attr("gradients")
    now = nodes.finished()
    reading = reached([placeholder.id], lambda id: [reader for reader, _ in now.consumers[id]])
    read = reached((edge.node for edge in gradients if edge is not None), now.producers)
    pattern = sorted(reading & read - {placeholder.id})
    originals = [nodes.nodes[id] for id in pattern]
    merges = [each for each in originals if each.is_merge]
    for each in merges:
        copied[each.id] = nodes.declare(each.domain, each.type, each.name).id
    for each in originals:
        if not each.is_merge:
            copied[each.id] = _copy(nodes, each, copied)
    for each in merges:
        cases = [(case.condition, _moved(case.edge, copied)) for case in each.cases]
        nodes.define(copied[each.id], cases)
    return [None if edge is None else _moved(edge, copied) for edge in gradients]


def _copy(nodes: Nodes, node: Node, copied: dict[int, int]) -> int:
    if node.declaration is not None or node.op == "gradient":
        raise UnsupportedError(
            f"a gradient of one's own may not go through {node.op}",
            location=node.location,
            hint="compute it from the operands, outside of the function that is given the cotangent",
        )
    operands = (_moved(edge, copied) for edge in node.operands)
    return nodes.apply(node.op, *operands, **node.attributes).node


def _moved(edge: Edge, copied: dict[int, int]) -> Edge:
    return replace(edge, node=copied.get(edge.node, edge.node))
