"""Schedules that were found before: in memory, and in files under the user's cache directory.

A file holds the tree as text and a digest of it. One that is unreadable, or says anything else than what was written,
counts as absent. Files are written under another name and then renamed, so that none is ever half written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tempo.schedule import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Symbol, parse_condition, parse_expr

CACHE_VARIABLE = "TEMPO_CACHE"
"""A directory for the files; "0" or nothing keeps everything in memory."""

_FORMAT = 1
_MADE_OF = ("tempo-sdg", "tempo-sdg-polyhedral", "islpy")


@dataclass(frozen=True)
class Entry:
    """The tree of a numbered problem, and the rung that found it."""

    tree: ScheduleTree
    rung: str


class Cache:
    """Entries by the digest of their problem."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known: dict[str, Entry] = {}

    def find(self, key: str) -> Entry | None:
        if key not in self._known and self._directory is not None:
            found = _read(self._path(self._directory, key))
            if found is not None:
                self._known[key] = found
        return self._known.get(key)

    def keep(self, key: str, entry: Entry, lasting: bool) -> None:
        """`lasting`: in a file too."""
        self._known[key] = entry
        if lasting and self._directory is not None:
            with contextlib.suppress(OSError):  # a full disk or a directory of another's costs time, not the result
                _write(self._path(self._directory, key), entry)

    @staticmethod
    def _path(directory: Path, key: str) -> Path:
        return directory / "schedules" / f"{hashlib.sha256(f'{_made_of()} {key}'.encode()).hexdigest()}.json"


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
    return " ".join([str(_FORMAT), *map(_version, _MADE_OF)])


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "source"


# -- files -------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Entry | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        text, rung = stored["tree"], stored["rung"]
        if stored["digest"] != _digest(text, rung):
            return None
        return Entry(_tree(json.loads(text)), rung)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, entry: Entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(entry.tree))
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump({"tree": text, "rung": entry.rung, "digest": _digest(text, entry.rung)}, file)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _digest(text: str, rung: str) -> str:
    return hashlib.sha256(f"{rung} {text}".encode()).hexdigest()


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
