"""Greedy schedules as text, for the tests."""

from __future__ import annotations

from collections.abc import Mapping

from tempo_greedy.scheduler import GreedyScheduler

from tempo.schedule import SchedulingProblem, render, verify
from tempo.symbolic import Symbol
from tests.unit.schedule.problems import make

__all__ = ["make", "scheduled"]


def scheduled(problem: SchedulingProblem, *sizes: Mapping[str, int]) -> str:
    """The greedy tree as pseudocode, after `verify` at each of the sizes."""
    tree = GreedyScheduler().schedule(problem)
    for given in sizes:
        verify(problem, tree, {Symbol(name, "size"): value for name, value in given.items()})
    return render(tree)
