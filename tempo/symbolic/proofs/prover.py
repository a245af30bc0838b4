"""Case splits over Fourier-Motzkin: is a set of clauses without solution, and what do its solutions satisfy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tempo.symbolic.proofs.elimination import Effort, LinearConstraint, Rows, project
from tempo.symbolic.proofs.linear import Clause

Choices: TypeAlias = tuple[tuple[Clause, ...], ...]

MOST_SPLITS = 200  # cases per refutation; beyond it the answer is "not proven"
MOST_LEAVES = 8  # cases per projection; beyond it the remaining choices are ignored, which only weakens the result


def refuted(constraints: tuple[LinearConstraint, ...], choices: Choices) -> bool:
    """Whether no integer point satisfies everything. False also when the splits are used up."""
    return _refuted(constraints, choices, Effort(MOST_SPLITS))


def _refuted(constraints: tuple[LinearConstraint, ...], choices: Choices, effort: Effort) -> bool:
    effort.splits -= 1
    if project(constraints, effort) is None:
        return True
    if not choices or effort.splits <= 0:
        return False
    choice, rest = _next_choice(choices)
    return all(_refuted(constraints + case.constraints, case.choices + rest, effort) for case in choice)


def _next_choice(choices: Choices) -> tuple[tuple[Clause, ...], Choices]:
    """The choice with the fewest cases, and the others."""
    at = min(range(len(choices)), key=lambda i: len(choices[i]))
    return choices[at], choices[:at] + choices[at + 1 :]


def projections(constraints: tuple[LinearConstraint, ...], choices: Choices, keep: frozenset[int]) -> list[Rows]:
    """What is known of the variables of `keep`, for each case that has a solution: their union holds every solution."""
    return list(_projections(constraints, choices, keep, Effort(MOST_LEAVES)))


def _projections(
    constraints: tuple[LinearConstraint, ...], choices: Choices, keep: frozenset[int], effort: Effort
) -> Iterator[Rows]:
    if choices and project(constraints, effort) is None:
        return
    if choices and effort.splits > 0:
        choice, rest = _next_choice(choices)
        for case in choice:
            yield from _projections(constraints + case.constraints, case.choices + rest, keep, effort)
        return
    effort.splits -= 1
    rows = project(constraints, effort, keep)
    if rows is not None:
        yield rows
