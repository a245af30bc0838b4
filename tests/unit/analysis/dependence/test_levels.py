"""The level algorithm on links with constant distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import pytest

from tempo.analysis.dependence.levels import (
    Direction,
    Distance,
    components,
    least_delays,
    levels,
    loop_over,
    topological,
)
from tempo.symbolic import Symbol

B, I, T = (Symbol(name, "dim") for name in ("b", "i", "t"))


@dataclass(frozen=True)
class ConstantLink:
    """A link whose distances are known once and for all."""

    source: str
    target: str
    distances: Mapping[Symbol, Distance] = field(default_factory=dict)

    def distance(self, dim: Symbol) -> Distance | None:
        return self.distances.get(dim)

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> Self | None:
        nearest = self.distances[dim].along(direction).delayed(delay).lo
        return None if nearest is not None and nearest > 0 else self


def link(source: str, target: str, **distances: int | tuple[int | None, int | None]) -> ConstantLink:
    found = {}
    for name, distance in distances.items():
        lo, hi = distance if isinstance(distance, tuple) else (distance, distance)
        found[Symbol(name, "dim")] = Distance(lo, hi)
    return ConstantLink(source, target, found)


def test_a_recurrence_is_sequential_in_time_and_parallel_in_the_batch() -> None:
    found = levels({"h": (B, T), "n": (B, T), "y": (B, T)}, [link("h", "n", b=0, t=0), link("n", "h", b=0, t=1)])
    assert {name: level.loop.dim for level in found if level.loop for name in level.names} == {"h": T, "n": T}


def test_the_carried_links_are_dropped_inside() -> None:
    # a stencil: along t one step back and two sideways, along i one step back within the same t
    links = [link("a", "a", t=1, i=(-1, 1)), link("a", "a", t=0, i=1)]
    (outer,) = levels({"a": (T, I)}, links)
    assert outer.loop is not None
    assert outer.loop.dim == T
    assert [inner.loop.dim for inner in outer.inner if inner.loop] == [I]


def test_backward_recurrences_have_backward_loops() -> None:
    (level,) = levels({"g": (T,)}, [link("g", "g", t=-1)])
    assert level.loop is not None
    assert level.loop.direction == "backward"


def test_a_prefix_is_carried_in_part() -> None:
    # attention reads its own step too: that link stays inside the loop over t
    links = [link("k", "a", t=(0, None)), link("a", "k", t=1)]
    (level,) = levels({"k": (T,), "a": (T,)}, links)
    assert [inner.names for inner in level.inner] == [("k",), ("a",)]


def test_no_dim_serves_a_skewed_order() -> None:
    links = [link("a", "a", i=1, t=-1), link("a", "a", i=-1, t=2)]
    (level,) = levels({"a": (I, T)}, links)
    assert level.loop is None
    assert level.stuck == tuple(links)


def test_delays_make_every_distance_of_one_sign() -> None:
    loop = loop_over(("a", "b"), [link("b", "a", t=-1), link("a", "b", t=3)], T, "forward")
    assert loop is not None
    assert loop.delays == {"a": 1, "b": 0}
    assert loop.carries


def test_a_loop_that_carries_nothing_is_parallel() -> None:
    loop = loop_over(("a",), [link("a", "a", b=0, t=1)], B, "forward")
    assert loop is not None
    assert not loop.carries


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([("a", "b", -2), ("b", "c", -3), ("a", "c", 0)], {"a": 0, "b": 2, "c": 5}),
        ([("a", "b", -2), ("b", "a", 2)], {"a": 0, "b": 2, "c": 0}),
        ([("a", "b", -2), ("b", "a", 1)], None),
        ([("a", "a", -1)], None),
        ([("a", "b", 4)], {"a": 0, "b": 0, "c": 0}),
    ],
)
def test_least_delays(edges: list[tuple[str, str, int]], expected: dict[str, int] | None) -> None:
    assert least_delays(("a", "b", "c"), edges) == expected


def test_components_come_sources_first_and_else_in_the_order_given() -> None:
    names = ["d", "c", "b", "a", "lone"]
    links = [link("a", "b"), link("b", "a"), link("b", "c")]
    assert [members for members, _ in components(names, links)] == [("d",), ("b", "a"), ("c",), ("lone",)]


def test_a_chain_of_any_length_needs_no_recursion() -> None:
    count = 20_000
    links = [link(str(n), str(n + 1), t=0) for n in range(count)] + [link(str(count), "0", t=1)]
    ((members, inner),) = components([str(n) for n in range(count + 1)], links)
    assert len(members) == len(inner) == count + 1


def test_topological_order_prefers_low_ranks() -> None:
    assert topological([3, 0, 1], [(0, 1)]) == [2, 0, 1]
