"""What a run depends on that lies outside of it: streamed inputs, and the resources of calls of the host.

A resource is an object with `state_dict()` and `load_state_dict(state)`, as those of PyTorch have them, and so may be
what a streamed input is taken from. A state is made of numbers, texts, bytes, arrays, and lists, tuples and dicts of
those: what JSON and safetensors can say, so that reading one runs nobody's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import HostCallError, Location, TempoError, UnsupportedError
from tempo.logs import logger
from tempo.plugins.manager import get_backend, list_backends
from tempo.runtime.arguments.binding import StreamFeed
from tempo.sdg.graph import Graph

Array = np.ndarray[Any, Any]
_LOGGER = logger("checkpoints")
_PLAIN = (bool, int, float, str, type(None))


@dataclass
class Encoded:
    """A state as JSON says it; its arrays lie beside it, by number."""

    arrays: list[Array] = field(default_factory=list)

    def of(self, value: Any) -> Any:
        """Raises `TypeError` for what cannot be said."""
        if type(value) in _PLAIN or isinstance(value, np.str_):
            return value if type(value) in _PLAIN else str(value)
        if isinstance(value, bytes):
            return {"bytes": self._array(np.frombuffer(value, np.uint8))}
        if type(value) is list:
            return [self.of(each) for each in value]
        if type(value) is tuple:
            return {"tuple": [self.of(each) for each in value]}
        if isinstance(value, Mapping):
            return {"dict": [[self.of(key), self.of(each)] for key, each in value.items()]}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
            return {"scalar" if isinstance(value, np.generic) else "array": self._array(np.asarray(value))}
        if (backend := _backend_of(value)) is not None:
            return {f"array of {backend}": self._array(get_backend(backend).to_host(value))}
        raise TypeError(f"a {type(value).__name__} is no number, text, array, or list or dict of those")

    def _array(self, array: Array) -> list[Any]:
        """Its bytes, since safetensors has not every dtype of NumPy's."""
        name = array.dtype.str
        if array.dtype.hasobject:
            raise TypeError(f"an array of dtype {array.dtype} cannot be kept")
        if array.dtype.kind == "V":  # of ml_dtypes, or of fields
            name = array.dtype.name
            if np.dtype(dtypes.to_numpy(name) if name in dtypes.DTYPES else object) != array.dtype:
                raise TypeError(f"an array of dtype {array.dtype} cannot be kept")
        self.arrays.append(np.frombuffer(array.tobytes(), np.uint8))
        return [len(self.arrays) - 1, name, list(array.shape)]


def _backend_of(value: Any) -> str | None:
    """The backend that an array is one of: as those of PyTorch's loaders are."""
    library = type(value).__module__.partition(".")[0].removesuffix("lib")
    known = hasattr(value, "__dlpack__") and any(each.name == library for each in list_backends())
    return library if known else None


def _array(said: list[Any], arrays: Mapping[int, Array]) -> Array:
    at, dtype, shape = said
    numpy_dtype = dtypes.to_numpy(dtype) if dtype in dtypes.DTYPES else np.dtype(dtype)
    return np.frombuffer(arrays[at].tobytes(), numpy_dtype).reshape(shape).copy()


def decoded(value: Any, arrays: Mapping[int, Array]) -> Any:
    """What `Encoded.of` was given."""
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "bytes":
        return _array(held, arrays).tobytes()
    if kind == "tuple":
        return tuple(decoded(each, arrays) for each in held)
    if kind == "dict":
        return {decoded(key, arrays): decoded(each, arrays) for key, each in held}
    if kind.startswith("array of "):
        return get_backend(kind.removeprefix("array of ")).from_host(_array(held, arrays))
    return _array(held, arrays)[()] if kind == "scalar" else _array(held, arrays)


@dataclass(frozen=True)
class Outside:
    """The streams and the resources of one run, each resource once, in the order in which they were declared."""

    feeds: Mapping[str, StreamFeed]
    resources: tuple[tuple[Any, Location | None], ...]

    @staticmethod
    def of(graph: Graph, feeds: Mapping[str, StreamFeed]) -> Outside:
        """Raises `UnsupportedError` for a call of which nobody could say where it has come to."""
        found: dict[int, tuple[Any, Location | None]] = {}
        for node in graph.nodes.values():
            if not node.is_host_call or node.is_stream:
                continue
            resource = node.attr("resource")
            if resource is not None:
                found.setdefault(id(resource.value), (resource.value, node.location))
            elif node.attr("ordered_by"):
                raise UnsupportedError(
                    "a call of the host whose calls have an order cannot be resumed: nothing says where it has come to",
                    location=node.location,
                    hint="give resource=, an object with state_dict() and load_state_dict(state); or leave ordered_by= "
                    "out, if the function keeps nothing from call to call",
                )
        made = Outside(feeds, tuple(found.values()))
        made.state()  # what cannot be said is known before the first step
        return made

    def state(self) -> tuple[dict[str, Any], list[Array]]:
        """Where all of it has come to."""
        encoded = Encoded()
        feeds = {name: [feed.taken, self._of_feed(feed, encoded)] for name, feed in self.feeds.items()}
        resources = [_state_of(value, encoded, "a resource", location) for value, location in self.resources]
        return {"streams": feeds, "resources": resources}, encoded.arrays

    def _of_feed(self, feed: StreamFeed, encoded: Encoded) -> Any:
        if not _has_state(feed.source):
            return None
        return _state_of(feed.source, encoded, f"the stream {feed.name!r}", None)

    def restore(self, said: Mapping[str, Any], arrays: Mapping[int, Array]) -> None:
        for name, (taken, state) in said["streams"].items():
            feed = self.feeds[name]
            if state is not None and _has_state(feed.source):
                _load(feed.source, decoded(state, arrays), f"the stream {name!r}", None)
                feed.begin_again(taken)
            elif taken:
                _LOGGER.info("the stream %r cannot say where it is: %d of its arrays are skipped", name, taken)
                feed.skip(taken)
        for (value, location), state in zip(self.resources, said["resources"], strict=True):
            _load(value, decoded(state, arrays), "a resource", location)


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _state_of(value: Any, encoded: Encoded, what: str, location: Location | None) -> Any:
    if not _has_state(value):
        raise UnsupportedError(
            f"{what} of calls of the host cannot be kept: {_called(value)} has no state_dict and load_state_dict",
            location=location,
            hint="give an object with state_dict() and load_state_dict(state)",
        )
    with _asked(f"state_dict of {_called(value)}", location):
        state = value.state_dict()
    try:
        return encoded.of(state)
    except TypeError as error:
        message = f"what state_dict of {_called(value)} says cannot be kept: {error}"
        raise UnsupportedError(message, location=location) from error


def _load(value: Any, state: Any, what: str, location: Location | None) -> None:
    with _asked(f"load_state_dict of {_called(value)}, {what},", location):
        value.load_state_dict(state)


def _called(value: Any) -> str:
    return f"the name {value!r}" if isinstance(value, str | int | tuple) else f"a {type(value).__name__}"


@contextmanager
def _asked(what: str, location: Location | None) -> Iterator[None]:
    """Inside, what somebody else's code raises is told with its line."""
    try:
        yield
    except TempoError:
        raise
    except Exception as error:
        raise HostCallError(f"{what} failed: {type(error).__name__}: {error}", location=location) from error


def places(names: Mapping[str, Array]) -> Iterator[tuple[int, Array]]:
    """Of the arrays of a checkpoint, those of states, by number."""
    for name, array in names.items():
        if name.startswith("outside "):
            yield int(name.split()[1]), array
