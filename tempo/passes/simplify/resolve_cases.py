"""Reads of a definition where sizes alone say which cases can hold: they read what the case reads.

`h[0] = a; h[t + 1] = f(h, h[0])` reads `a` at 0 instead of h. So h needs h only at the step before, and no schedule has
to split off the point 0 first. Where several cases are left, as of `w[i, 0]` for a `w` that goes on from
`w[i - 1, -1]`, they become a definition of their own over the dims that are left. A slice that sees no other points
than those of one case reads what the case reads at all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import rewrite_graph
from tempo.passes.simplify.simplify import possible_cases
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice
from tempo.sdg.read_composition import compose
from tempo.symbolic import TRUE, Context, Expr, Symbol, var

_LIMIT = 100  # a definition that reads itself at one point is a cycle, which is reported where it is demanded


@dataclass(frozen=True)
class Decide:
    """Only what sizes alone decide once the point is put in is decided, so that the pass is cheap."""

    name: ClassVar[str] = "decide"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        for _ in range(_LIMIT):
            decided = _Resolution(graph, context.over(graph, ())).graph()
            if decided == graph:
                break
            graph = rewrite_graph(decided, context)  # what reads less may vary along fewer dims
        return graph


class _Resolution:
    def __init__(self, graph: Graph, sizes: Context) -> None:
        self.old, self.sizes = graph, sizes
        self.new = NodeBuilder(graph.dims, graph.nodes)
        self.nodes = self.new.nodes
        self.may_fail = any(node.has_effect for node in graph.nodes.values())

    def graph(self) -> Graph:
        outputs = tuple(map(self.shown, self.old.outputs))
        self.nodes.update({id: node.reading(self.resolved) for id, node in self.old.nodes.items()})
        for id in _on_cycles(self.old, self.nodes):
            self.nodes[id] = self.old.nodes[id]
        read = {edge.node for node in self.nodes.values() for _, edge in node.reads()}
        read.update(output.edge.node for output in outputs)
        kept = {id: node for id, node in self.nodes.items() if id in self.old.nodes or id in read}
        return replace(self.old, nodes=kept, outputs=outputs)

    def shown(self, output: Output) -> Output:
        """Where a run may fail in the middle, any point along the first of a parameter's dims may be the last."""
        edge, domain = output.edge, self.nodes[output.edge.node].domain
        ends = {
            symbol: at.index for symbol, at in zip(domain, edge.map) if isinstance(at, Point) and not at.index.dims()
        }
        if output.role != "state" or not self.may_fail or not ends:
            return replace(output, edge=self.resolved(edge))
        first = next(iter(ends))
        at_any = (Point(var(first)) if symbol == first else at for symbol, at in zip(domain, edge.map))
        found = self.resolved(replace(edge, map=tuple(at_any)))
        return replace(output, edge=found.substitute({first: ends[first]}))

    def resolved(self, edge: Edge) -> Edge:
        for _ in range(_LIMIT):
            found = self.decided(edge)
            if found is None:
                return edge
            edge = found
        return edge

    def decided(self, edge: Edge) -> Edge | None:
        """What is read instead: by the only case that can hold at the point read, or a definition of those that can."""
        node = self.nodes[edge.node]
        if not node.is_merge:
            return None
        point = {symbol: index.index for symbol, index in zip(node.domain, edge.map) if isinstance(index, Point)}
        if len(point) < len(node.domain):
            return self.decided_along(node, edge, point)
        cases = [
            replace(case, condition=case.condition.substitute(point), edge=case.edge.substitute(point))
            for case in node.cases
        ]
        fixed = any(not index.dims() for index in point.values())
        if not fixed and cases and cases[0].condition.dims():
            return None
        left = possible_cases(tuple(cases), self.sizes)
        if left and left[0].condition == TRUE:
            return self.like(edge, left[0].edge)
        if not fixed or len(left) in (0, len(cases)):
            return None
        type = self.new.seen_type(edge)
        return self.like(edge, self.new.cases(left, type, node.name, locate=lambda: node.location))

    def decided_along(self, node: Node, edge: Edge, point: Mapping[Symbol, Expr]) -> Edge | None:
        """What is read instead of slices by the only case that can hold at the points seen."""
        slices = [(symbol, index) for symbol, index in zip(node.domain, edge.map) if isinstance(index, Slice)]
        if edge.dims() or all(index.length == self.old.dim(symbol).size for symbol, index in slices):
            return None
        here = self.sizes.assume(
            *(var(symbol).ge(index.start) & var(symbol).lt(index.start + index.length) for symbol, index in slices)
        )
        cases = (replace(case, condition=case.condition.substitute(point)) for case in node.cases)
        left = possible_cases(tuple(cases), here)
        found = compose(left[0].edge, node.domain, edge.map) if left and left[0].condition == TRUE else None
        return None if found is None else self.like(edge, found)

    def like(self, edge: Edge, found: Edge) -> Edge | None:
        """`found`, where it shows what `edge` does: a case may be of fewer axes at one point."""
        return found if self.new.seen_type(found) == self.new.seen_type(edge) else None


def _on_cycles(graph: Graph, changed: dict[int, Node]) -> list[int]:
    """Changed nodes on a cycle that runs through no merge: they stay as they were, and so does every cycle."""
    reads = {id: [] if node.is_merge else [edge.node for edge in node.operands] for id, node in changed.items()}
    components = strongly_connected(list(changed), reads)
    cyclic = (id for component in components for id in component if len(component) > 1 or id in reads[id])
    return [id for id in cyclic if id in graph.nodes and changed[id] is not graph.nodes[id]]
