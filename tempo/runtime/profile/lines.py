"""Seconds by the user's lines, from samples and from what a backend's own profiler says.

A sample in a line of generated source is of what the line is of (`tempo.loop_ir.codegen.source_map`). The rest of an
item's time, which XLA's executables take above all, is shared out as the looks of the backend's profiler say.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tempo.backends.tracing import Origin
from tempo.loop_ir.codegen.source_map import SourceMap
from tempo.runtime.compiled import Compiled
from tempo.runtime.profile.recorder import ItemTimes, Place, Recorder, item_name

_SHOWN = 20
_COLUMNS = ("seconds", "share", "tensor", "operator", "line")


@dataclass(frozen=True)
class LineProfile:
    """The seconds that a line of the user's took, an operator of a tensor; and their share of all.

    Where `origin` is None they are no tensor's: `what` says whose.
    """

    seconds: float
    share: float
    origin: Origin | None
    what: str = ""

    def __str__(self) -> str:
        return "  ".join(_row(self))


@dataclass(frozen=True)
class Profile:
    """Where the time of some runs went.

    `seconds`: of all calls, and of steps of streams; `lines`, the costliest first, add up to it. `samples`: by how many
    it was found. `looked`: the share of the time of items that the backend's own profiler has seen, None where there is
    none to ask; `cost`: the seconds that this took, which are not in `seconds`. `path`: the trace.
    """

    lines: tuple[LineProfile, ...]
    seconds: float
    calls: int
    samples: int
    looked: float | None
    cost: float
    path: Path
    tracer: str = ""

    @property
    def by_origin(self) -> Mapping[Origin, float]:
        """The seconds of lines that are of a tensor."""
        return {each.origin: each.seconds for each in self.lines if each.origin is not None}

    def __str__(self) -> str:
        shown = self.lines[:_SHOWN]
        table = [_COLUMNS, *map(_row, shown)]
        widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
        right = ["".join(f"{row[at]:>{widths[at]}}  " for at in (0, 1)) for row in table]
        left = ["  ".join(f"{row[at]:<{widths[at]}}" for at in (2, 3, 4)) for row in table]
        text = [f"{numbers}{words}".rstrip() for numbers, words in zip(right, left, strict=True)]
        if rest := self.lines[_SHOWN:]:
            text.append(f"and {len(rest)} lines of {sum(each.seconds for each in rest):.3f} s together")
        return "\n".join([*self._about(), *text])

    def _about(self) -> Iterator[str]:
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        yield f"{self.seconds:.3f} s in {calls}, {self.samples} samples; the trace is {self.path}"
        if self.looked is not None:
            yield f"{self.tracer}'s profiler saw {self.looked:.1%} of the time, for {self.cost:.3f} s beside it"
            if not self.looked:
                yield "(nothing: profile more calls, or longer ones)"
            elif self.cost > 0.1 * self.seconds:
                yield "(more than a tenth of it: profile more calls, or longer ones, and it will be less)"


def profile_of(recorder: Recorder, path: Path, origins: Origins) -> Profile:
    """All that was recorded."""
    found = _found(recorder.items, origins)
    if recorder.waited:
        found["compiling"] = recorder.waited
    in_items, looked = sum(each.seconds for each in recorder.items), sum(each.looked for each in recorder.items)
    total = max(recorder.call_seconds, in_items + recorder.waited)
    if (rest := total - sum(found.values())) > 0:
        found["beside the items: arguments, results, what no sample fell into"] = rest
    lines = sorted((seconds, str(key), key) for key, seconds in found.items() if seconds > 0)
    made = (_line(key, seconds, total) for seconds, _, key in reversed(lines))
    looks = recorder.looks
    share = None if looks is None else min(1.0, looked / in_items) if in_items else 0.0
    return Profile(
        tuple(made), total, recorder.calls, recorder.samples, share, 0.0 if looks is None else looks.spent, path,
        "" if looks is None else looks.tracer.name,
    )  # fmt: skip


def _line(key: Origin | str, seconds: float, total: float) -> LineProfile:
    share = seconds / total
    return LineProfile(seconds, share, key) if isinstance(key, Origin) else LineProfile(seconds, share, None, key)


Key = Origin | str


def _found(items: Sequence[ItemTimes], origins: Origins) -> dict[Key, float]:
    """Seconds by line. Where code was not looked into, the code for chunks of the same program is what says how its
    time is shared out."""
    found, seen, unseen = dict[Key, float](), dict[Key, float](), dict[Key, float]()
    looked = {id(times.code) for times in items if times.own}
    for times in items:
        mapped = {place: origins.at(times, place) for place in times.sampled}
        for place, origin in mapped.items():
            if origin is not None:
                _add(found, origin, times.sampled[place])
        rest = times.seconds - sum(times.sampled[place] for place, origin in mapped.items() if origin is not None)
        whose = {place: times.sampled[place] for place, origin in mapped.items() if origin is None}
        into = seen if id(times.code) in looked else unseen
        for key, seconds in _rest(times, max(0.0, rest), whose):
            _add(into, key, seconds)
    more = 1 + sum(unseen.values()) / sum(seen.values()) if seen else 1.0
    for key, seconds in seen.items():
        _add(found, key, seconds * more)
    for key, seconds in () if seen else unseen.items():
        _add(found, key, seconds)
    return found


def _add(to: dict[Key, float], key: Key, seconds: float) -> None:
    to[key] = to.get(key, 0.0) + seconds


def _rest(times: ItemTimes, rest: float, whose: Mapping[Place | None, float]) -> Iterator[tuple[Key, float]]:
    """What of an item's time no sample gives to a line."""
    name = item_name(times)
    if whole := sum(times.own.values()):
        for key, seconds in times.own.items():
            yield key if isinstance(key, Origin) else f"{name}: {_without_number(key)}", rest * seconds / whole
        return
    for place, seconds in whose.items():
        is_inside = place is not None and not place[0].startswith("<tempo item_")
        yield f"{name}: loops, and what is read" if is_inside else f"{name}, as a whole", seconds


def _without_number(name: str) -> str:
    """Operators that differ in a number alone are as one."""
    return name.rstrip("0123456789.") or name


class Origins:
    """What the lines of generated source are of. Source maps are made when they are first asked for."""

    def __init__(self) -> None:
        self._makers: dict[int, Mapping[str, Callable[[], SourceMap]]] = {}
        self._maps: dict[str, SourceMap] = {}

    def at(self, times: ItemTimes, place: Place | None) -> Origin | None:
        if place is None:
            return None
        file, line = place
        if file not in self._maps:
            code = times.code
            if id(code) not in self._makers:  # it is kept by what was recorded
                self._makers[id(code)] = _makers(code)
            self._maps[file] = self._makers[id(code)].get(file, dict)()
        return self._maps[file].get(line)


def _makers(code: Compiled) -> Mapping[str, Callable[[], SourceMap]]:
    """By file of generated source."""
    found = dict[str, Callable[[], SourceMap]]()
    for segment in code.segments:
        if (file := _file(segment.function)) is not None:
            found[file] = segment.origins
    for number, item in enumerate(code.items):
        listed = partial(_item_map, code, number)
        found.update((file, listed) for each in (item.function, item.part) if (file := _file(each)) is not None)
    return found


def _item_map(code: Compiled, number: int) -> SourceMap:
    return code.item_listing(number)[1]


def _file(function: object) -> str | None:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return None if code is None else str(code.co_filename)


def _row(line: LineProfile) -> Sequence[str]:
    numbers = f"{line.seconds:.3f}", f"{line.share:.1%}"
    if line.origin is None:
        return *numbers, "-", "-", line.what
    return *numbers, line.origin.name, line.origin.op, shown_location(line.origin)


def shown_location(origin: Origin) -> str:
    """The file, from where one is, the line, and its text."""
    if origin.location is None:
        return ""
    path = origin.location.path
    near = os.path.relpath(path) if os.path.isabs(path) and path.startswith(os.getcwd() + os.sep) else path
    return f"{near}:{origin.location.line}  {origin.location.text}".rstrip()
