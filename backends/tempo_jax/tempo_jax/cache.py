"""Executables that outlive the process: JAX's persistent compilation cache, for what Tempo compiles and nothing else.

JAX's cache is a setting of the whole process. A user who has made it has it for segments too. Otherwise it is on while
a segment is compiled, and off again afterwards. JAX keeps what took it a second or more to compile
(`jax_persistent_cache_min_compile_time_secs`), writes a checksum beside it, and compiles again what is damaged. What is
there is run, so a folder that others may write to is not used.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from tempo.caches import digest, machine, private, versions

CACHE_VARIABLE = "TEMPO_CACHE_DIR"
_FORMAT = "executables 1"
_MADE_OF = ("tempo-sdg", "tempo-sdg-jax", "jax", "jaxlib", "numpy")
_SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def folder() -> Path | None:
    """Where executables are kept: `TEMPO_CACHE_DIR`, else the user's cache; None where that variable is empty."""
    base = _base()
    return None if base is None else base.joinpath(*_below())


def _base() -> Path | None:
    given = os.environ.get(CACHE_VARIABLE)
    if given == "":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else home / "tempo-sdg"


def _below() -> tuple[str, str, str]:
    """Each machine has its own, since code for one processor may not run on another, and so have versions."""
    return "jax", platform.node() or "here", _made_for(*(os.environ.get(name, "") for name in _SETTINGS))


@functools.cache
def _made_for(*settings: str) -> str:
    return digest(_FORMAT, versions(*_MADE_OF), machine(), *settings)[:16]


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
    base = _base()
    path = None if base is None else _checked(base, *_below())
    if path is None or not _SWITCH.on(path):
        yield
        return
    try:
        yield
    finally:
        _SWITCH.off()


@functools.cache
def _checked(base: Path, *below: str) -> Path | None:
    """Looked at once: what JAX reads there it runs."""
    return private(base, below, "executables", CACHE_VARIABLE)
