"""Whether needs among instances at known sizes can be seen to have no cycle, from the signs of their distances.

The levels of Allen and Kennedy on numbers: if every need within a component goes back along a dim, or stays, then a
cycle can only be among those that stay; they are looked at alone, along the other dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tempo.analysis.components import strongly_connected
from tempo.analysis.reads import Reads
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol


def well_founded(graph: Graph, reads: Sequence[Reads]) -> bool:
    """True: no instance needs itself through `reads`. False: not proven (a skewed order may still exist)."""
    return all(_component_well_founded(graph, inner) for inner in _components(reads))


def _components(reads: Sequence[Reads]) -> list[list[Reads]]:
    """The reads that stay within a strongly connected component, by component."""
    successors: dict[int, list[int]] = {}
    live = [read for read in reads if read.count]
    for read in live:
        successors.setdefault(read.reader, []).append(read.source)
        successors.setdefault(read.source, [])
    number = {
        name: rank for rank, members in enumerate(strongly_connected(successors, successors)) for name in members
    }
    inner: dict[int, list[Reads]] = {}
    for read in live:
        if number[read.reader] == number[read.source]:
            inner.setdefault(number[read.reader], []).append(read)
    return list(inner.values())


def _component_well_founded(graph: Graph, reads: list[Reads]) -> bool:
    nodes = {read.reader for read in reads}
    shared = [dim.symbol for dim in graph.dims if all(dim.symbol in graph.nodes[id].domain for id in nodes)]
    for symbol in shared:
        rest = _not_carried(graph, reads, symbol)
        if rest is not None:
            return well_founded(graph, rest)
    return False


def _not_carried(graph: Graph, reads: list[Reads], symbol: Symbol) -> list[Reads] | None:
    """The reads at distance zero along `symbol`; None unless all distances have one sign and some are not zero."""
    nearest, farthest = [], []
    for read in reads:
        here, axis = _place(graph, read, symbol), graph.nodes[read.source].domain.index(symbol)
        nearest.append(int(np.min(here - (read.hi[axis] - 1))))
        farthest.append(int(np.max(here - read.lo[axis])))
    if not (min(nearest) >= 0 or max(farthest) <= 0) or max(farthest) == min(nearest) == 0:
        return None
    return [_at_distance_zero(graph, read, symbol) for read in reads]


def _at_distance_zero(graph: Graph, read: Reads, symbol: Symbol) -> Reads:
    here, axis = _place(graph, read, symbol), graph.nodes[read.source].domain.index(symbol)
    same = replace(
        read,
        lo=(*read.lo[:axis], here, *read.lo[axis + 1 :]),
        hi=(*read.hi[:axis], here + 1, *read.hi[axis + 1 :]),
    )
    return same.where((read.lo[axis] <= here) & (here < read.hi[axis]))


def _place(graph: Graph, read: Reads, symbol: Symbol) -> np.ndarray:  # type: ignore[type-arg]
    return read.points[graph.nodes[read.reader].domain.index(symbol)]
