"""Executables that outlive the process: JAX's persistent compilation cache, for what Tempo compiles and nothing else.

JAX's cache is a setting of the whole process. A user who has made it has it for segments too. Otherwise it is on while
a segment is compiled, and off again afterwards. JAX keeps what took it a second or more to compile
(`jax_persistent_cache_min_compile_time_secs`).
"""

from __future__ import annotations

import os
import platform
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

CACHE_VARIABLE = "TEMPO_CACHE_DIR"


def folder() -> Path | None:
    """Where executables are kept: `TEMPO_CACHE_DIR`, else the user's cache folder; None where that variable is empty.

    Each machine has its own, since code for one CPU may not run on another.
    """
    given = os.environ.get(CACHE_VARIABLE)
    if given == "":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(given) if given else home / "tempo-sdg") / "jax" / (platform.node() or "here")


class _Switch:
    """JAX's setting, on while one or more threads compile."""

    def __init__(self) -> None:
        self._lock, self._users, self._path = threading.Lock(), 0, ""

    def on(self, path: Path) -> bool:
        """Whether it was put on; not where it is the user's own."""
        with self._lock:
            if jax.config.jax_compilation_cache_dir not in (None, self._path):
                return False
            self._users, self._path = self._users + 1, str(path)
            jax.config.update("jax_compilation_cache_dir", self._path)
            return True

    def off(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and jax.config.jax_compilation_cache_dir == self._path:
                jax.config.update("jax_compilation_cache_dir", None)
                compilation_cache.reset_cache()


_SWITCH = _Switch()


@contextmanager
def kept() -> Iterator[None]:
    """What is compiled within the block is kept on disk, or taken from there."""
    path = folder()
    if path is None or not _exists(path) or not _SWITCH.on(path):
        yield
        return
    try:
        yield
    finally:
        _SWITCH.off()


def _exists(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"executables are not kept: {error}; {CACHE_VARIABLE}= (empty) says so", stacklevel=2)
        return False
    return True
