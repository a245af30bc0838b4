"""Cycles that there are at all sizes: paths along needs that lead back to the point where they began."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tempo.analysis.checks.witness import witness
from tempo.analysis.demand.demand import Demand
from tempo.analysis.demand.images import PointSet, images
from tempo.analysis.dependence.acyclic import Need
from tempo.analysis.reports import SymbolicInstance, output_reader
from tempo.sdg.graph import Graph
from tempo.symbolic import FALSE, TRUE, Box, Condition, Context, Expr, Symbol, as_expr, conjunction, var

MOST_STEPS = 2_000
"""Steps of the search for such cycles; one that is not found in so many is found when sizes are known."""


def definite_cycle(
    needs: tuple[Need, ...], seeds: Mapping[int, list[Demand]], facts: Condition = TRUE
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


def demanded_by(
    graph: Graph, members: frozenset[int], exact: Mapping[int, Demand], facts: Condition
) -> dict[int, list[Demand]]:
    """Per member, boxes of points that outputs, sinks and the other nodes, of `exact` demand, demand for certain."""
    found: dict[int, list[Demand]] = {id: [] for id in members}
    readers = [(graph.nodes[id], demand.box) for id, demand in exact.items() if id not in members]
    for output in graph.outputs:
        readers.append((output_reader(output), _full(graph, output.domain)))
    for reader, box in readers:
        if members.isdisjoint(edge.node for _, edge in reader.reads()):
            continue
        for id, region in images(graph, reader, PointSet(box, exact=True), facts):
            if id in members and region.exact:
                found[id].append(Demand(region.box, exact=True))
    for id in members.intersection(graph.sinks):
        found[id].append(Demand(_full(graph, graph.nodes[id].domain), exact=True))
    return found


def _full(graph: Graph, domain: Iterable[Symbol]) -> Box:
    return Box.full(graph.dim(symbol) for symbol in domain)


def behind(graph: Graph, members: Iterable[int]) -> frozenset[int]:
    """The nodes that the given ones reach through reads, themselves among them."""
    pending, seen = list(members), set[int]()
    while pending:
        id = pending.pop()
        if id not in seen:
            seen.add(id)
            pending.extend(edge.node for _, edge in graph.nodes[id].reads())
    return frozenset(seen)


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


def _closed(path: tuple[Hop, ...], seed: Demand, facts: Condition) -> tuple[SymbolicInstance, ...] | None:
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
