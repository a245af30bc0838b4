"""Random problems: whatever the scheduler returns runs every instance once, after all that it depends on."""

from __future__ import annotations

from hypothesis import HealthCheck, event, given, note, settings
from tempo_greedy.scheduler import GreedyScheduler

from tempo.errors import UnsupportedError
from tempo.schedule import SchedulingProblem, verify
from tests.unit.schedule.random_problems import SIZES, problems


@settings(max_examples=2 * settings.default.max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_every_schedule_is_right(problem: SchedulingProblem) -> None:
    note(str(problem))
    try:
        tree = GreedyScheduler().schedule(problem)
    except UnsupportedError:
        event("refused")
        return
    event("scheduled")
    note(str(tree))
    for sizes in SIZES:
        verify(problem, tree, sizes)
