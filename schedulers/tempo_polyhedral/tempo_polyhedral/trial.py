"""Sizes to try a schedule at, and the trial itself: of what is read from a file, and of all (`TEMPO_VERIFY=1`)."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

from tempo.schedule import ScheduleTree, SchedulingProblem, verify
from tempo.symbolic import Symbol

VERIFY_VARIABLE = "TEMPO_VERIFY"
_SMALL = (1, 2, 3, 5, 9)
_TRIALS = 6
_LOOKED_AT = 2000


def verifies() -> bool:
    """Whether every result is to be tried."""
    return os.environ.get(VERIFY_VARIABLE, "0") not in {"", "0"}


def try_out(problem: SchedulingProblem, tree: ScheduleTree) -> int:
    """ScheduleError where the tree is wrong at one of a few small sizes; how many there were."""
    tried = list(_sizes(problem))
    for sizes in tried:
        verify(problem, tree, sizes)
    return len(tried)


def _sizes(problem: SchedulingProblem) -> Iterator[dict[Symbol, int]]:
    """Small sizes that satisfy what is known of them: all equal, and differing."""
    symbols, chooser = sorted(problem.sizes), random.Random(0)
    equal = [(size,) * len(symbols) for size in _SMALL[: _TRIALS // 2]]
    differing = [tuple(chooser.choices(_SMALL, k=len(symbols))) for _ in range(_LOOKED_AT)]
    looked_at = (dict(zip(symbols, each)) for each in dict.fromkeys(equal + differing))
    return itertools.islice((sizes for sizes in looked_at if _fits(problem, sizes)), _TRIALS)


def _fits(problem: SchedulingProblem, sizes: dict[Symbol, int]) -> bool:
    return bool(problem.facts.evaluate(sizes)) and all(dim.size.evaluate(sizes) >= 1 for dim in problem.dims)
