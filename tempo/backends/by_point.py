"""An array that is given as several, one for each point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tempo.backends.base import Backend
    from tempo.placement.mesh import Placement

_ALIGNMENT = 64
"""Bytes; XLA takes host memory as it lies where that is so aligned."""


class ByPoint(tuple[Any, ...]):
    """Arrays of one shape and dtype, one for each point along the first axis, or again by point along the next.

    Read at points it is indexed as an array is; anything else needs one array (`joined`). Iterating gives the points.
    """

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, tuple):
            return super().__getitem__(index)
        part = super().__getitem__(index[0])
        return part[index[1:]] if len(index) > 1 else part

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self[0].shape)

    @property
    def ndim(self) -> int:
        return 1 + len(self[0].shape)

    def joined(self, to_host: Callable[[Any], np.ndarray[Any, Any]] = np.asarray) -> np.ndarray[Any, Any]:
        """As one array of NumPy's, with no more than that and one part in memory at any time."""
        part = self[0]
        while isinstance(part, ByPoint):
            part = part[0]
        made = _aligned(self.shape, to_host(part).dtype)
        self._fill(made, to_host)
        return made

    def _fill(self, target: np.ndarray[Any, Any], to_host: Callable[[Any], np.ndarray[Any, Any]]) -> None:
        for at, part in enumerate(self):
            if isinstance(part, ByPoint):
                part._fill(target[at], to_host)
            else:
                target[at] = to_host(part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.joined().astype(dtype, copy=False) if dtype is not None else self.joined()


def parts_of(value: Any) -> Iterator[Any]:
    """An array, or each that it is given as."""
    for part in value if isinstance(value, ByPoint) else ():
        yield from parts_of(part)
    if not isinstance(value, ByPoint):
        yield value


def axes_by_point(value: Any) -> int:
    """Along how many of its first axes it is given by point."""
    return 1 + axes_by_point(value[0]) if isinstance(value, ByPoint) else 0


def each_part(value: Any, change: Callable[[Any], Any]) -> Any:
    """An array, or each that it is given as, changed."""
    return ByPoint(each_part(part, change) for part in value) if isinstance(value, ByPoint) else change(value)


def placed(backend: Backend, value: Any, axes: int, placement: Placement = ()) -> Any:
    """What an input is given, as the backend has it: by point along the first `axes` axes at most, one array behind.
    `placement`: on a mesh, how it lies there."""

    if isinstance(value, ByPoint) and axes:
        return ByPoint(placed(backend, part, axes - 1, placement[1:]) for part in value)
    array = value.joined(_to_host(backend)) if isinstance(value, ByPoint) else value
    return backend.laid(array, placement) if placement else backend.from_host(array)


def joined(backend: Backend, value: Any, placement: Placement) -> Any:
    """What `placed` gave, as the backend gives it out: by point, or one array."""
    if isinstance(value, ByPoint):
        return ByPoint(joined(backend, part, placement[1:]) for part in value)
    return backend.joined(value, placement) if any(placement) else value


def padded(backend: Backend, value: Any, shape: tuple[int, ...], fill: Any) -> Any:
    """What an input is given, as one array with `fill` behind it along every axis, up to a shape."""
    if isinstance(value, ByPoint):
        value = value.joined(_to_host(backend))
    elif backend.native(value) is not None:
        return backend.padded(value, shape, fill)
    made = _aligned(shape, value.dtype)
    made[...] = fill
    made[tuple(map(slice, value.shape))] = value
    return made


def _to_host(backend: Backend) -> Callable[[Any], np.ndarray[Any, Any]]:
    """Of what may be NumPy's already."""
    return lambda array: backend.to_host(array) if backend.native(array) is not None else np.asarray(array)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
