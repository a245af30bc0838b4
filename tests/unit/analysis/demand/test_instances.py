"""Exact demand and cycles against following single points, on programs in SDG text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo.analysis.demand import instances
from tempo.analysis.demand.instances import demanded, find_cycle
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol
from tests.unit.analysis.random_graphs import at, graphs, has_cycle, one_by_one, transitive_calls


def assert_exact(graph: Graph, sizes: Mapping[Symbol, int]) -> dict[int, np.ndarray]:
    found, expected = demanded(graph, sizes), one_by_one(graph, sizes)
    for id in graph.nodes:
        np.testing.assert_array_equal(found[id], expected[id], err_msg=f"node {id} of\n{graph}")
    return found


def recurrence(step: str, output: str, first: str = "t == 0") -> Graph:
    """`h` with a first case that reads `x`, and a step that reads `h` through the map `step`."""
    shape = f"[{step.split('+:')[1].strip()}]" if "+:" in step else "[]"
    reduced = "reduce_sum(%1[t]) {axes: (0,)}" if "+:" in step else "neg(%1[t])"
    return parse(f"""
dims t: t.size
%0: float32[] over (t) = input {{name: "x", role: "input"}} @0 "x"
%1: float32{shape} over (t) = neg(%3[{step}])
%2: float32[] over (t) = {reduced}
%3: float32[] over (t) = merge {{name: "h", role: "recurrent"}} @1 "h"
  | {first} -> %0[t]
  | True -> %2[t]
output "h": float32[] = %3[{output}] as ()
""")


STEPS = ["t - 1", "t - 2", "t - 3", "t // 2", "0 +: t", "max(0, t - 4) +: min(t, 4)", "t - 1 - (t - 1) % 3"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("output", ["t.size - 1", "0", "t.size // 2"])
@pytest.mark.parametrize("size", [1, 2, 7, pytest.param(101, marks=pytest.mark.slow)])
def test_demand_of_a_recurrence_is_exact(step: str, output: str, size: int) -> None:
    first = "t <= 2" if step in {"t - 2", "t - 3"} else "t == 0"
    assert_exact(recurrence(step, output, first), at(t=size))


@settings(deadline=None, max_examples=3 * settings.default.max_examples)
@given(graphs(), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0, 1, 24]))
def test_random_graphs(graph: Graph, i: int, t: int, rounds: int) -> None:
    sizes = at(i=i, t=t)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances, "ROUNDS", rounds)
        masks = assert_exact(graph, sizes)
    cycle = find_cycle(graph, sizes)
    assert (cycle is not None) == has_cycle(graph, sizes, masks)
    for current, following in zip(cycle or (), (cycle or ())[1:] + (cycle or ())[:1]):
        assert masks[current.node][current.point]
        assert following in transitive_calls(graph, sizes, current)
