"""What Tempo's plugin manager loads when it lists schedulers: a descriptor. This module imports nothing heavy."""

from __future__ import annotations

from tempo.plugins import SchedulerPlugin, hookimpl

PLUGIN = SchedulerPlugin(
    name="unfused",
    api_version=1,  # written out: the version of the contract that this package was made for
    summary="an example: a loop nest for each cycle of dependences, nothing fused",
    factory="tempo_unfused.scheduler:UnfusedScheduler",  # imported when the scheduler is used
)


@hookimpl
def tempo_scheduler() -> SchedulerPlugin:
    return PLUGIN
