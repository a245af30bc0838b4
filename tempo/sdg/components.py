"""Graphs given by successors: strongly connected components, what is reached, what is left of an assumption."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def strongly_connected(roots: Iterable[Name], successors: Mapping[Name, Iterable[Name]]) -> list[tuple[Name, ...]]:
    """The components reachable from `roots`, successors' components before their predecessors'.

    Tarjan's algorithm without recursion: linear, for graphs of any depth.
    """
    order: dict[Name, int] = {}
    low: dict[Name, int] = {}
    open_names: list[Name] = []
    is_open: set[Name] = set()
    found: list[tuple[Name, ...]] = []

    def enter(name: Name) -> tuple[Name, Iterator[Name]]:
        order[name] = low[name] = len(order)
        open_names.append(name)
        is_open.add(name)
        return name, iter(successors[name])

    def leave(name: Name) -> None:
        if low[name] != order[name]:
            return
        members = [open_names.pop()]
        while members[-1] != name:
            members.append(open_names.pop())
        is_open.difference_update(members)
        found.append(tuple(reversed(members)))

    for root in roots:
        path = [] if root in order else [enter(root)]
        while path:
            name, rest = path[-1]
            following = next((other for other in rest if other not in order or other in is_open), None)
            if following is None:
                path.pop()
                leave(name)
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
            elif following in order:
                low[name] = min(low[name], order[following])
            else:
                path.append(enter(following))
    return found


def connected(names: Iterable[int], pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """What hangs together through pairs, which way round does not matter."""
    near: dict[int, set[int]] = {name: set() for name in sorted(names)}
    for one, other in pairs:
        near[one].add(other)
        near[other].add(one)
    return [tuple(sorted(group)) for group in strongly_connected(near, near)]


def reached(roots: Iterable[Name], successors: Callable[[Name], Iterable[Name]]) -> set[Name]:
    """The roots, and all that is reachable from them."""
    found = set(roots)
    pending = list(found)
    while pending:
        fresh = set(successors(pending.pop())) - found
        found |= fresh
        pending += fresh
    return found


def greatest_fixed_point(
    names: Collection[Name], holds: Callable[[Name, set[Name]], bool], affected: Callable[[Name], Iterable[Name]]
) -> set[Name]:
    """The most names of which each holds, given those that are left: assumed of all, dropped where it fails.

    `affected`: of whom it may fail when one is dropped.
    """
    found, pending = set(names), deque(names)
    while pending:
        name = pending.popleft()
        if name in found and not holds(name, found):
            found.remove(name)
            pending += affected(name)
    return found
