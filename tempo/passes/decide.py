"""Reads of a definition at one point, where sizes alone say which case holds there: they read what the case reads.

`h[0] = a; h[t + 1] = f(h, h[0])` reads `a` at 0 instead of h. So h needs h only at the step before, and no schedule has
to split off the point 0 first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.analysis.components import strongly_connected
from tempo.passes.manager import PassContext
from tempo.passes.sweep import rewrite_graph
from tempo.sdg.graph import Case, Edge, Graph, Node, Point
from tempo.symbolic import Context

_LIMIT = 100  # a definition that reads itself at one point is a cycle, which is reported where it is demanded


@dataclass(frozen=True)
class Decide:
    """Only conditions that mention no dim once the point is put in are decided, so that the pass is cheap."""

    name: ClassVar[str] = "decide"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        for _ in range(_LIMIT):
            decided = _decide(graph, context.over(graph, ()))
            if decided == graph:
                break
            graph = rewrite_graph(decided, context)  # what reads less may vary along fewer dims
        return graph


def _decide(graph: Graph, sizes: Context) -> Graph:
    changed = {id: _through(graph, node, sizes) for id, node in graph.nodes.items()}
    for id in _on_cycles(graph, changed):
        changed[id] = graph.nodes[id]
    outputs = tuple(replace(output, edge=_resolved(graph, output.edge, sizes)) for output in graph.outputs)
    return replace(graph, nodes=changed, outputs=outputs)


def _through(graph: Graph, node: Node, sizes: Context) -> Node:
    operands = tuple(_resolved(graph, edge, sizes) for edge in node.operands)
    cases = tuple(_case(graph, case, sizes) for case in node.cases)
    return node if operands == node.operands and cases == node.cases else replace(node, operands=operands, cases=cases)


def _case(graph: Graph, case: Case, sizes: Context) -> Case:
    edge = _resolved(graph, case.edge, sizes)
    return case if edge == case.edge else replace(case, edge=edge)


def _resolved(graph: Graph, edge: Edge, sizes: Context) -> Edge:
    for _ in range(_LIMIT):
        found = _decided(graph, edge, sizes)
        if found is None:
            return edge
        edge = found
    return edge


def _decided(graph: Graph, edge: Edge, sizes: Context) -> Edge | None:
    """What the case reads that is the first to hold at the point read."""
    node = graph.nodes[edge.node]
    if node.op != "merge":
        return None
    point = {symbol: index.index for symbol, index in zip(node.domain, edge.map) if isinstance(index, Point)}
    if len(point) < len(node.domain):
        return None
    for case in node.cases:
        condition = case.condition.substitute(point)
        if any(symbol.kind == "dim" for symbol in condition.symbols()):
            return None
        if sizes.implies(condition):
            found = case.edge.substitute(point)
            return found if graph.seen_type(found) == graph.seen_type(edge) else None
        if not sizes.excludes(condition):
            return None
    return None


def _on_cycles(graph: Graph, changed: dict[int, Node]) -> list[int]:
    """Changed nodes on a cycle that runs through no merge: they stay as they were, and so does every cycle."""
    reads = {id: [] if node.op == "merge" else [edge.node for edge in node.operands] for id, node in changed.items()}
    components = strongly_connected(list(changed), reads)
    cyclic = (id for component in components for id in component if len(component) > 1 or id in reads[id])
    return [id for id in cyclic if changed[id] is not graph.nodes[id]]
