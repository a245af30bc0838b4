"""Whether no demanded point needs itself, at any sizes; and cycles that there are at all sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tempo.analysis.demand import Demand
from tempo.analysis.host_order import effect_nodes
from tempo.analysis.levels import Direction, Distance, Level, levels
from tempo.analysis.reports import SymbolicInstance
from tempo.analysis.witness import witness
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.symbolic import FALSE, TRUE, Box, Condition, Context, Expr, Symbol, as_expr, var

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
        nearest, _ = self.context.constant_bounds(var(dim) - (hi - 1))
        _, farthest = self.context.constant_bounds(var(dim) - lo)
        return Distance(nearest, farthest)

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Need | None:
        met = var(dim) + (delay if direction == "forward" else -delay)
        lo, hi = self.intervals[dim]
        guard = self.guard & lo.le(met) & hi.gt(met)
        left = Need(
            self.graph,
            self.source,
            self.target,
            {**self.intervals, dim: (met, met + 1)},
            guard,
            self.demand,
            self.facts,
            self.edge,
        )
        return None if left.context.infeasible() else left


def stuck_needs(graph: Graph, demands: Mapping[int, Demand], facts: Condition = TRUE) -> list[tuple[Need, ...]]:
    """Components that may hold a cycle: no dim was found along which their needs go one way. Empty: no cycle at all."""
    needs = list(_needs(graph, demands, facts))
    names = {id: graph.nodes[id].domain for id in demands}
    found = (level for outer in levels(names, needs) for level in outer.walk())
    return [_as_needs(level) for level in found if level.stuck]


def _as_needs(level: Level[int]) -> tuple[Need, ...]:
    return tuple(link for link in level.stuck if isinstance(link, Need))


def _needs(graph: Graph, demands: Mapping[int, Demand], facts: Condition) -> Iterator[Need]:
    for id, demand in demands.items():
        node = graph.nodes[id]
        for guard, edge in node.guarded_reads():
            if edge.node in demands:
                yield Need(graph, edge.node, id, _intervals(graph, edge), guard, demand, facts, edge)
    for node in effect_nodes(graph):
        for source, intervals in _calls_before(graph, node):
            yield Need(graph, source, node.id, intervals, TRUE, demands[node.id], facts)


def _intervals(graph: Graph, edge: Edge) -> dict[Symbol, Interval]:
    return {symbol: _interval(index) for symbol, index in zip(graph.nodes[edge.node].domain, edge.map)}


def _interval(index: Point | Slice) -> Interval:
    if isinstance(index, Slice):
        return index.start, index.start + index.length
    return index.index, index.index + 1


def _calls_before(graph: Graph, node: Node) -> Iterator[tuple[int, dict[Symbol, Interval]]]:
    """The calls that come before a call of `node`, as boxes: equal along some dims, less along one, any else."""
    ordered = node.attr("ordered_by", ())
    fixed = tuple(symbol for symbol in node.domain if symbol not in ordered)
    for depth, symbol in enumerate(ordered):
        yield node.id, _cone(graph, node, fixed + ordered[:depth], symbol)
    for other in effect_nodes(graph):
        if other.id == node.id or node.attr("resource") is None or other.attr("resource") != node.attr("resource"):
            continue
        shared = tuple(symbol for symbol in ordered if symbol in other.attr("ordered_by", ()))
        for depth, symbol in enumerate(shared):
            yield other.id, _cone(graph, other, shared[:depth], symbol)
        if (other.declaration or 0) < (node.declaration or 0):
            yield other.id, _cone(graph, other, shared, None)


def _cone(graph: Graph, other: Node, equal: tuple[Symbol, ...], less: Symbol | None) -> dict[Symbol, Interval]:
    box: dict[Symbol, Interval] = {}
    for dim in graph.domain_dims(other):
        here = var(dim.symbol)
        if dim.symbol in equal:
            box[dim.symbol] = (here, here + 1)
        else:
            box[dim.symbol] = (as_expr(0), here if dim.symbol == less else dim.size)
    return box


# Cycles that there are at all sizes: along points that lead back to the point where they began.

MOST_STEPS = 2_000
"""Steps of the search for such cycles; one that is not found in so many is found when sizes are known."""


def definite_cycle(needs: tuple[Need, ...], facts: Condition = TRUE) -> tuple[SymbolicInstance, ...] | None:
    """Instances, at points in sizes, of which each needs the next and the last the first, whatever the sizes are."""
    followed = [need for need in needs if need.edge is not None and _is_point(need.edge)]
    by_target: dict[int, list[Need]] = {}
    for need in followed:
        by_target.setdefault(need.target, []).append(need)
    for path in itertools.islice(_loops(by_target), MOST_STEPS):
        cycle = _closed(path, facts) if path else None
        if cycle:
            return cycle
    return None


def _is_point(edge: Edge) -> bool:
    return all(isinstance(index, Point) for index in edge.map)


def _loops(by_target: Mapping[int, list[Need]]) -> Iterator[tuple[Need, ...]]:
    """Simple cycles, each from its least node; an empty one per step of the search in between."""
    for start in sorted(by_target):
        paths: list[tuple[Need, ...]] = [(need,) for need in by_target[start]]
        while paths:
            path = paths.pop()
            end = path[-1].source
            yield path if end == start else ()
            visited = {need.target for need in path}
            if end > start and end not in visited:
                paths.extend((*path, need) for need in by_target.get(end, ()))


def _closed(path: tuple[Need, ...], facts: Condition) -> tuple[SymbolicInstance, ...] | None:
    """The cycle along `path` if it leads back to the same point, and does so from some demanded point at all sizes."""
    first = path[0].graph.nodes[path[0].target]
    here: dict[Symbol, Expr] = {symbol: var(symbol) for symbol in first.domain}
    points: list[tuple[int, dict[Symbol, Expr]]] = []
    holds: Condition = TRUE
    for need in path:
        points.append((need.target, here))
        holds = holds & need.guard.substitute(here)
        here = {symbol: lo.substitute(here) for symbol, (lo, _) in need.intervals.items()}
        holds = holds & _inside(need, here)
    if here != {symbol: var(symbol) for symbol in first.domain}:
        return None
    found = witness(path[0].demand, holds, FALSE, facts)
    if found is None:
        return None
    sizes = Context.of((), facts)
    return tuple(
        SymbolicInstance(id, tuple(sizes.simplify(value.substitute(found)) for value in point.values()))
        for id, point in points
    )


def _inside(need: Need, point: Mapping[Symbol, Expr]) -> Condition:
    return Box.full(need.graph.domain_dims(need.graph.nodes[need.source])).contains(point)
