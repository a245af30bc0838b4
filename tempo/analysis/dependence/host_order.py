"""Which host calls come before which: the order among calls that the language prescribes, beyond data.

A call comes after the call before it along its `ordered_by` dims (the others fixed). Calls of two nodes with the same
resource are compared by the ordered dims that both have, and then by declaration.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tempo.analysis.demand.reads import ReadBoxes, RunSizes
from tempo.analysis.reports import Instance
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]
EFFECTS = frozenset({"host_call", "sink"})


class Barrier(NamedTuple):
    """All instances of `node` whose coordinates along `shared` are among the first `rank + 1` values that occur."""

    node: int
    shared: tuple[Symbol, ...]
    rank: int


def effect_nodes(graph: Graph) -> list[Node]:
    """Host calls and sinks that the graph needs, in the order of their declaration."""
    reachable = graph.reachable()
    found = [node for node in graph.nodes.values() if node.op in EFFECTS and node.id in reachable]
    return sorted(found, key=lambda node: (node.declaration or 0, node.id))


@dataclass(frozen=True)
class _Groups:
    """The points of one node, grouped by their coordinates along some dims, the groups in ascending order."""

    keys: list[tuple[int, ...]]
    points: list[list[tuple[int, ...]]]

    @staticmethod
    def of(points: Iterable[tuple[int, ...]], axes: Sequence[int]) -> _Groups:
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for point in points:
            groups.setdefault(tuple(point[axis] for axis in axes), []).append(point)
        keys = sorted(groups)
        return _Groups(keys, [groups[key] for key in keys])


@dataclass(frozen=True)
class HostOrder:
    """The prescribed order among the instances of host calls and sinks.

    `shapes` are the sizes of each effect node's domain, `points` its instances (closed to prefixes).
    """

    graph: Graph
    shapes: Mapping[int, tuple[int, ...]]
    points: Mapping[int, list[tuple[int, ...]]]
    _groups: dict[tuple[int, tuple[Symbol, ...]], _Groups] = field(default_factory=dict)

    @cached_property
    def _nodes(self) -> list[Node]:
        return effect_nodes(self.graph)

    def before(self, instance: Instance) -> list[Instance | Barrier]:
        """What directly precedes a call; a `Barrier` stands for many calls (see `members`)."""
        node = self.graph.nodes[instance.node]
        previous = previous_call(node, instance.point, self.shapes[node.id])
        found: list[Instance | Barrier] = [] if previous is None else [Instance(node.id, previous)]
        for other in self._rivals(node):
            barrier = self._barrier(node, instance.point, other)
            found.extend([barrier] if barrier else [])
        return found

    def members(self, barrier: Barrier) -> list[Instance | Barrier]:
        """The calls of the barrier's last group, and the barrier of those before."""
        groups = self._grouped(self.graph.nodes[barrier.node], barrier.shared)
        calls: list[Instance | Barrier] = [Instance(barrier.node, point) for point in groups.points[barrier.rank]]
        return calls + ([barrier._replace(rank=barrier.rank - 1)] if barrier.rank else [])

    def _rivals(self, node: Node) -> list[Node]:
        resource = node.attr("resource")
        if resource is None:
            return []
        return [other for other in self._nodes if other.id != node.id and other.attr("resource") == resource]

    def _barrier(self, node: Node, point: tuple[int, ...], other: Node) -> Barrier | None:
        theirs = other.attr("ordered_by", ())
        shared = tuple(symbol for symbol in node.attr("ordered_by", ()) if symbol in theirs)
        groups = self._grouped(other, shared)
        key = tuple(point[node.domain.index(symbol)] for symbol in shared)
        first = (other.declaration or 0) < (node.declaration or 0)
        rank = (bisect_right if first else bisect_left)(groups.keys, key) - 1
        return Barrier(other.id, shared, rank) if rank >= 0 else None

    def _grouped(self, node: Node, shared: tuple[Symbol, ...]) -> _Groups:
        if (node.id, shared) not in self._groups:
            axes = [node.domain.index(symbol) for symbol in shared]
            self._groups[node.id, shared] = _Groups.of(self.points[node.id], axes)
        return self._groups[node.id, shared]


def previous_call(node: Node, point: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The point before `point` in lexicographic order of the ordered dims, the others fixed."""
    previous = list(point)
    for symbol in reversed(node.attr("ordered_by", ())):
        axis = node.domain.index(symbol)
        if previous[axis] > 0:
            previous[axis] -= 1
            return tuple(previous)
        previous[axis] = shape[axis] - 1
    return None


def close_to_prefixes(node: Node, mask: Array) -> Array:
    """A host call needed at a point is called at all points before it along its ordered dims, the others fixed."""
    axes = [node.domain.index(symbol) for symbol in node.attr("ordered_by", ())]
    if node.op != "host_call" or not axes or not mask.any():
        return mask
    rest = [axis for axis in range(mask.ndim) if axis not in axes]
    chains = mask.transpose(rest + axes)
    flat = chains.reshape(*chains.shape[: len(rest)], -1)
    closed = np.logical_or.accumulate(flat[..., ::-1], axis=-1)[..., ::-1]
    back: Array = closed.reshape(chains.shape).transpose(np.argsort(rest + axes))
    return np.ascontiguousarray(back)


def order_reads(graph: Graph, sizes: RunSizes, node: Node, points: tuple[Array, ...], count: int) -> list[ReadBoxes]:
    """The calls that come before those at `points`, as needs among instances (those not called included)."""
    found = [
        read
        for other in effect_nodes(graph)
        if other.id != node.id and node.attr("resource") is not None
        if other.attr("resource") == node.attr("resource")
        for read in _before_in(sizes, node, other, points, count)
    ]
    ordered = node.attr("ordered_by", ())
    fixed = tuple(symbol for symbol in node.domain if symbol not in ordered)
    return found + [
        _cone(sizes, node, node, points, count, fixed + ordered[:depth], symbol) for depth, symbol in enumerate(ordered)
    ]


def _before_in(sizes: RunSizes, node: Node, other: Node, points: tuple[Array, ...], count: int) -> list[ReadBoxes]:
    theirs = other.attr("ordered_by", ())
    shared = tuple(symbol for symbol in node.attr("ordered_by", ()) if symbol in theirs)
    cones = [_cone(sizes, node, other, points, count, shared[:depth], shared[depth]) for depth in range(len(shared))]
    if (other.declaration or 0) < (node.declaration or 0):
        cones.append(_cone(sizes, node, other, points, count, shared, None))
    return cones


def _cone(
    sizes: RunSizes,
    node: Node,
    other: Node,
    points: tuple[Array, ...],
    count: int,
    equal: tuple[Symbol, ...],
    less: Symbol | None,
) -> ReadBoxes:
    """The points of `other` equal along some dims and less along one; all along the others."""
    lo, hi = [], []
    for symbol, size in zip(other.domain, sizes.shape(other.domain)):
        bounded = symbol in equal or symbol == less
        here = points[node.domain.index(symbol)] if bounded else np.full(count, size)
        lo.append(here if symbol in equal else np.zeros(count, np.int64))
        hi.append(here + 1 if symbol in equal else here)
    return ReadBoxes(node.id, other.id, points, tuple(lo), tuple(hi), count).inside(sizes.shape(other.domain))
