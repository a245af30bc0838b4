"""One attempt: a problem with numbered statements to isl, and isl's order back as a tree."""

from __future__ import annotations

from tempo.schedule import ScheduleTree, SchedulingProblem, Sequence
from tempo_polyhedral.encode import encode
from tempo_polyhedral.isl import loops, schedule
from tempo_polyhedral.settings import Settings
from tempo_polyhedral.tidy import tidy

_NEAR = 32
"""How many relations ask for closeness, the heaviest: isl knows no weights, and each costs more than several others."""


def solve(problem: SchedulingProblem, settings: Settings, separate: bool = False) -> ScheduleTree:
    """The tree of a problem whose statements are called `s0`, `s1`, ...; IslError where isl finds none."""
    if not problem.statements:
        return Sequence()
    given = encode(problem)
    before = [link.relation for link in given.links]
    heaviest = sorted((link for link in given.links if link.closeness), key=lambda link: -link.closeness)
    near = [link.relation for link in heaviest[:_NEAR]]
    order = schedule(given.parameters, given.context, given.domains, before, near, settings)
    return tidy(problem, loops(order, separate))
