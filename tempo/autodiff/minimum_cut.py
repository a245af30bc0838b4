"""The nodes of least weight that separate two sets of nodes of a directed graph: a minimum cut, by augmenting paths
(Ford and Fulkerson, 1956)."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

Half = tuple[int, int]
"""A node where edges enter it (0), or where they leave it (1); between the two lies its weight."""
_SOURCE, _SINK = (-1, 0), (-1, 1)


def minimum_cut(
    edges: Iterable[tuple[int, int]], weights: Mapping[int, float], sources: Iterable[int], sinks: Iterable[int]
) -> frozenset[int]:
    """The nodes to remove so that no path leads from a source to a sink, of the least weight in sum; of several cuts
    the one nearest to the sinks. Sources and sinks may be removed themselves. Weights may be infinite, if every path
    has a node of finite weight.

    >>> sorted(minimum_cut([(0, 2), (1, 2), (2, 3)], {0: 2, 1: 2, 2: 3, 3: 3}, [0, 1], [3]))
    [3]
    """
    left: defaultdict[Half, dict[Half, float]] = defaultdict(dict)  # what may still flow

    def connect(tail: Half, head: Half, capacity: float) -> None:
        left[tail][head] = capacity
        left[head].setdefault(tail, 0)

    for node, weight in weights.items():
        connect((node, 0), (node, 1), weight)
    for tail, head in edges:
        connect((tail, 1), (head, 0), math.inf)
    for node in sources:
        connect(_SOURCE, (node, 0), math.inf)
    for node in sinks:
        connect((node, 1), _SINK, math.inf)
    while path := _path(left):
        flow = min(left[start][end] for start, end in path)
        assert flow < math.inf, "every path has a node of finite weight"
        for start, end in path:
            left[start][end] -= flow
            left[end][start] += flow
    behind = _reaching_sink(left)
    return frozenset(node for node in weights if (node, 1) in behind and (node, 0) not in behind)


def _path(left: Mapping[Half, Mapping[Half, float]]) -> list[tuple[Half, Half]]:
    """A shortest one from the source to the sink along which something may flow; none: empty."""
    came, queue = {_SOURCE: _SOURCE}, deque([_SOURCE])
    while queue and _SINK not in came:
        tail = queue.popleft()
        for head, capacity in left.get(tail, {}).items():
            if capacity > 0 and head not in came:
                came[head] = tail
                queue.append(head)
    path, at = list[tuple[Half, Half]](), _SINK
    while at in came and at != _SOURCE:
        path.append((came[at], at))
        at = came[at]
    return path


def _reaching_sink(left: Mapping[Half, Mapping[Half, float]]) -> set[Half]:
    found, queue = {_SINK}, deque([_SINK])
    while queue:
        head = queue.popleft()
        for tail in left.get(head, {}):  # edges are kept in both directions
            if left[tail].get(head, 0) > 0 and tail not in found:
                found.add(tail)
                queue.append(tail)
    return found
