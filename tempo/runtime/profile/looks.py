"""When a backend's own profiler is on: for a share of the run only, since some cost more than what they look at.

XLA's takes half a microsecond for each operator while it looks, and ten when it has ended; of operators of a fifth of a
microsecond a look that covers all of a run would make it fifty times as long. So a look covers as little as can be, one
call or some milliseconds of a loop, and what it costs is measured: the seconds that the profiler starts and stops, and
what the stretches that it sees, and runs in chunks, take beyond what they took before. The first look is made where the
time goes, as soon as that is known; another one when all of them will still have cost a small share of the run. What a
look has seen is read when the profile ends, which is no run's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tempo.backends.base import CompiledSegment
from tempo.backends.tracing import TracedEvent, Tracer

LEAST = 0.001
"""Seconds that a look covers: the first stretches that together take so long."""
SHARE = 0.02
"""Of the time of a run, what looks may cost."""
FIRST_SHARE = 0.04
"""The same, for one at something that was never looked at."""
_GUESS = 0.05


@dataclass(frozen=True)
class Seen:
    """What a look has seen, from a time on of the core's clock: events, which are read once."""

    events: Iterator[TracedEvent]
    began: float


@dataclass
class Looks:
    """`spent`: the seconds that looks have cost; `seconds`: those that stretches took, with looks and without."""

    tracer: Tracer
    spent: float = 0.0
    seconds: float = 0.0
    _began: float | None = None
    _tells: float = 0.0
    _extra: float = 0.0
    _last: float = _GUESS
    _first: bool = True
    _segments: dict[int, CompiledSegment] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self._began is not None

    @property
    def is_first(self) -> bool:
        """Whether there was none yet."""
        return self._first

    def affords(self, is_new: bool) -> bool:
        """Whether there is time for one more, at what was looked at before or at something `is_new`."""
        return self._first or self.wait_for_next(is_new) <= 0

    def wait_for_next(self, is_new: bool) -> float:
        """Seconds that are still to run before it affords one more."""
        return (self.spent + self._last) / (FIRST_SHARE if is_new else SHARE) - self.seconds

    def begin(self) -> None:
        start = time.perf_counter()
        self.tracer.start()
        self._began, self._first = time.perf_counter(), False
        self._extra, self._tells = self._began - start, 0.0

    def add(self, tells: float, extra: float, segments: Sequence[CompiledSegment]) -> None:
        """A stretch that it has seen is as good as so many seconds, and took `extra` beyond what it takes without."""
        self._tells += tells
        self._extra += extra
        self._segments.update((id(each), each) for each in segments)

    @property
    def is_enough(self) -> bool:
        return self.is_open and self._tells >= LEAST

    def end(self) -> Seen:
        assert self._began is not None
        ended = time.perf_counter()
        began, self._began = self._began, None
        segments = list(self._segments.values())
        self._segments.clear()
        events = self.tracer.stop(segments)
        self._last = self._extra + time.perf_counter() - ended
        self.spent += self._last
        return Seen(events, began)

    def wait(self, arrays: Sequence[Any]) -> None:
        self.tracer.wait(arrays)
