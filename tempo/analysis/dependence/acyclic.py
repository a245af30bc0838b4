"""Whether no demanded point needs itself, at any sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tempo.analysis.demand.demand import Demand
from tempo.analysis.dependence.host_order import calls_before, effect_nodes
from tempo.analysis.dependence.levels import Direction, Distance, Level, levels
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.symbolic import FALSE, TRUE, Condition, Context, Expr, Symbol, as_expr, var

Interval = tuple[Expr, Expr]


@dataclass(frozen=True)
class Need:
    """Where `guard` holds in the demand of node `target`, it needs `source` at lo <= dim < hi, per dim of `source`.

    `edge` is the read that says so; None for the order of host calls.
    """

    graph: Graph
    source: int
    target: int
    intervals: Mapping[Symbol, Interval]
    guard: Condition
    demand: Demand
    facts: Condition
    edge: Edge | None = None

    @cached_property
    def context(self) -> Context:
        dims = self.graph.domain_dims(self.graph.nodes[self.target])
        nonempty = [hi.gt(lo) for lo, hi in self.intervals.values() if (hi - lo) != as_expr(1)]
        return Context.of(dims, self.facts, self.guard, *nonempty, box=self.demand.box)

    def distance(self, dim: Symbol) -> Distance | None:
        if dim not in self.intervals or dim not in self.graph.nodes[self.target].domain:
            return None
        lo, hi = self.intervals[dim]
        step = var(dim) - lo
        if step.is_const and hi - lo == as_expr(1):
            return Distance(step.as_int(), step.as_int())
        nearest, _ = self.context.constant_bounds(var(dim) - (hi - 1))
        _, farthest = self.context.constant_bounds(var(dim) - lo)
        return Distance(nearest, farthest)

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Need | None:
        met = var(dim) + (delay if direction == "forward" else -delay)
        lo, hi = self.intervals[dim]
        if lo == met and hi == met + 1:
            return self
        guard = self.guard & lo.le(met) & hi.gt(met)
        if guard == FALSE:
            return None
        left = replace(self, intervals={**self.intervals, dim: (met, met + 1)}, guard=guard)
        return left if guard == self.guard or not left.context.infeasible() else None


def stuck_needs(graph: Graph, demands: Mapping[int, Demand], facts: Condition = TRUE) -> list[tuple[Need, ...]]:
    """Components that may hold a cycle: no dim was found along which their needs go one way. Empty: no cycle at all."""
    needs = list(needs_of(graph, demands, facts))
    names = {id: graph.nodes[id].domain for id in demands}
    found = (level for outer in levels(names, needs) for level in outer.walk())
    return [_as_needs(level) for level in found if level.stuck]


def _as_needs(level: Level[int]) -> tuple[Need, ...]:
    return tuple(link for link in level.stuck if isinstance(link, Need))


def needs_of(graph: Graph, demands: Mapping[int, Demand], facts: Condition) -> Iterator[Need]:
    for id, demand in demands.items():
        node = graph.nodes[id]
        for guard, edge in node.guarded_reads():
            if edge.node in demands:
                yield Need(graph, edge.node, id, _intervals(graph, edge), guard, demand, facts, edge)
    for node in effect_nodes(graph):
        for before in calls_before(graph, node):
            for equal, less in before.cones():
                cone = _cone(graph, graph.nodes[before.source], equal, less)
                yield Need(graph, before.source, node.id, cone, TRUE, demands[node.id], facts)


def _intervals(graph: Graph, edge: Edge) -> dict[Symbol, Interval]:
    return {symbol: _interval(index) for symbol, index in zip(graph.nodes[edge.node].domain, edge.map)}


def _interval(index: Point | Slice) -> Interval:
    if isinstance(index, Slice):
        return index.start, index.start + index.length
    return index.index, index.index + 1


def _cone(graph: Graph, other: Node, equal: tuple[Symbol, ...], less: Symbol | None) -> dict[Symbol, Interval]:
    box: dict[Symbol, Interval] = {}
    for dim in graph.domain_dims(other):
        here = var(dim.symbol)
        if dim.symbol in equal:
            box[dim.symbol] = (here, here + 1)
        else:
            box[dim.symbol] = (as_expr(0), here if dim.symbol == less else dim.size)
    return box
