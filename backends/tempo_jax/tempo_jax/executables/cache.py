"""Executables that outlive the process: JAX's persistent compilation cache, for what Tempo compiles and nothing else.

JAX's cache is a setting of the whole process. A user who has made it has it for segments too. Otherwise it is on while
a segment is compiled, and off again afterwards. All segments are kept, also those that take less than the second from
which on JAX keeps what it compiles: a program has several, and a second process is to compile none. JAX writes a
checksum beside each, and compiles again what is damaged. What is there is run, so a folder that others may write to is
not used.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from tempo.backends import processors
from tempo.caches import CACHE_VARIABLE, base_folder, digest, machine, private, versions

_FORMAT = "executables 1"
_MADE_OF = ("tempo-sdg", "tempo-sdg-jax", "jax", "jaxlib", "numpy")
_SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def folder() -> Path | None:
    """Where executables are kept: `TEMPO_CACHE_DIR`, else the user's cache; None where that variable is empty."""
    base = base_folder()
    return None if base is None else base.joinpath(*_below())


def _below() -> tuple[str, str, str]:
    """Each machine has its own, since code for one processor may not run on another, and so have versions; and each
    number of processors that a process may use, for which XLA divides passes over arrays."""
    settings = (os.environ.get(name, "") for name in _SETTINGS)
    return "jax", platform.node() or "here", _made_for(str(processors()), *settings)


@functools.cache
def _made_for(*settings: str) -> str:
    return digest(_FORMAT, versions(*_MADE_OF), machine(), *settings)[:16]


_FOLDER, _LEAST_SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"


class _Switch:
    """JAX's settings, ours while one or more threads compile."""

    def __init__(self) -> None:
        self._lock, self._users, self._path, self._least = threading.Lock(), 0, "", 0.0
        self._times = 0

    @property
    def is_theirs(self) -> bool:
        """Whether the user has said where executables are kept, or that they are not."""
        config = jax.config
        return config.jax_compilation_cache_dir not in (None, self._path) or not config.jax_enable_compilation_cache

    def on(self, path: Path) -> bool:
        """Whether it was put on; not where it is the user's own."""
        with self._lock:
            if self.is_theirs:
                return False
            if self._users == 0:
                self._least = jax.config.jax_persistent_cache_min_compile_time_secs
            self._users, self._times, self._path = self._users + 1, self._times + 1, str(path)
            jax.config.update(_FOLDER, self._path)
            jax.config.update(_LEAST_SECONDS, 0.0)
            return True

    def off_since(self) -> Callable[[], bool]:
        with self._lock:
            was_on, times = self._users > 0, self._times
        return lambda: not was_on and self._times == times

    def off(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and jax.config.jax_compilation_cache_dir == self._path:
                jax.config.update(_FOLDER, None)
                jax.config.update(_LEAST_SECONDS, self._least)
                compilation_cache.reset_cache()


_SWITCH = _Switch()


@contextmanager
def kept() -> Iterator[None]:
    """What is compiled within the block is kept on disk, or taken from there."""
    path = _own()
    if path is None or not _SWITCH.on(path):
        yield
        return
    try:
        yield
    finally:
        _SWITCH.off()


def off_since() -> Callable[[], bool]:
    """Tells whether it was off all the while since this call. While one thread compiles with it, any may be given what
    was read there."""
    return _SWITCH.off_since()


def own_folder() -> Path | None:
    """Where what the backend finds by itself lies (`recall`); None where the user has JAX's cache for that, or none at
    all."""
    return None if _SWITCH.is_theirs else _own()


def _own() -> Path | None:
    base = base_folder()
    return None if base is None else _checked(base, *_below())


@functools.cache
def _checked(base: Path, *below: str) -> Path | None:
    """Looked at once: what JAX reads there it runs."""
    return private(base, below, "executables", CACHE_VARIABLE)
