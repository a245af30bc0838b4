"""The topological order that is kept while edges are added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tempo_greedy.order import Order


def _reaches(edges: set[tuple[int, int]], start: int, end: int) -> bool:
    seen, pending = {start}, [start]
    while pending:
        here = pending.pop()
        fresh = {b for a, b in edges if a == here} - seen
        seen |= fresh
        pending.extend(fresh)
    return end in seen


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25))
def test_paths_are_found_as_a_search_of_all_edges_finds_them(count: int, tried: list[tuple[int, int]]) -> None:
    order, edges = Order(), set[tuple[int, int]]()
    for _ in range(count):
        order.add()
    for start, end in tried:
        if max(start, end) >= count or start == end:
            continue
        cyclic = _reaches(edges, end, start)
        assert order.leads_to(end, [start]) == cyclic
        if not cyclic:
            order.connect(start, end)
            edges.add((start, end))
    assert set(order.edges()) == edges
