"""Making the nodes of a gradient: what they are, and those from the cotangent of a node to those of what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tempo.errors import Location, UnsupportedError
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, TensorType, identity_map
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import Reverse
from tempo.sdg.read_composition import compose
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Condition, Expr, Symbol, const

ROLE = "gradient"
Guarded = tuple[Condition, Edge]
"""A value, and where there is one."""


class Nodes(Tensors):
    """The nodes of `graph` and those that a gradient adds, which stand at `location`."""

    def __init__(self, graph: Graph, location: Location | None) -> None:
        super().__init__(Rewriter(graph), location)
        self.graph = graph
        self.guards = dict(graph.guards)

    @property
    def nodes(self) -> dict[int, Node]:
        return self.rewriter.nodes

    def finished(self) -> Graph:
        return replace(self.graph, nodes=self.nodes, guards=self.guards)

    def identity(self, id: int) -> Edge:
        return self.rewriter.identity(id)

    def is_zero(self, edge: Edge) -> bool:
        """Whether it is what `zeros` makes."""
        node = self.nodes[edge.node]
        if node.op == "broadcast":
            return self.is_zero(node.operands[0])
        return node.is_constant and not node.attr("value").array.any()

    def is_identity(self, edge: Edge) -> bool:
        return edge.map == identity_map(self.nodes[edge.node].domain)

    def through(self, edge: Edge, outer: Mapping[Symbol, Point | Slice]) -> Edge:
        """What `edge` shows with every dim that it varies in replaced; axes of slices in front, in canonical order."""
        domain = self.graph.canonical(edge.dims())
        map = tuple(outer[symbol] for symbol in domain)
        return compose(edge, domain, map) or replace(self.apply("copy", edge), map=map)

    # Merges.

    def choice(self, alternatives: Sequence[Guarded], type: TensorType) -> Edge:
        """The first alternative that holds. Equal choices are one node."""
        cases = tuple(Case(condition, edge) for condition, edge in alternatives)
        return self.rewriter.cases(cases, type, "", ROLE, lambda: self.location)

    def declare(self, domain: tuple[Symbol, ...], type: TensorType, name: str, cases: tuple[Case, ...] = ()) -> Node:
        """A new merge; its cases may come later."""
        attrs = (("name", name), ("role", ROLE))
        merge = Node(-1, "merge", domain, (type,), (), attrs, cases, 0, name, self.location)
        return self.nodes[self.rewriter.declare(merge).node]

    def define(self, id: int, alternatives: Sequence[Guarded]) -> None:
        cases = tuple(Case(condition, edge) for condition, edge in alternatives)
        self.nodes[id] = replace(self.nodes[id], cases=cases)

    def total(self, value: Guarded, type: TensorType) -> Edge:
        """The value where there is one, else zeros."""
        condition, edge = value
        return edge if condition == TRUE else self.choice((value, (TRUE, self.zeros(type))), type)

    def positions(self, start: Expr, length: Expr) -> Edge:
        """`start, start + 1, ...`, int32."""
        found = self.iota((length,), 0)
        return found if start == const(0) else self.add(found, self.number(start))


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
