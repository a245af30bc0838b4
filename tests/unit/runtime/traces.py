"""What Chrome's format of traces asks of a file (the Trace Event Format: complete events and names)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def checked(path: Path) -> list[dict[str, Any]]:
    """The complete events of a file that Perfetto opens: in order of time, those of a thread within one another or
    apart."""
    whole = json.loads(path.read_text())
    events = whole["traceEvents"]
    named = {(each["pid"], each["tid"]) for each in events if each["ph"] == "M" and each["name"] == "thread_name"}
    complete = [each for each in events if each["ph"] == "X"]
    assert {each["ph"] for each in events} <= {"X", "M"}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0
    assert [each["ts"] for each in complete] == sorted(each["ts"] for each in complete)
    ends: dict[tuple[int, int], list[float]] = {}
    for event in complete:
        assert event["dur"] >= 0
        row = event["pid"], event["tid"]
        assert row in named
        outer = ends.setdefault(row, [])
        while outer and outer[-1] <= event["ts"] + 1e-3:
            outer.pop()
        assert not outer or event["ts"] + event["dur"] <= outer[-1] + 2e-3
        outer.append(event["ts"] + event["dur"])
    return complete
