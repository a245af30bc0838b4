"""Long calls: what they wait for, said to the log "compile" and to a progress bar while there is one, and that Python's
collector of cycles does not hold them up."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from tempo.logs import logger

_LOGGER = logger("compile")
_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("tempo_waiting", default=None)
Around = Callable[[str], AbstractContextManager[None]]
_AROUND: ContextVar[Around | None] = ContextVar("tempo_around_waiting", default=None)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Around work that may take seconds. Logged when it begins and, with its seconds, when it is done (INFO)."""
    listener, around = _LISTENER.get(), _AROUND.get()
    if listener is not None:
        listener(what)
    _LOGGER.info("%s", what)
    start = time.perf_counter()
    with nullcontext() if around is None else around(what):
        yield
    _LOGGER.info("%s: %.2f s", what, time.perf_counter() - start)


@contextmanager
def told(listener: Callable[[str], None]) -> Iterator[None]:
    """Inside, `listener` is called with what is waited for, in this thread."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def surrounded(around: Around) -> Iterator[None]:
    """Inside, what is waited for in this thread is within what `around` gives, called with the same words."""
    token = _AROUND.set(around)
    try:
        yield
    finally:
        _AROUND.reset(token)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the collector of cycles: it would look again and again through graphs that have none, for up to a third
    of the time that a large program takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
