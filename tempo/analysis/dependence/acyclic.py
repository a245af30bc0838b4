"""Whether no demanded point needs itself, at any sizes; and cycles that there are at all sizes.

These are paths along needs that lead back to the point where they began, a point that is demanded at all sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tempo.analysis.demand.demand import Demand
from tempo.analysis.dependence.host_order import effect_nodes, order_edges
from tempo.analysis.dependence.levels import Direction, Distance, LoopBody, blocks
from tempo.analysis.reports import SymbolicInstance
from tempo.sdg.graph import Edge, Graph, Point, Slice
from tempo.symbolic import (
    FALSE,
    TRUE,
    Box,
    Condition,
    Context,
    Expr,
    Symbol,
    as_expr,
    conjunction,
    var,
)
from tempo.symbolic.widths import expressions_of

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


def bodies(graph: Graph, demands: Mapping[int, Demand], facts: Condition = TRUE) -> list[LoopBody[int, Need]]:
    """What stands side by side inside the loops that the program cannot do without, inner bodies first."""
    return blocks({id: graph.nodes[id].domain for id in demands}, list(needs_of(graph, demands, facts)))


def sequential_dims(found: Iterable[LoopBody[int, Need]]) -> dict[int, frozenset[Symbol]]:
    """The dims that each node goes through one by one: those of loops around it, and all where no order was found."""
    dims: dict[int, frozenset[Symbol]] = {}
    for body in found:
        for unit in body.units:
            for name in unit.names:
                looped = body.dims[name] if unit.stuck else (unit.loop.dim,) if unit.loop else ()
                dims[name] = dims.get(name, frozenset()) | frozenset(looped)
    return dims


def stuck_needs(graph: Graph, demands: Mapping[int, Demand], facts: Condition = TRUE) -> list[tuple[Need, ...]]:
    """Components that may hold a cycle: no dim was found along which their needs go one way. Empty: no cycle at all."""
    return [level.stuck for body in bodies(graph, demands, facts) for level in body.units if level.stuck]


def needs_of(graph: Graph, demands: Mapping[int, Demand], facts: Condition) -> Iterator[Need]:
    for id, demand in demands.items():
        node = graph.nodes[id]
        for guard, edge in node.guarded_reads():
            if edge.node in demands:
                yield Need(graph, edge.node, id, _intervals(graph, edge), guard, demand, facts, edge)
    for node in effect_nodes(graph):
        for edge in order_edges(graph, node):
            yield Need(graph, edge.node, node.id, _intervals(graph, edge), TRUE, demands[node.id], facts)


def _intervals(graph: Graph, edge: Edge) -> dict[Symbol, Interval]:
    return {symbol: points_read(index) for symbol, index in zip(graph.nodes[edge.node].domain, edge.map)}


def points_read(index: Point | Slice) -> Interval:
    """From which point of a dim to before which."""
    if isinstance(index, Slice):
        return index.start, index.start + index.length
    return index.index, index.index + 1


MOST_STEPS = 2_000
"""Steps of the search for such cycles; one that is not found in so many is found when sizes are known."""


def definite_cycle(
    needs: tuple[Need, ...], seeds: Mapping[int, Sequence[Box]], facts: Condition = TRUE
) -> tuple[SymbolicInstance, ...] | None:
    """Instances, at points in sizes, of which each needs the next and the last the first, whatever the sizes are.

    `seeds` are points that are demanded from outside the component: what only the component itself demands is not
    demanded at all.
    """
    by_target: dict[int, list[Hop]] = {}
    for hop in (hop for need in needs for hop in _hops(need)):
        by_target.setdefault(hop.need.target, []).append(hop)
    for path in itertools.islice(_loops(by_target), MOST_STEPS):
        turned = (path[first:] + path[:first] for first in range(len(path)))
        starts = ((path, seed) for path in turned for seed in seeds.get(path[0].need.target, ()))
        cycle = next(filter(None, (_closed(path, seed, facts) for path, seed in starts)), None)
        if cycle:
            return cycle
    return None


@dataclass(frozen=True)
class Hop:
    """A need of one point: where the need's guard and `inside` hold, it needs its source at `point`."""

    need: Need
    point: Mapping[Symbol, Expr]
    inside: Condition


def _hops(need: Need) -> Iterator[Hop]:
    """Of a slice the point of the reader itself, the first and the last."""
    if need.edge is None:
        return
    domain = need.graph.nodes[need.target].domain
    choices = []
    for symbol, (lo, hi) in need.intervals.items():
        own = [var(symbol)] if symbol in domain else []
        choices.append([lo] if hi - lo == as_expr(1) else list(dict.fromkeys([*own, lo, hi - 1])))
    full = Box.full(need.graph.domain_dims(need.graph.nodes[need.source]))
    for chosen in itertools.product(*choices):
        point = dict(zip(need.intervals, chosen))
        between = (lo.le(point[symbol]) & hi.gt(point[symbol]) for symbol, (lo, hi) in need.intervals.items())
        yield Hop(need, point, conjunction((*between, full.contains(point))))


def _loops(by_target: Mapping[int, list[Hop]]) -> Iterator[tuple[Hop, ...]]:
    """Simple cycles, each from its least node; an empty one per step of the search in between."""
    for start in sorted(by_target):
        paths: list[tuple[Hop, ...]] = [(hop,) for hop in by_target[start]]
        while paths:
            path = paths.pop()
            end = path[-1].need.source
            yield path if end == start else ()
            visited = {hop.need.target for hop in path}
            if end > start and end not in visited:
                paths.extend((*path, hop) for hop in by_target.get(end, ()))


def _closed(path: tuple[Hop, ...], seed: Box, facts: Condition) -> tuple[SymbolicInstance, ...] | None:
    """The cycle along `path`, if there is a point among those of `seed` from which it leads back to that point."""
    domain = path[0].need.graph.nodes[path[0].need.target].domain
    here: dict[Symbol, Expr] = {symbol: var(symbol) for symbol in domain}
    points: list[tuple[int, dict[Symbol, Expr]]] = []
    holds: Condition = TRUE
    for hop in path:
        points.append((hop.need.target, here))
        holds = holds & (hop.need.guard & hop.inside).substitute(here)
        here = {symbol: value.substitute(here) for symbol, value in hop.point.items()}
    back = conjunction(here[symbol].eq(var(symbol)) for symbol in domain)
    found = witness(seed, holds & back, FALSE, facts)
    if found is None:
        return None
    sizes = Context.of((), facts)
    return tuple(
        SymbolicInstance(id, tuple(sizes.simplify(value.substitute(found)) for value in point.values()))
        for id, point in points
    )


MOST_CANDIDATES = 256
_MOST_VALUES = 8


def witness(box: Box, holds: Condition, fails: Condition, facts: Condition) -> dict[Symbol, Expr] | None:
    """A point of a box, in sizes, at which `holds` is true and `fails` is false whatever the sizes are.

    None where there is none among the corners of the box and the points at which conditions turn.
    """
    sizes, inside = Context.of((), facts), box.condition() & holds
    for point in _candidates(box, holds, fails):
        if not sizes.implies(inside.substitute(point)):
            continue
        if sizes.excludes(fails.substitute(point)):
            return {symbol: sizes.simplify(value) for symbol, value in point.items()}
    return None


def _candidates(box: Box, holds: Condition, fails: Condition) -> Iterator[dict[Symbol, Expr]]:
    turns = [*_turning_points(holds), *_turning_points(fails)]
    values = []
    for symbol, lo, hi in box.bounds:
        found = dict.fromkeys([lo, hi - 1, *(value for turning, value in turns if turning == symbol)])
        values.append([value for value in found if not value.dims()][:_MOST_VALUES])
    points = itertools.product(*values)
    for point in itertools.islice(points, MOST_CANDIDATES):
        yield dict(zip(box.dims, point))


def _turning_points(condition: Condition) -> Iterator[tuple[Symbol, Expr]]:
    """Values of a dim, in sizes, on both sides of where a comparison changes."""
    for expr in expressions_of(condition):
        for atom, coefficient in expr.terms:
            if isinstance(atom, Symbol) and atom.kind == "dim" and abs(coefficient) == 1:
                zero = (expr - var(atom) * coefficient) * -coefficient
                yield from ((atom, zero + step) for step in (0, -coefficient, coefficient))
