"""What a long call waits for: said to the log "compile", and to a progress bar while there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tempo.logs import logger

_LOGGER = logger("compile")
_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("tempo_waiting", default=None)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Around work that may take seconds. Logged when it begins and, with its seconds, when it is done (INFO)."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what)
    _LOGGER.info("%s", what)
    start = time.perf_counter()
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
