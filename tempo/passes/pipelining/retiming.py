"""Retiming: what is made of values that all come from the same layer is made there, and one value is handed on.

    d[m, l] = a[m, l + 1] + b[m, l + 1]     is     s[m, l] = a[m, l] + b[m, l],    d[m, l] = s[m, l + 1]

as of the gradient of a residual, which comes in two parts.

Source: Leiserson and Saxe, "Retiming Synchronous Circuitry", Algorithmica 6 (1991).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tempo.passes.pipelining.coordinates import behind, distance
from tempo.passes.pipelining.stages import Members, PipelineStages, Recurrence
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.graph import Edge, Graph, Node, Point, index_symbols
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import var

Steps = tuple[int, int]
"""How many layers and microbatches from the reader's own point."""


@dataclass(frozen=True)
class _Retimed:
    """What a node reads of where its operands come from, and of how many values there."""

    away: Steps
    operands: tuple[Edge, ...]
    values: frozenset[int]


@dataclass
class Retiming:
    graph: Graph
    stages: PipelineStages
    members: Members
    found: dict[int, _Retimed] = field(default_factory=dict)

    def apply(self) -> tuple[Graph, Members]:
        """The graph, and what goes through stages in it."""
        for node in self.graph.operands_first():
            if node.id in self.members and not node.is_nominal:
                self._look_at(node)
        wanted = self._wanted()
        if not wanted:
            return self.graph, self.members
        return self._made(wanted)

    def _look_at(self, node: Node) -> None:
        """Whether all that it reads of members comes from one place, and is handed on for it alone."""
        dims = {*self.stages.dims}
        if any(expr.dims() & dims for expr in attribute_exprs(node)):
            return
        places, values = set[Steps](), set[int]()
        for edge in node.operands:
            if edge.node not in self.members:
                if edge.dims() & dims:
                    return
                continue
            away, before = self._away(edge), self.found.get(edge.node)
            if away is None:
                return
            if before is not None and not any(away):
                away, values = before.away, values | before.values
            elif any(self._away(other) == away for other in self._reads_of(edge.node, but=node.id)):
                return
            else:
                values.add(edge.node)
            places.add(away)
        if len(places) == 1 and any(*places):
            self.found[node.id] = _Retimed(places.pop(), node.operands, frozenset(values))

    def _reads_of(self, id: int, but: int) -> Iterator[Edge]:
        return (edge for reader, edge in self.graph.consumers[id] if reader != but and reader in self.members)

    def _away(self, edge: Edge) -> Steps | None:
        shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map, strict=True))
        others = (index for symbol, index in shown.items() if symbol not in self.stages.dims)
        if any(index_symbols(index) & {*self.stages.dims} for index in others):
            return None
        layers, microbatches = (distance(shown[symbol], symbol) for symbol in self.stages.dims)
        return None if layers is None or microbatches is None else (layers, microbatches)

    def _wanted(self) -> set[int]:
        """Those by which fewer values are handed on, with what they read."""
        wanted = {id for id, retimed in self.found.items() if len(retimed.values) > 1}
        pending = list(wanted)
        while pending:
            read = (edge.node for edge in self.found[pending.pop()].operands)
            fresh = {id for id in read if id in self.found} - wanted
            wanted |= fresh
            pending += fresh
        return wanted

    def _made(self, wanted: set[int]) -> tuple[Graph, Members]:
        new, there = Rewriter(self.graph), dict[int, int]()
        members: dict[int, Recurrence] = {id: each for id, each in self.members.items() if id not in wanted}
        for node in self.graph.operands_first():
            if node.id in wanted:
                operands = (self._at_own(edge, there) for edge in self.found[node.id].operands)
                made = Tensors(new, node.location).apply(node.op, *operands, **node.attributes)
                there[node.id] = made.node
                members[made.node] = self.members[node.id]

        def read(edge: Edge) -> Edge:
            if edge.node not in there:
                return edge
            steps = dict(zip(self.stages.dims, self.found[edge.node].away, strict=True))
            shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map, strict=True))
            moved = {symbol: behind(index, steps.get(symbol, 0)) for symbol, index in shown.items()}
            return replace(edge, node=there[edge.node], map=tuple(moved[s] for s in new.nodes[there[edge.node]].domain))

        kept = {id: node.reading(read) for id, node in new.nodes.items() if id not in wanted}
        outputs = tuple(replace(each, edge=read(each.edge)) for each in self.graph.outputs)
        return replace(self.graph, nodes=kept, outputs=outputs), members

    def _at_own(self, edge: Edge, there: dict[int, int]) -> Edge:
        if edge.node in there:
            return replace(edge, node=there[edge.node])
        if edge.node not in self.members:
            return edge
        domain = self.graph.nodes[edge.node].domain
        own = {symbol: Point(var(symbol)) for symbol in self.stages.dims}
        return replace(edge, map=tuple(own.get(symbol, index) for symbol, index in zip(domain, edge.map)))
