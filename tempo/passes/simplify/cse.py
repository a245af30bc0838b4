"""Common subexpressions up to a shift: a node that another one is, some points earlier or later, is read from there.

    a[t] = f(x[t]),  b[t] = f(x[t - 1])     then b[t] = a[t - 1], where b is needed only at points t >= 1

Sweeps make equal nodes one (`rewrite.driver`). Here every node gets a class and a shift: its value at p is that of
the class at p + shift. The class is the node's expression over classes, moved so that the first index with a dim has
no constant beside it. Names and locations stand outside; a nominal node is the only one of its class.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.analysis.demand.demand import Demand
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.exact import exact
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, index_exprs, substitute_index
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Condition, Expr, Symbol, var

Shift = Mapping[Symbol, int]

# Cheaper to make than to keep and read; what they are made of is looked for all the same.
_CHEAP = frozenset({"movement", "creation"})


@dataclass(frozen=True)
class CommonSubexpressions:
    """Reads of a node go to the first one of its class that is defined wherever the node is needed."""

    name: ClassVar[str] = "cse"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        merged = _Merging(graph, context).replacements()
        if not merged:
            return graph
        nodes = {id: node.reading(lambda edge: _through(edge, merged)) for id, node in graph.nodes.items()}
        outputs = tuple(replace(output, edge=_through(output.edge, merged)) for output in graph.outputs)
        return without_dead_nodes(replace(graph, nodes=nodes, outputs=outputs))


Replacements = Mapping[int, tuple[int, tuple[tuple[Symbol, int], ...]]]
"""For a node the one to read instead, and by how much further."""


def _through(edge: Edge, merged: Replacements) -> Edge:
    if edge.node not in merged:
        return edge
    other, shift = merged[edge.node]
    return replace(edge, node=other, map=tuple(_moved(index, by) for index, (_, by) in zip(edge.map, shift)))


def _moved(index: Point | Slice, by: int) -> Point | Slice:
    if isinstance(index, Point):
        return Point(index.index + by)
    return replace(index, start=index.start + by)


class _Merging:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.context = context
        self.classes: dict[int, tuple[int, Shift]] = {}
        self.known: dict[Hashable, int] = {}
        self.members: dict[int, list[int]] = {}

    def replacements(self) -> Replacements:
        for node in self.graph.operands_first():
            id = node.id
            self.classes[id] = (self._number(("nominal", id)), {}) if node.is_nominal else self._class(node)
            self.members.setdefault(self.classes[id][0], []).append(id)
        several = [ids for ids in self.members.values() if len(ids) > 1]
        if not several:
            return {}
        demands = self.context.demand(self.graph)
        return {id: found for ids in several for id in ids[1:] if (found := self._first(id, ids, demands)) is not None}

    def _class(self, node: Node) -> tuple[int, Shift]:
        operands = tuple(self._read(edge) for edge in node.operands)
        shift = {symbol: _constant_beside(symbol, operands) for symbol in node.domain}
        back: dict[Symbol, Expr] = {symbol: var(symbol) - by for symbol, by in shift.items()}

        def moved(value: Expr | Condition) -> Expr | Condition:
            return value.substitute(back)

        attrs = OPERATORS[node.op].with_exprs(node.attributes, moved)
        key = (
            node.op,
            tuple((edge.node, edge.result, tuple(substitute_index(i, back) for i in edge.map)) for edge in operands),
            exact(attrs),
            tuple(size.substitute(back) for size in node.shape),
            node.dtype,
            node.domain,
        )
        return self._number(key), shift

    def _number(self, key: Hashable) -> int:
        return self.known.setdefault(key, len(self.known))

    def _read(self, edge: Edge) -> Edge:
        """The read in terms of classes: `edge.node` is the number of one."""
        number, shift = self.classes[edge.node]
        domain = self.graph.nodes[edge.node].domain
        map = tuple(_moved(index, shift.get(symbol, 0)) for symbol, index in zip(domain, edge.map))
        return Edge(number, map, edge.result)

    def _first(
        self, id: int, ids: list[int], demands: Mapping[int, Demand]
    ) -> tuple[int, tuple[tuple[Symbol, int], ...]] | None:
        """The first member that has a value wherever this one is needed, and the shift to it."""
        node = self.graph.nodes[id]
        if OPERATORS[node.op].kind in _CHEAP or id not in demands:
            return None
        for other in ids[: ids.index(id)]:
            shift = tuple((s, self.classes[id][1][s] - self.classes[other][1][s]) for s in node.domain)
            if all(self._within(s, by, demands[id]) for s, by in shift):
                return other, shift
        return None

    def _within(self, symbol: Symbol, by: int, needed: Demand) -> bool:
        if by > 0 and symbol in self.graph.stops:
            return False  # a later point may never be made
        sizes = self.context.over(self.graph, ())
        lo, hi = needed.box.interval(symbol)
        return not by or (sizes.implies((lo + by).ge(0)) and sizes.implies((hi + by).le(self.graph.dim(symbol).size)))


def _constant_beside(symbol: Symbol, operands: tuple[Edge, ...]) -> int:
    """c of the first index `d + c` of a dim d; 0 where there is none."""
    for edge in operands:
        for index in edge.map:
            for expr in index_exprs(index):
                if expr.terms == ((symbol, 1),):
                    return expr.const
    return 0
