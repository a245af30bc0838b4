"""Schedules that were found before: in memory, and in files under the user's cache directory.

A file holds the tree as text (`tempo.caches`). One that says anything else than what was written, or whose tree is
wrong, counts as absent. A folder that others may write to is not used.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tempo.caches import digest, private, read, versions, write
from tempo.schedule import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Symbol, parse_condition, parse_expr

CACHE_VARIABLE = "TEMPO_CACHE"
"""A directory for the files; "0" or nothing keeps everything in memory."""

_FORMAT = "schedules 3"
_MADE_OF = ("tempo-sdg", "tempo-sdg-polyhedral", "islpy")


@dataclass(frozen=True)
class Entry:
    """The tree of a numbered problem, and the rung that found it."""

    tree: ScheduleTree
    rung: str


class Cache:
    """Entries by the digest of their problem. A directory that others may write to is not used, with a warning."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known: dict[str, Entry] = {}

    def find(self, key: str, is_sound: Callable[[ScheduleTree], bool]) -> Entry | None:
        """The entry; what comes from a file has a tree that is sound."""
        found = self._known.get(key)
        if found is None and self._folder is not None:
            found = _read(self._folder, key, is_sound)
            if found is not None:
                self._known[key] = found
        return found

    def keep(self, key: str, entry: Entry, lasting: bool) -> None:
        """`lasting`: in a file too."""
        self._known[key] = entry
        if lasting and self._folder is not None:
            text = json.dumps({"tree": _plain(entry.tree), "rung": entry.rung})
            write(_path(self._folder, key), text.encode())

    @cached_property
    def _folder(self) -> Path | None:
        if self._directory is None:
            return None
        return private(self._directory, ("schedules",), "schedules", CACHE_VARIABLE)


@functools.cache
def default_cache() -> Cache:
    """The one cache of this process."""
    return Cache(_directory())


def _directory() -> Path | None:
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return None if given in ("", "0") else Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tempo" if base else None


@functools.cache
def _made_of() -> str:
    """What the result depends on but the problem: another version may find another schedule."""
    return f"{_FORMAT} {versions(*_MADE_OF)}"


# -- files -------------------------------------------------------------------------------------------------------------


def _path(folder: Path, key: str) -> Path:
    return folder / f"{digest(_made_of(), key)}.schedule"


def _read(folder: Path, key: str, is_sound: Callable[[ScheduleTree], bool]) -> Entry | None:
    contents = read(_path(folder, key))
    if contents is None:
        return None
    try:
        stored = json.loads(contents)
        tree = _tree(stored["tree"])
        return Entry(tree, stored["rung"]) if is_sound(tree) else None
    except Exception:  # noqa: BLE001 - whatever the reader raises, the file is at fault, and the schedule is made again
        return None


def _plain(tree: ScheduleTree) -> list[Any]:
    match tree:
        case Sequence(items):
            return ["sequence", *map(_plain, items)]
        case For(var, lo, hi, direction, body):
            return ["for", var.name, str(lo), str(hi), direction, _plain(body)]
        case If(condition, body):
            return ["if", str(condition), _plain(body)]
        case Run(statement, point):
            return ["run", statement, *map(str, point)]


def _tree(plain: list[Any]) -> ScheduleTree:
    match plain:
        case ["sequence", *items]:
            return Sequence(tuple(map(_tree, items)))
        case ["for", var, lo, hi, "forward" | "backward" as direction, body]:
            return For(Symbol(var, "dim"), parse_expr(lo), parse_expr(hi), direction, _tree(body))
        case ["if", condition, body]:
            return If(parse_condition(condition), _tree(body))
        case ["run", statement, *point]:
            return Run(statement, tuple(map(parse_expr, point)))
    raise ValueError(f"no tree: {plain!r}")
