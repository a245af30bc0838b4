"""A topological order that is kept while edges are added, so that "may these be fused?" is a short search.

Source: Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic graphs (2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Order:
    """Vertices 0, 1, ... with a place each; every edge goes from a lower place to a higher one."""

    def __init__(self) -> None:
        self._after: list[set[int]] = []
        self._before: list[set[int]] = []
        self._place: list[int] = []

    def add(self) -> int:
        """A new vertex, last in the order."""
        self._after.append(set())
        self._before.append(set())
        self._place.append(len(self._place))
        return len(self._place) - 1

    def edges(self) -> Iterable[tuple[int, int]]:
        return ((start, end) for start, ends in enumerate(self._after) for end in ends)

    def leads_to(self, start: int, ends: Iterable[int]) -> bool:
        """Whether a path goes from `start` to one of `ends` other than itself."""
        wanted = {end for end in ends if self._place[end] > self._place[start]}
        if not wanted:
            return False
        limit = max(self._place[end] for end in wanted)
        return not wanted.isdisjoint(self._reach(start, self._after, lambda place: place <= limit))

    def connect(self, start: int, end: int) -> None:
        """Add an edge between two vertices; there must be no path from `end` to `start`."""
        if end in self._after[start]:
            return
        self._after[start].add(end)
        self._before[end].add(start)
        low, high = self._place[end], self._place[start]
        if high < low:
            return
        later = self._reach(end, self._after, lambda place: place <= high)
        earlier = self._reach(start, self._before, lambda place: place >= low)
        moved = sorted(earlier, key=self._place.__getitem__) + sorted(later, key=self._place.__getitem__)
        for vertex, place in zip(moved, sorted(self._place[vertex] for vertex in moved)):
            self._place[vertex] = place

    def _reach(self, start: int, following: list[set[int]], within: Callable[[int], bool]) -> set[int]:
        seen = {start}
        pending = [start]
        while pending:
            fresh = [v for v in following[pending.pop()] if v not in seen and within(self._place[v])]
            seen.update(fresh)
            pending.extend(fresh)
        return seen
