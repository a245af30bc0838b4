"""Minimum cuts against all cuts there are, on small random graphs."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tempo.autodiff.minimum_cut import minimum_cut
from tempo.sdg.components import reached


def separates(cut: frozenset[int], edges: list[tuple[int, int]], sources: list[int], sinks: list[int]) -> bool:
    heads = {tail: [head for other, head in edges if other == tail and head not in cut] for tail, _ in edges}
    found = reached([node for node in sources if node not in cut], lambda node: heads.get(node, []))
    return not found & set(sinks)


@pytest.mark.parametrize("seed", range(60))
def test_of_all_sets_that_separate_it_is_one_of_the_least(seed: int) -> None:
    draw = random.Random(seed)
    nodes = range(draw.randint(2, 7))
    edges = [(a, b) for a, b in itertools.combinations(nodes, 2) if draw.random() < 0.5]
    weights = {node: draw.choice([0, 1, 2, 5]) for node in nodes}
    sources, sinks = draw.sample(nodes, draw.randint(1, 2)), draw.sample(nodes, draw.randint(1, 2))
    found = minimum_cut(edges, weights, sources, sinks)
    assert separates(found, edges, sources, sinks)
    subsets = (frozenset(each) for size in range(len(nodes) + 1) for each in itertools.combinations(nodes, size))
    least = min(sum(map(weights.get, each)) for each in subsets if separates(each, edges, sources, sinks))
    assert sum(weights[node] for node in found) == least


def test_of_equal_cuts_it_is_the_one_at_the_sinks() -> None:
    assert minimum_cut([(0, 1), (1, 2)], {0: 3, 1: 3, 2: 3}, [0], [2]) == {2}


def test_what_may_not_be_cut_is_passed_by() -> None:
    assert minimum_cut([(0, 1), (1, 2)], {0: 7, 1: math.inf, 2: math.inf}, [0], [2]) == {0}
    assert minimum_cut([(0, 1)], {0: 1, 1: 1}, [], [1]) == frozenset()
