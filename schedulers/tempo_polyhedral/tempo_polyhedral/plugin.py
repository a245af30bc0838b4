"""What the core's plugin manager loads: a descriptor, and nothing heavy."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pluggy

from tempo.plugins import SchedulerPlugin

hookimpl = pluggy.HookimplMarker("tempo")


ISLPY = "2025.1"
"""The oldest islpy that has all that is used."""


@hookimpl
def tempo_scheduler() -> SchedulerPlugin:
    """ImportError where islpy is missing or too old: nothing of it is imported to find out."""
    _check_islpy()
    return SchedulerPlugin(
        name="polyhedral",
        api_version=1,
        summary="shifts, interleavings and skewed loops from the dependences alone, by isl",
        factory="tempo_polyhedral.scheduler:PolyhedralScheduler",
    )


def _check_islpy() -> None:
    install = f'python -m pip install --upgrade "islpy>={ISLPY}"'
    try:
        found = version("islpy")
    except PackageNotFoundError as error:
        raise ImportError(f"islpy is not installed: {install}") from error
    if _release(found) < _release(ISLPY):
        raise ImportError(f"islpy {found} is too old: {install}")


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers: `2025.1.2rc1` is (2025, 1)."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
