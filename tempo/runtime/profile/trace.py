"""The trace: Chrome's JSON, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

One process is Tempo, with the thread that ran: calls, in them the driver's items, in these the lines that samples fell
into. Another one is the backend's own profiler, with the threads that it tells of. Times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tempo.backends.tracing import Origin
from tempo.runtime.profile.lines import Origins, shown_location
from tempo.runtime.profile.recorder import Recorder, Span

Event = dict[str, Any]
_OURS, _THEIRS = 1, 2


def write_trace(path: Path, recorder: Recorder, program: str, origins: Origins) -> None:
    """Write what was recorded of a program's runs."""
    complete = [*_own(recorder, origins), *_of_tracer(recorder)]
    events = [*_names(recorder, program), *_nested(complete)]
    whole = {"traceEvents": events, "displayTimeUnit": "ms"}
    with path.open("w", encoding="utf-8") as file:
        json.dump(whole, file, allow_nan=False)


def _names(recorder: Recorder, program: str) -> Iterator[Event]:
    yield _meta("process_name", _OURS, 0, f"Tempo: {program}")
    yield _meta("thread_name", _OURS, 1, "runs")
    if recorder.looks is None:
        return
    yield _meta("process_name", _THEIRS, 0, f"{recorder.looks.tracer.name}, while it was looked at")
    for name, number in _threads(recorder).items():
        yield _meta("thread_name", _THEIRS, number, name)


def _meta(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def _threads(recorder: Recorder) -> Mapping[str, int]:
    names = sorted({event.thread for _, event in recorder.traced})
    return {name: number for number, name in enumerate(names, start=1)}


def _own(recorder: Recorder, origins: Origins) -> Iterator[Event]:
    for span in recorder.spans:
        start, seconds = span.start - recorder.began, span.end - span.start
        if span.times is None or span.name:
            yield _event(span.name, "tempo", _OURS, 1, start, seconds)
            continue
        origin = origins.at(span.times, span.place)
        name = _place_name(span) if origin is None else f"{origin.name} ({origin.op})"
        yield _event(name, "line", _OURS, 1, start, seconds, origin)


def _place_name(span: Span) -> str:
    return "the run" if span.place is None else f"{span.place[0].strip('<>')}, line {span.place[1]}"


def _of_tracer(recorder: Recorder) -> Iterator[Event]:
    threads = _threads(recorder)
    for began, each in recorder.traced:
        start = began - recorder.began + each.start
        category = "operator" if each.is_operator else "backend"
        yield _event(each.name, category, _THEIRS, threads[each.thread], start, each.seconds, each.origin)


def _event(
    name: str, category: str, process: int, thread: int, start: float, seconds: float, origin: Origin | None = None
) -> Event:
    made: Event = {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread}
    made["ts"], made["dur"] = round(max(0.0, start) * 1e6, 3), round(max(0.0, seconds) * 1e6, 3)
    if origin is not None:
        made["args"] = {"tensor": origin.name, "operator": origin.op, "line": shown_location(origin)}
    return made


def _nested(events: Iterable[Event]) -> list[Event]:
    """In order of time, an outer one before what is in it. What clocks make reach a little further than what it began
    in ends with that."""
    ordered = sorted(events, key=lambda each: (each["ts"], -each["dur"]))
    ends = dict[tuple[int, int], list[float]]()
    for event in ordered:
        outer = ends.setdefault((event["pid"], event["tid"]), [])
        while outer and outer[-1] <= event["ts"]:
            outer.pop()
        if outer and event["ts"] + event["dur"] > outer[-1]:
            event["dur"] = round(max(0.0, outer[-1] - event["ts"]), 3)
        outer.append(event["ts"] + event["dur"])
    return ordered
