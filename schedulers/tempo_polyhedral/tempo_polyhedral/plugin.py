"""What the core's plugin manager loads: a descriptor, and nothing heavy."""

from __future__ import annotations

import pluggy

from tempo.plugins.descriptors import SchedulerPlugin

hookimpl = pluggy.HookimplMarker("tempo")


@hookimpl
def tempo_scheduler() -> SchedulerPlugin:
    return SchedulerPlugin(
        name="polyhedral",
        api_version=1,
        summary="shifts, interleavings and skewed loops from the dependences alone, by isl",
        factory="tempo_polyhedral.scheduler:PolyhedralScheduler",
    )
