"""Logs: what is made on the way from a program to its runs, on loggers of Python's standard logging.

TEMPO_LOGS=schedule,code shows those by name on stderr, TEMPO_LOGS=all all of them; they are said at the level DEBUG,
and what takes long at INFO. A program may do the same with `logging.getLogger("tempo.schedule")` and handlers of its
own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from tempo.errors import InputError, nearest

VARIABLE = "TEMPO_LOGS"
EVERYTHING = "all"
LOGS: Mapping[str, str] = {
    "compile": "what a long call waits for, with seconds",
    "passes": "each pass, with milliseconds and what it changed and decided",
    "schedule": "the order of statements, as loops",
    "plans": "which plans were found where earlier processes have kept them",
    "loops": "loops and buffers at the sizes that shapes are made of",
    "code": "generated source",
    "memory": "what a run holds",
    "checkpoints": "where a run goes on, and what was passed over",
}
"""By the last part of its logger's name."""


def logger(name: str) -> logging.Logger:
    """That of one of the logs."""
    assert name in LOGS, name
    return logging.getLogger(f"tempo.{name}")


def is_asked_for(name: str) -> bool:
    """Whether somebody has set a level for it, or for all logs of the compiler, at which it is said."""
    level = logger(name).level or logging.getLogger("tempo").level
    return 0 < level <= logging.DEBUG


def say(name: str, text: Callable[[], str]) -> None:
    """At DEBUG, made only where it is asked for. What has several lines begins on one of its own.

    Of an application that shows what all libraries say at DEBUG nobody knows whether it wants megabytes of programs.
    """
    if is_asked_for(name):
        made = text()
        logger(name).debug("%s", f"\n{made}" if "\n" in made else made)


def configure(environment: Mapping[str, str] = os.environ) -> None:
    """Shows what TEMPO_LOGS names, where nobody has said what becomes of logs on stderr.

    Raises `InputError` for a name that no log has.
    """
    wanted = [name.strip() for name in environment.get(VARIABLE, "").split(",") if name.strip()]
    for name in wanted:
        if name not in (*LOGS, EVERYTHING):
            raise InputError(
                f"{VARIABLE} names {name!r}, which is no log", hint=nearest(name, (*LOGS, EVERYTHING), "logs")
            )
    for name in LOGS if EVERYTHING in wanted else wanted:
        logger(name).setLevel(logging.DEBUG)
    ours = logging.getLogger("tempo")
    if wanted and not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        ours.addHandler(handler)
