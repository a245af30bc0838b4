"""Calls at one point: of a user's function, held to what it declared, of another backend, and of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import numpy as np

from tempo.analysis.reports import point_text
from tempo.errors import HostCallError, UnsupportedError
from tempo.plugins.manager import get_backend
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import Node

Array = np.ndarray[Any, Any]


def call_host(
    node: Node, point: Sequence[int], arrays: Sequence[Array], results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
) -> tuple[Array, ...]:
    """The results of `node.attr("fn")` on copies of `arrays` (which it may keep), checked against `results`.

    `results` holds shape and dtype of each; values are cast within a kind. Raises `HostCallError` with the point,
    chained to what the function raised.
    """
    if node.is_stream:
        return (taken(node, point),)
    try:
        returned = node.attr("fn")(*map(np.array, arrays))
    except Exception as error:
        message = f"the host call {_where(node, point)} failed: {type(error).__name__}: {error}"
        raise HostCallError(message, location=node.location) from error
    if not results:
        return ()
    values = returned if isinstance(returned, tuple) else (returned,)
    if len(values) != len(results) or returned is None:
        what = "None" if returned is None else f"{len(values)} result{'s' * (len(values) != 1)}"
        raise HostCallError(
            f"the host call {_where(node, point)} returned {what}, declared: {len(results)}",
            location=node.location,
            hint="Return one array per entry of out=: an array, or a tuple of arrays.",
        )
    return tuple(_checked(node, point, position, *pair) for position, pair in enumerate(zip(values, results)))


def _checked(
    node: Node,
    point: Sequence[int],
    position: int,
    value: object,
    declared: tuple[tuple[int, ...], np.dtype[Any]],
) -> Array:
    shape, dtype = declared
    try:
        # A copy: fn may go on writing into an array that it returned.
        array = np.array(value)
    except (TypeError, ValueError) as error:
        message = f"result {position} of the host call {_where(node, point)} is no array: {error}"
        raise HostCallError(message, location=node.location) from error
    if array.shape != shape:
        where = _where(node, point)
        message = f"result {position} of the host call {where} has shape {array.shape}, declared is {shape}"
        raise HostCallError(message, location=node.location, hint="Correct the shape in out=, or what fn returns.")
    return array if array.dtype == dtype else _cast(node, point, position, array, dtype)


def _cast(node: Node, point: Sequence[int], position: int, array: Array, dtype: np.dtype[Any]) -> Array:
    what = f"result {position} of the host call {_where(node, point)}"
    if not _castable(array.dtype, dtype):
        message = f"{what} has dtype {array.dtype}, declared is {dtype}"
        raise HostCallError(message, location=node.location, hint="Cast it in fn, or declare its dtype in out=.")
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(result, array):
        message = f"{what} has values that {dtype} cannot hold"
        raise HostCallError(message, location=node.location, hint="Declare a wider dtype in out=.")
    return result


def _castable(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Within a kind, or bool to integer to float; integers of either sign, since Python's have none."""
    return np.can_cast(source, target, "same_kind") or (source.kind in "iu" and target.kind in "iu")


def _where(node: Node, point: Sequence[int]) -> str:
    """The function's name and the point: text for messages, made only for them."""
    fn = node.attr("fn")
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return f"{name} at {point_text(node.domain, point)}"


def call_backend(node: Node, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> tuple[Array, ...]:
    """The results of a `backend_call` node, by the operator table of the backend that it names.

    Raises `BackendCallError`, and `UnknownBackendError` where that backend is not installed.
    """
    backend = get_backend(node.attr("backend"))
    types = tuple(StaticType(shape, type.dtype) for shape, type in zip(shapes, node.results, strict=True))
    function = backend.operator(Call("backend_call", node.attributes, (), types[0]))
    values = function(*map(backend.from_host, arrays))
    calls = (Call("backend_result", {"fn": node.attr("fn"), "at": at}, (), type) for at, type in enumerate(types))
    return tuple(np.array(backend.to_host(backend.operator(call)(values))) for call in calls)


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
