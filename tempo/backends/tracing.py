"""A backend's own profiler, which sees into what it has compiled: `Backend.tracer`.

The core runs a program in short stretches of its loops, has the tracer on for a few of them, and merges what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tempo.loop_ir.codegen.source_map import Origin, origin_of

if TYPE_CHECKING:
    from tempo.backends.base import CompiledSegment

__all__ = ["Origin", "TracedEvent", "Tracer", "origin_of"]


@dataclass(frozen=True)
class TracedEvent:
    """What one thread of the backend's did, from `start` on, in seconds since the tracer was started.

    `is_operator`: it is work of a segment, of which the time is counted; `origin`: of which tensor and line.
    """

    name: str
    thread: str
    start: float
    seconds: float
    is_operator: bool = False
    origin: Origin | None = None


class Tracer(Protocol):
    """`start` and `stop` are called in turn, by one thread, any number of times."""

    name: str
    """That a reader knows the profiler by."""

    def wait(self, arrays: Sequence[Any]) -> None:
        """Until all that was started is done, and these arrays of the backend's, or None, are there."""

    def start(self) -> None:
        """Raises `UnsupportedError` where the profiler is in use."""

    def stop(self, segments: Sequence[CompiledSegment]) -> Iterator[TracedEvent]:
        """What was done since; `segments` are those of the programs that ran. The run goes on at once: what was seen is
        read when the iterator is, which may take longer than all that it tells of."""
