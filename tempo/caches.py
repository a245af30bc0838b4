"""Folders of things that can be made again. What lies there is believed, and run, so it must be the user's own."""

from __future__ import annotations

import importlib.util
import os
import platform
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path

from tempo.logs import say

CACHE_VARIABLE = "TEMPO_CACHE_DIR"
"""A folder for plans and executables; an empty one keeps nothing."""
_STARTED = time.time_ns()  # about when the process began
_DIGEST = 64  # the length of one in hexadecimal
_CPU = Path("/proc/cpuinfo")
_FEATURES = ("model name", "flags", "Features", "CPU implementer", "CPU part")


def base_folder() -> Path | None:
    """The folder of all that is kept: `TEMPO_CACHE_DIR`, else the user's cache; None where that variable is empty."""
    given = os.environ.get(CACHE_VARIABLE)
    if given == "":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else home / "tempo-sdg"


def private(base: Path, below: Iterable[str], what: str, variable: str) -> Path | None:
    """The folder under `base`, made for the user alone where it is missing.

    None, with a warning, where it cannot be made, is another user's, or others may write to it or to a folder on the
    way to it from `base` on. `what` is kept there, as `variable` says.
    """
    folders = list(accumulate(below, Path.joinpath, initial=base))
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        wrong = next(filter(None, map(_wrong, folders)), None)
    except OSError as error:
        wrong = f"{error}"
    if wrong is None:
        return folders[-1]
    warnings.warn(f"{what} are not kept: {wrong}; {variable} names another folder, or none", RuntimeWarning, 3)
    return None


def _wrong(folder: Path) -> str | None:
    """Makes a folder where it is missing, and says why what lies in it is not to be believed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not hasattr(os, "getuid"):  # Windows, where a user's folders are the user's
        return None
    found = folder.stat()
    if found.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {folder} (chmod go-w {folder})"
    return None


def versions(*distributions: str) -> str:
    """Python and each of the distributions, with its version."""
    return " ".join(
        [f"python {platform.python_version()}", *(f"{each} {installed(each) or 'source'}" for each in distributions)]
    )


def installed(distribution: str) -> str | None:
    """The version of a distribution; None where it is run from a source tree, or is not there."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@cache
def stamps(packages: tuple[str, ...]) -> str:
    """The state of the sources of packages: their files, with sizes and times, since a version says nothing of a source
    tree. Looked at once: what a process has imported stays as it is. Raises `LookupError` for what has no files, and
    where one has changed since the process began: what was imported may be older.
    """
    found = []
    for package in packages:
        spec = importlib.util.find_spec(package) if package != "__main__" else None
        if spec is None or not spec.origin:
            raise LookupError(f"{package} has no files")
        folder = Path(spec.origin).parent
        files = sorted(folder.rglob("*.py")) if spec.submodule_search_locations else [Path(spec.origin)]
        states = [(each, each.stat()) for each in files]
        if any(state.st_mtime_ns > _STARTED for _, state in states):
            raise LookupError(f"sources of {package} have changed since")
        found += [f"{each} {state.st_size} {state.st_mtime_ns}" for each, state in states]
    return "\n".join(found)


def write(path: Path, contents: bytes) -> None:
    """Keeps these contents there, where that can be. Nobody ever finds them half written."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with open(handle, "wb") as file:
                file.write(_seal(path, contents) + contents)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:  # a full disk costs time, not the result
        why = f"{error}"
        say("plans", lambda: f"{path} is not kept: {why}")


def read(path: Path) -> bytes | None:
    """What `write` kept there; None where there is nothing, or anything else."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    seal, contents = found[:_DIGEST], found[_DIGEST:]
    return contents if seal == _seal(path, contents) else None


def _seal(path: Path, contents: bytes) -> bytes:
    """Of the name, too: a file under the name of another is not what was kept there."""
    return _hexadecimal(path.name.encode() + b"\n" + contents).encode()


def machine() -> str:
    """What code for this machine's processor depends on."""
    return " ".join([sys.platform, platform.machine(), *_features()])


def _features() -> list[str]:
    """Of the first processor, where the system says so; else its name."""
    try:
        first = _CPU.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return [platform.processor()]
    pairs = (line.partition(":") for line in first.splitlines())
    return [value.strip() for name, _, value in pairs if name.strip() in _FEATURES]


def digest(*parts: str) -> str:
    return _hexadecimal("\n".join(parts).encode())


def _hexadecimal(contents: bytes) -> str:
    import hashlib  # which takes longer to import than all else here

    return hashlib.sha256(contents).hexdigest()
