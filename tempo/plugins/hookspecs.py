"""The hooks that a plugin may implement, marked with `@tempo.plugins.hookimpl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from tempo.plugins.descriptors import BackendPlugin, SchedulerPlugin

PROJECT = "tempo"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tempo_backend() -> BackendPlugin:  # type: ignore[empty-body]
    """Describe the backend. Entry-point group `tempo.backends`."""


@hookspec
def tempo_scheduler() -> SchedulerPlugin:  # type: ignore[empty-body]
    """Describe the scheduler. Entry-point group `tempo.schedulers`."""


@hookspec
def tempo_register_passes(registry: Any) -> None:
    """Add passes or rewrite rules to the registry. Entry-point group `tempo.plugins`."""


@hookspec
def tempo_compile_started(program: Any, backend: str, scheduler: str) -> None:
    """Called before a program is compiled. Entry-point group `tempo.plugins`."""


@hookspec
def tempo_compile_finished(program: Any, executable: Any) -> None:
    """Called after a program was compiled. Entry-point group `tempo.plugins`."""
