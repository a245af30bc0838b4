"""Random problems: whatever isl returns runs every instance once, after all that it depends on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from tempo_polyhedral.isl import IslError
from tempo_polyhedral.settings import FUSING
from tempo_polyhedral.solve import solve

from tempo.schedule import SchedulingProblem, verify
from tests.unit.schedule.random_problems import SIZES, problems


@pytest.mark.parametrize("separate", [False, True])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems())
def test_every_schedule_is_right(separate: bool, problem: SchedulingProblem) -> None:
    note(str(problem))
    try:
        tree = solve(problem, FUSING, separate)
    except IslError:
        event("refused")
        return
    event("scheduled")
    note(str(tree))
    for sizes in SIZES:
        verify(problem, tree, sizes)
