"""What streamed inputs hold: whoever runs a program says where the value at each point comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import numpy as np

from tempo.errors import UnsupportedError
from tempo.sdg.graph import Node

Array = np.ndarray[Any, Any]
Feed = Callable[[tuple[int, ...]], Array]
"""The array at a point, asked for once each, in order."""

_FEEDS: ContextVar[Mapping[str, Feed]] = ContextVar("feeds", default=MappingProxyType({}))


@contextmanager
def feeding(feeds: Mapping[str, Feed]) -> Iterator[None]:
    """Inside, streams are read from `feeds`, by name."""
    token = _FEEDS.set(feeds)
    try:
        yield
    finally:
        _FEEDS.reset(token)


def taken(node: Node, point: Sequence[int]) -> Array:
    """The value of a streamed input at `point`."""
    name = node.attr("stream")
    if name not in (feeds := _FEEDS.get()):
        raise UnsupportedError(
            f"the stream {name!r} is read outside of a run",
            location=node.location,
            hint="what a parameter begins with cannot come from a stream: use tp.input",
        )
    return feeds[name](tuple(map(int, point)))
