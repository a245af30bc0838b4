"""What the compiler and the worker say to one another: each message a length of 8 bytes and a pickle."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, BinaryIO

from tempo.schedule import ScheduleTree, SchedulingProblem
from tempo_polyhedral.settings import Settings

LENGTH_BYTES = 8
_LONGEST = 2**30  # a length beyond is no length
READY = "ready"


@dataclass(frozen=True)
class Request:
    """One attempt at a problem with numbered statements."""

    problem: SchedulingProblem
    settings: Settings


@dataclass(frozen=True)
class Answer:
    """The tree, or why there is none."""

    tree: ScheduleTree | None
    failure: str = ""


def send(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message; EOFError at the end, and where what comes is none."""
    head = stream.read(LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    if len(head) < LENGTH_BYTES or length > _LONGEST:
        raise EOFError
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    try:
        return pickle.loads(data)
    except (pickle.UnpicklingError, AttributeError, ImportError, IndexError, TypeError, ValueError) as error:
        raise EOFError from error
