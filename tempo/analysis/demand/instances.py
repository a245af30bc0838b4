"""Exact demand at known sizes: which points of which node have to exist, and whether one of them needs itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.demand.reads import ReadBoxes, RunSizes, edge_reads, point_ranges, reads_at, reads_of_point
from tempo.analysis.dependence.host_order import close_to_prefixes, order_edges, order_reads
from tempo.analysis.dependence.levels import Direction, Distance, blocks
from tempo.analysis.reports import Instance
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]
Masks = dict[int, Array]

ROUNDS = 24
"""Rounds in which a component must settle from below, before it is tried, in as many, from above."""


def demanded(graph: Graph, sizes: Mapping[Symbol, int]) -> Masks:
    """For each node, over its domain, the points that an output or an effect needs.

    Sinks are needed everywhere; host calls with all calls before them along their ordered dims. Reads outside a domain
    need nothing there (`tempo.analysis.checks.checks` reports them).
    """
    return _DemandedPoints(RunSizes.of(graph, sizes)).solve()


class _DemandedPoints:
    """A least fixed point over the node graph, one strongly connected component after another, consumers first."""

    def __init__(self, sizes: RunSizes) -> None:
        self.sizes = sizes
        self.graph = sizes.graph
        self.masks: Masks = {
            node.id: np.zeros(sizes.shape(node.domain), np.bool_) for node in self.graph.nodes.values()
        }

    def solve(self) -> Masks:
        self._seed()
        roots = [output.edge.node for output in self.graph.outputs] + list(self.graph.sinks)
        successors = {node.id: tuple(edge.node for _, edge in node.reads()) for node in self.graph.nodes.values()}
        for members in reversed(strongly_connected(roots, successors)):
            self._close(members, self.masks)
            if len(members) > 1 or members[0] in successors[members[0]]:
                self._settle(frozenset(members))
            self._pass_on(members)
        return self.masks

    def _seed(self) -> None:
        for output in self.graph.outputs:
            points = self.sizes.all_points(output.domain)
            self._mark(self.masks, edge_reads(self.sizes, -1, output.domain, output.edge, points))
        for id in self.graph.sinks:
            self.masks[id][...] = True

    def _mark(self, masks: Masks, reads: ReadBoxes) -> None:
        mask = masks[reads.source]
        reads.inside(mask.shape).mark(mask)

    def _close(self, members: Iterable[int], masks: Masks) -> None:
        for id in members:
            masks[id] = close_to_prefixes(self.graph.nodes[id], masks[id])

    def _reads(self, id: int, mask: Array) -> Iterator[ReadBoxes]:
        if count := int(np.count_nonzero(mask)):
            points = _points(mask)
            yield from (read for _, read in reads_at(self.sizes, self.graph.nodes[id], points, count).reads)

    def _pass_on(self, members: tuple[int, ...]) -> None:
        inner = frozenset(members)
        for id in members:
            for read in self._reads(id, self.masks[id]):
                if read.source not in inner:
                    self._mark(self.masks, read)

    # Within a component that feeds itself.

    def _settle(self, members: frozenset[int]) -> None:
        """Marks what the marked points need, round by round; where that takes long, from above, if it may be."""
        frontier = {id: self.masks[id].copy() for id in members}
        for rounds in itertools.count():
            if not any(mask.any() for mask in frontier.values()):
                return
            if rounds == ROUNDS and (found := self._from_above(members)) is not None:
                self.masks.update(found)
                return
            needed = self._needed_by(members, frontier)
            self._close(members, needed)
            frontier = {id: needed[id] & ~self.masks[id] for id in members}
            for id in members:
                self.masks[id] |= frontier[id]

    def _needed_by(self, members: frozenset[int], masks: Masks) -> Masks:
        needed = {id: np.zeros_like(self.masks[id]) for id in members}
        for id in members:
            for read in self._reads(id, masks[id]):
                if read.source in members:
                    self._mark(needed, read)
        return needed

    def _from_above(self, members: frozenset[int]) -> Masks | None:
        """Assumes that all points that may be needed are, and drops those that nothing needs, round by round.

        Where no instance needs itself the fixed point is unique, so what this reaches is the least one; a recurrence
        over 100,000 steps settles in one round. None when it does not settle, or cycles are not excluded.
        """
        seeds = {id: self.masks[id] for id in members}
        current = {id: self._hull(id) for id in members}
        for _ in range(ROUNDS):
            needed = self._needed_by(members, current)
            following = {id: needed[id] | seeds[id] for id in members}
            self._close(members, following)
            if all(np.array_equal(following[id], current[id]) for id in members):
                return current if well_founded(self.graph, list(self._inner_reads(members, current))) else None
            current = following
        return None

    def _hull(self, id: int) -> Array:
        """The points that the symbolic demand does not exclude."""
        mask = np.zeros_like(self.masks[id])
        bounds = self._symbolic[id].box.evaluate(self.sizes.symbols)
        mask[tuple(slice(max(int(lo), 0), max(int(hi), 0)) for lo, hi in bounds)] = True
        return mask

    @cached_property
    def _symbolic(self) -> Mapping[int, Demand]:
        return demand(self.graph)

    def _inner_reads(self, members: frozenset[int], masks: Masks) -> Iterator[ReadBoxes]:
        for id in (id for id in members if masks[id].any()):
            order = order_reads(self.graph, self.sizes, self.graph.nodes[id], _points(masks[id]))
            found = (*self._reads(id, masks[id]), *order)
            yield from (read.inside(masks[read.source].shape) for read in found if read.source in members)


def _points(mask: Array) -> tuple[Array, ...]:
    return np.nonzero(mask) if mask.ndim else ()


def find_cycle(
    graph: Graph, sizes: Mapping[Symbol, int], masks: Mapping[int, Array] | None = None
) -> tuple[Instance, ...] | None:
    """Demanded instances of which each needs the next and the last the first, through data or the order of calls.

    `masks` is what `demanded` gave, if that is known already. None when there is no cycle.
    """
    at = RunSizes.of(graph, sizes)
    found = dict(demanded(graph, sizes) if masks is None else masks)
    demand = _DemandedPoints(at)
    demand.masks = found
    everything = frozenset(id for id, mask in found.items() if mask.any())
    if well_founded(graph, list(demand._inner_reads(everything, found))):
        return None
    return _walk(graph, at, found)


def _walk(graph: Graph, sizes: RunSizes, masks: Masks) -> tuple[Instance, ...] | None:
    """Depth first through the demanded instances, on a stack of our own."""
    finished = {id: np.zeros_like(mask) for id, mask in masks.items()}
    for id, mask in masks.items():
        for point in map(tuple, np.argwhere(mask).tolist()):
            cycle = _walk_from(graph, sizes, masks, finished, Instance(id, point))
            if cycle:
                return cycle
    return None


def _walk_from(
    graph: Graph, sizes: RunSizes, masks: Masks, finished: Masks, root: Instance
) -> tuple[Instance, ...] | None:
    if finished[root.node][root.point]:
        return None
    path = {root: _needs(graph, sizes, masks, root)}
    while path:
        current, rest = next(reversed(path.items()))
        following = next((need for need in rest if not finished[need.node][need.point]), None)
        if following is None:
            finished[current.node][current.point] = True
            del path[current]
        elif following in path:
            steps = list(path)
            return tuple(steps[steps.index(following) :])
        else:
            path[following] = _needs(graph, sizes, masks, following)
    return None


def _needs(graph: Graph, sizes: RunSizes, masks: Masks, instance: Instance) -> Iterator[Instance]:
    node = graph.nodes[instance.node]
    for edge, ranges in reads_of_point(sizes, node, instance.point):
        yield from (Instance(edge.node, point) for point in itertools.product(*ranges))
    for edge in order_edges(graph, node):
        box = point_ranges(sizes, node, edge, instance.point)
        called = masks[edge.node]
        yield from (Instance(edge.node, point) for point in itertools.product(*box) if called[point])


def well_founded(graph: Graph, reads: Iterable[ReadBoxes]) -> bool:
    """True: no instance needs itself through `reads`. False: not proven (a skewed order may still exist)."""
    links = [ReadsLink(graph, read) for read in reads if read.count]
    names = {name: graph.nodes[name].domain for link in links for name in (link.source, link.target)}
    return not any(level.stuck for body in blocks(names, links) for level in body.units)


@dataclass(frozen=True)
class ReadsLink:
    """Reads at known sizes as a link among nodes."""

    graph: Graph
    reads: ReadBoxes

    @property
    def source(self) -> int:
        return self.reads.source

    @property
    def target(self) -> int:
        return self.reads.reader

    def distance(self, dim: Symbol) -> Distance | None:
        place = self._place(dim)
        if place is None:
            return None
        here, axis = self.reads.points[place[0]], place[1]
        nearest, farthest = here - (self.reads.hi[axis] - 1), here - self.reads.lo[axis]
        return Distance(int(np.min(nearest)), int(np.max(farthest)))

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> ReadsLink | None:
        place = self._place(dim)
        assert place is not None, "only a dim that both ends have is looped over"
        axis = place[1]
        met = self.reads.points[place[0]] + (delay if direction == "forward" else -delay)
        lo, hi = self.reads.lo, self.reads.hi
        same = replace(
            self.reads, lo=(*lo[:axis], met, *lo[axis + 1 :]), hi=(*hi[:axis], met + 1, *hi[axis + 1 :])
        ).where((lo[axis] <= met) & (met < hi[axis]))
        return ReadsLink(self.graph, same) if same.count else None

    def _place(self, dim: Symbol) -> tuple[int, int] | None:
        """The positions of `dim` in the domains of reader and source."""
        reader, source = (self.graph.nodes[id].domain for id in (self.target, self.source))
        return (reader.index(dim), source.index(dim)) if dim in reader and dim in source else None
