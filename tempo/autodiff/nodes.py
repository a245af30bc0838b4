"""Making the nodes of a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tempo.errors import Location
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, TensorType, identity_map
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

    @property
    def nodes(self) -> dict[int, Node]:
        return self.rewriter.nodes

    def finished(self) -> Graph:
        return replace(self.graph, nodes=self.nodes)

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
