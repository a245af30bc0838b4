"""Paths that users give for what is to be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tempo.errors import InputError, MissingFileError


def path_of(path: Any, example: str) -> Path:
    """The path of a file; a link is what it points at, which it goes on to do. `example`: the call as it should be.

    Raises `InputError` for what is no path.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InputError(f"a {type(path).__name__} is no path", hint=f"give the path of a file: {example}")
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise InputError(f"{os.fspath(path)!r} is no path", hint=f"give that of a file: {example}")
    return Path(os.path.realpath(path))


def path_to_write(path: Any, example: str) -> Path:
    """The same before something is made to be written there. Raises `MissingFileError` where there is no such folder,
    and `InputError` for a path that is one."""
    found = path_of(path, example)
    if not found.parent.is_dir():
        raise MissingFileError(f"there is no folder {found.parent}", hint="make it first: os.makedirs(...)")
    if found.is_dir():
        raise InputError(f"{found} is a folder", hint="give the path of a file in it")
    return found
