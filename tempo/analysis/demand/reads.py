"""Reads at known sizes, many points at once: through an edge, each point reads a box of the producer's points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo.sdg.graph import Edge, Graph, Node, Slice
from tempo.symbolic import Condition, Expr, Symbol

Array = np.ndarray[Any, Any]
_BEYOND = 1 << 61  # a start and a length of so much can be added


@dataclass(frozen=True)
class RunSizes:
    """The sizes of a run, and what they make of the graph's dims."""

    graph: Graph
    symbols: Mapping[Symbol, int]
    extents: Mapping[Symbol, int]

    @staticmethod
    def of(graph: Graph, sizes: Mapping[Symbol, int]) -> RunSizes:
        extents = {dim.symbol: int(dim.size.evaluate(sizes)) for dim in graph.dims}
        return RunSizes(graph, dict(sizes), extents)

    def shape(self, domain: Sequence[Symbol]) -> tuple[int, ...]:
        return tuple(self.extents[symbol] for symbol in domain)

    def all_points(self, domain: Sequence[Symbol]) -> tuple[Array, ...]:
        """The coordinates of every point, one flat array per dim."""
        return tuple(axis.ravel() for axis in np.indices(self.shape(domain), dtype=np.int64))


@dataclass(frozen=True)
class ReadBoxes:
    """At each of `count` points of `reader`, every point q of `source` with lo[d] <= q[d] < hi[d] is needed.

    `points` has one array per dim of the reader, `lo` and `hi` one per dim of the source; all of length `count`. A box
    may be empty, with `hi <= lo`.
    """

    reader: int
    source: int
    points: tuple[Array, ...]
    lo: tuple[Array, ...]
    hi: tuple[Array, ...]
    count: int

    def where(self, chosen: Array) -> ReadBoxes:
        """The reads at some of the points."""
        if chosen.all():
            return self
        points, lo, hi = (tuple(array[chosen] for array in arrays) for arrays in (self.points, self.lo, self.hi))
        return ReadBoxes(self.reader, self.source, points, lo, hi, int(np.count_nonzero(chosen)))

    def inside(self, shape: Sequence[int]) -> ReadBoxes:
        """Clipped to the source's domain, without the points that read nothing."""
        lo = tuple(np.maximum(bound, 0) for bound in self.lo)
        hi = tuple(np.minimum(bound, size) for bound, size in zip(self.hi, shape))
        clipped = ReadBoxes(self.reader, self.source, self.points, lo, hi, self.count)
        nonempty = np.ones(self.count, np.bool_)
        for below, above in zip(lo, hi):
            nonempty &= below < above
        return clipped.where(nonempty)

    def mark(self, mask: Array) -> None:
        """Sets `mask` at every point that is read; the reads are inside its shape."""
        if not self.count:
            return
        sliced = [axis for axis in range(mask.ndim) if np.any(self.hi[axis] - self.lo[axis] != 1)]
        if not sliced:
            mask[self.lo] = True
            return
        mask |= self._covered(mask.shape, sliced)

    def _covered(self, shape: tuple[int, ...], sliced: Sequence[int]) -> Array:
        """A count of boxes over every point, by summing the differences at the boxes' corners."""
        padded = tuple(size + (axis in sliced) for axis, size in enumerate(shape))
        differences = np.zeros(padded, np.int64)
        for ends in itertools.product((0, 1), repeat=len(sliced)):
            corner = list(self.lo)
            for axis, end in zip(sliced, ends):
                corner[axis] = self.hi[axis] if end else self.lo[axis]
            np.add.at(differences, tuple(corner), -1 if sum(ends) % 2 else 1)
        for axis in sliced:
            np.cumsum(differences, axis=axis, out=differences)
        covered: Array = differences[tuple(slice(0, size) for size in shape)] > 0
        return covered


@dataclass(frozen=True)
class CaseReads:
    """The reads of one node at some points, and the points (as a mask) where no case of a merge holds."""

    reads: tuple[tuple[Edge, ReadBoxes], ...]
    uncovered: Array


def reads_at(sizes: RunSizes, node: Node, points: Sequence[Array], count: int) -> CaseReads:
    """What `node` reads at `points`, not clipped; where a merge is concerned, through the first case that holds."""
    env = {**sizes.symbols, **dict(zip(node.domain, points))}
    reads = [(edge, _edge_reads(node.id, edge, env, points, count)) for edge in node.operands]
    remaining = np.full(count, node.is_merge)
    for case in node.cases:
        holds = remaining & _array(case.condition, env, count)
        remaining &= ~holds
        chosen = np.flatnonzero(holds)
        here = tuple(array[chosen] for array in points)
        env_here = {**sizes.symbols, **dict(zip(node.domain, here))}
        reads.append((case.edge, _edge_reads(node.id, case.edge, env_here, here, len(chosen))))
    return CaseReads(tuple(reads), remaining)


def edge_reads(
    sizes: RunSizes, reader: int, domain: Sequence[Symbol], edge: Edge, points: Sequence[Array]
) -> ReadBoxes:
    """The reads through one edge at points of `domain`."""
    count = len(points[0]) if points else 1
    return _edge_reads(reader, edge, {**sizes.symbols, **dict(zip(domain, points))}, points, count)


def _edge_reads(reader: int, edge: Edge, env: Mapping[Symbol, Any], points: Sequence[Array], count: int) -> ReadBoxes:
    lo, hi = [], []
    for index in edge.map:
        start = _array(index.start if isinstance(index, Slice) else index.index, env, count)
        lo.append(start)
        hi.append(start + (_array(index.length, env, count) if isinstance(index, Slice) else 1))
    return ReadBoxes(reader, edge.node, tuple(points), tuple(lo), tuple(hi), count)


def _array(expr: Expr | Condition, env: Mapping[Symbol, Any], count: int) -> Array:
    """The value at every point, also where it varies with none of the dims; what is beyond all points stays so."""
    value = np.asarray(expr.evaluate(env))
    if value.dtype == object:
        value = np.clip(value, -_BEYOND, _BEYOND).astype(np.int64)
    return np.broadcast_to(value, (count,))


def reads_of_point(sizes: RunSizes, node: Node, point: Sequence[int]) -> Iterator[tuple[Edge, list[range]]]:
    """What `node` reads at one point, inside the producers' domains: per dim the indices."""
    env = {**sizes.symbols, **dict(zip(node.domain, point))}
    chosen = (case.edge for case in node.cases if case.condition.evaluate(env))
    for edge in (*node.operands, *itertools.islice(chosen, 1)):
        yield edge, point_ranges(sizes, node, edge, point)


def point_ranges(sizes: RunSizes, node: Node, edge: Edge, point: Sequence[int]) -> list[range]:
    """What a node reads through an edge at one point."""
    env, ranges = {**sizes.symbols, **dict(zip(node.domain, point))}, []
    for index, size in zip(edge.map, sizes.shape(sizes.graph.nodes[edge.node].domain)):
        start = int((index.start if isinstance(index, Slice) else index.index).evaluate(env))
        stop = start + (int(index.length.evaluate(env)) if isinstance(index, Slice) else 1)
        ranges.append(range(max(start, 0), min(stop, size)))
    return ranges
