"""What the core's plugin manager loads: a descriptor, and nothing heavy."""

from __future__ import annotations

import pluggy

from tempo.plugins import SchedulerPlugin

hookimpl = pluggy.HookimplMarker("tempo")


@hookimpl
def tempo_scheduler() -> SchedulerPlugin:
    return SchedulerPlugin(
        name="greedy",
        api_version=1,
        summary="levels, shifting by constants, fusion; near linear in the number of statements",
        factory="tempo_greedy.scheduler:GreedyScheduler",
    )
