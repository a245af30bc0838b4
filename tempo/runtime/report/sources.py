"""The user's lines that a page refers to."""

from __future__ import annotations

import linecache
from pathlib import Path

from tempo.errors import Location
from tempo.runtime.report.contents import NOWHERE, File

_AROUND = 2
"""Lines before and after one that is referred to."""


class Sources:
    """Numbers for files and places, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._places: dict[tuple[int, int], int] = {}

    def place(self, location: Location | None) -> int:
        """The number of a line."""
        if location is None:
            return NOWHERE
        file = self._paths.setdefault(location.path, len(self._paths))
        return self._places.setdefault((file, location.line), len(self._places))

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._places)

    def files(self) -> tuple[File, ...]:
        """What there is to read of them, as they are now; nothing of what is in no file."""
        short = _short(list(self._paths))
        return tuple(File(path, short[path], self._lines(number, path)) for path, number in self._paths.items())

    def _lines(self, file: int, path: str) -> dict[int, str]:
        text = linecache.getlines(path)
        named = {line for each, line in self._places if each == file}
        wanted = {line + more for line in named for more in range(-_AROUND, _AROUND + 1)}
        return {line: text[line - 1].rstrip("\n") for line in sorted(wanted) if 0 < line <= len(text)}


def _short(paths: list[str]) -> dict[str, str]:
    """Of each path as many last parts as tell it from the others."""
    parts = {path: Path(path).parts for path in paths}
    found = {}
    for path in paths:
        lengths = range(1, len(parts[path]) + 1)
        others = [each for each in paths if each != path]
        alone = (n for n in lengths if all(parts[each][-n:] != parts[path][-n:] for each in others))
        found[path] = "/".join(parts[path][-next(alone, len(parts[path])) :])
    return found
