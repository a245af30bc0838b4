"""PyTorch's profiler: operators as its libraries see them, and what runs on a GPU.

Which lines they are of the core knows already, from samples of the generated source; so an event is named as PyTorch
names it. On a GPU these are the seconds of the host, which runs ahead; what the device does is in the trace alone.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tempo.backends import CompiledSegment
from tempo.backends.tracing import TracedEvent
from tempo.errors import UnsupportedError

_LEVEL = "KINETO_LOG_LEVEL"


class TorchTracer:
    """`synchronize`: waits for the device. Its first look in a process loads a library, for a second or two: that is
    done here, before anything runs."""

    name = "PyTorch"

    def __init__(self, device: torch.device, synchronize: Callable[[], None]) -> None:
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._synchronize = synchronize
        self._profile: profile | None = None
        self._began = 0
        with _quiet():
            self.start()
            torch.zeros(1).neg()
            self.stop(())

    def wait(self, arrays: Sequence[Any]) -> None:
        self._synchronize()

    def start(self) -> None:
        if torch.autograd._profiler_enabled():
            raise UnsupportedError("PyTorch's profiler is in use", hint="end the other profile first")
        self._profile = profile(activities=self._activities, record_shapes=False, with_stack=False)
        self._profile.start()
        self._began = time.time_ns()

    def stop(self, segments: Sequence[CompiledSegment]) -> Iterator[TracedEvent]:
        assert self._profile is not None, "it was started"
        made, self._profile = self._profile, None
        made.stop()
        with tempfile.TemporaryDirectory(prefix="tempo-profile-") as folder:
            path = Path(folder, "trace.json")
            made.export_chrome_trace(str(path))
            return _events(path.read_text(), self._began)


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, the library is loaded so that it does not tell the terminal of each look, unless a user has said how much
    it is to say."""
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = "6"
    try:
        yield
    finally:
        del os.environ[_LEVEL]


def _events(text: str, began: int) -> Iterator[TracedEvent]:
    """Times are in microseconds from a base, which is in nanoseconds of the epoch."""
    told = json.loads(text)
    base, rows = told.get("baseTimeNanoseconds", 0), dict[tuple[Any, Any], str]()
    for event in told["traceEvents"]:
        if event["ph"] == "M" and event["name"] in ("thread_name", "process_labels"):
            rows[event["pid"], event["tid"]] = str(event["args"].get("name", event["args"].get("labels", "")))
    for event in told["traceEvents"]:
        if event["ph"] == "X" and event.get("cat") != "Trace":
            thread = f"{rows.get((event['pid'], event['tid']), '')} {event['pid']}/{event['tid']}".strip()
            start = (event["ts"] * 1e3 + base - began) * 1e-9
            yield TracedEvent(event["name"], thread, start, event["dur"] * 1e-6)
