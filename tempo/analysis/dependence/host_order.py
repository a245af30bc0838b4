"""Which host calls come before which: the order among calls that the language prescribes, beyond data.

A call comes after the call before it along its `ordered_by` dims (the others fixed). Calls of two nodes with the same
resource are compared by the ordered dims that both have, and then by declaration. Both are a `Precedence`, and whoever
needs the order reads that: the evaluator, the checks for cycles, symbolic or at known sizes, demand, and schedulers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tempo.analysis.demand.reads import ReadBoxes, RunSizes, edge_reads
from tempo.analysis.reports import Instance
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.symbolic import Symbol, const, var
from tempo.symbolic.structural import memoised

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Precedence:
    """Calls of `source` come before those of `target` that are equal along `equal` and later along `ordered`, in
    lexicographic order; before those at the same place, too, where it is `inclusive`."""

    source: int
    target: int
    equal: tuple[Symbol, ...]
    ordered: tuple[Symbol, ...]
    inclusive: bool = False

    def cones(self) -> Iterator[tuple[tuple[Symbol, ...], Symbol | None]]:
        """The same as boxes: points equal along some dims and less along one, if any; whatever along the others."""
        for depth, symbol in enumerate(self.ordered):
            yield (*self.equal, *self.ordered[:depth]), symbol
        if self.inclusive:
            yield (*self.equal, *self.ordered), None


def own_order(node: Node) -> Precedence:
    """Among the calls of one node."""
    ordered = node.attr("ordered_by", ())
    return Precedence(node.id, node.id, tuple(symbol for symbol in node.domain if symbol not in ordered), ordered)


def calls_before(graph: Graph, node: Node) -> list[Precedence]:
    """What precedes the calls of a node: its own, and those of others with its resource."""
    own, resource = own_order(node), node.attr("resource")
    found = [own]
    for other in effect_nodes(graph) if resource is not None else ():
        if other.id == node.id or other.attr("resource") != resource:
            continue
        theirs, first = own_order(other).ordered, (other.declaration or 0) < (node.declaration or 0)
        shared = tuple(symbol for symbol in own.ordered if symbol in theirs)
        found.append(Precedence(other.id, node.id, (), shared, inclusive=first))
    return found


class Barrier(NamedTuple):
    """All instances of `node` whose coordinates along `shared` are among the first `rank + 1` values that occur."""

    node: int
    shared: tuple[Symbol, ...]
    rank: int


def effect_nodes(graph: Graph) -> list[Node]:
    """Host calls and sinks that the graph needs, in the order of their declaration."""
    reachable = graph.reachable()
    found = [node for node in graph.nodes.values() if node.has_effect and node.id in reachable]
    return sorted(found, key=lambda node: (node.declaration or 0, node.id))


@dataclass(frozen=True)
class HostOrder:
    """The prescribed order among the instances of host calls and sinks.

    `shapes` are the sizes of each effect node's domain, `points` its instances (closed to prefixes).
    """

    graph: Graph
    shapes: Mapping[int, tuple[int, ...]]
    points: Mapping[int, list[tuple[int, ...]]]

    @cached_property
    def _before(self) -> Mapping[int, list[Precedence]]:
        nodes = (node for node in self.graph.nodes.values() if node.has_effect)
        return {node.id: calls_before(self.graph, node) for node in nodes}

    def before(self, instance: Instance) -> list[Instance | Barrier]:
        """What directly precedes a call; a `Barrier` stands for many calls (see `members`)."""
        node = self.graph.nodes[instance.node]
        previous = previous_call(node, instance.point, self.shapes[node.id])
        found: list[Instance | Barrier] = [] if previous is None else [Instance(node.id, previous)]
        others = (each for each in self._before[node.id] if each.source != node.id)
        return found + [barrier for each in others if (barrier := self._barrier(node, instance.point, each))]

    def members(self, barrier: Barrier) -> list[Instance | Barrier]:
        """The calls of the barrier's last group, and the barrier of those before."""
        _, groups = self._groups(barrier.node, barrier.shared)
        calls: list[Instance | Barrier] = [Instance(barrier.node, point) for point in groups[barrier.rank]]
        return calls + ([barrier._replace(rank=barrier.rank - 1)] if barrier.rank else [])

    def _barrier(self, node: Node, point: tuple[int, ...], before: Precedence) -> Barrier | None:
        keys, _ = self._groups(before.source, before.ordered)
        key = tuple(point[node.domain.index(symbol)] for symbol in before.ordered)
        rank = (bisect_right if before.inclusive else bisect_left)(keys, key) - 1
        return Barrier(before.source, before.ordered, rank) if rank >= 0 else None

    @memoised
    def _groups(self, id: int, shared: tuple[Symbol, ...]) -> tuple[list[tuple[int, ...]], list[list[tuple[int, ...]]]]:
        """The coordinates of a node's points along some dims, in ascending order, and the points that have each."""
        axes = [self.graph.nodes[id].domain.index(symbol) for symbol in shared]
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for point in self.points[id]:
            groups.setdefault(tuple(point[axis] for axis in axes), []).append(point)
        keys = sorted(groups)
        return keys, [groups[key] for key in keys]


def previous_call(node: Node, point: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The point before `point` in lexicographic order of the ordered dims, the others fixed."""
    previous = list(point)
    for symbol in reversed(own_order(node).ordered):
        axis = node.domain.index(symbol)
        if previous[axis] > 0:
            previous[axis] -= 1
            return tuple(previous)
        previous[axis] = shape[axis] - 1
    return None


def close_to_prefixes(node: Node, mask: Array) -> Array:
    """A host call needed at a point is called at all points before it along its ordered dims, the others fixed."""
    axes = [node.domain.index(symbol) for symbol in own_order(node).ordered]
    if not node.is_host_call or not axes or not mask.any():
        return mask
    rest = [axis for axis in range(mask.ndim) if axis not in axes]
    chains = mask.transpose(rest + axes)
    flat = chains.reshape(*chains.shape[: len(rest)], -1)
    closed = np.logical_or.accumulate(flat[..., ::-1], axis=-1)[..., ::-1]
    back: Array = closed.reshape(chains.shape).transpose(np.argsort(rest + axes))
    return np.ascontiguousarray(back)


def order_reads(graph: Graph, sizes: RunSizes, node: Node, points: tuple[Array, ...]) -> list[ReadBoxes]:
    """The calls that come before those at `points`, as needs among instances (those not called included)."""
    found = (edge_reads(sizes, node.id, node.domain, edge, points) for edge in order_edges(graph, node))
    return [each.inside(sizes.shape(graph.nodes[each.source].domain)) for each in found]


def order_edges(graph: Graph, node: Node) -> Iterator[Edge]:
    """The calls that come before those of a node, as reads of them."""
    for before in calls_before(graph, node):
        domain = graph.domain_dims(graph.nodes[before.source])
        for equal, less in before.cones():
            ends = {dim.symbol: var(dim.symbol) if dim.symbol == less else dim.size for dim in domain}
            map = (Point(var(symbol)) if symbol in equal else Slice(const(0), end) for symbol, end in ends.items())
            yield Edge(before.source, tuple(map))
