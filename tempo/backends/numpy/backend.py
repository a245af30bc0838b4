"""The embedded backend: generated loops over preallocated NumPy arrays. The model for third parties."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.backends import GenericBackend
from tempo.backends.numpy.emitter import NumpyEmitter
from tempo.backends.operators import OPERATORS, Call
from tempo.plugins import BackendPlugin
from tempo.plugins.descriptors import EMBEDDED_BACKENDS

Array = np.ndarray[Any, Any]


class NumpyBackend(GenericBackend):
    """The operator table is the NumPy meaning of each primitive; arrays are NumPy's."""

    info: BackendPlugin = next(plugin for plugin in EMBEDDED_BACKENDS if plugin.name == "numpy")
    emitter = NumpyEmitter
    takes_points = True

    def operator(self, call: Call) -> Callable[..., Any]:
        return OPERATORS[call.op].numpy(call)

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        if fill is None:
            return np.empty(shape, dtypes.to_numpy(dtype))
        return np.full(shape, fill, dtypes.to_numpy(dtype))

    def from_host(self, array: Array) -> Array:
        return array

    def to_host(self, array: Array) -> Array:
        return np.asarray(array)

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.transpose(array, axes)

    def owned(self, array: Array) -> Array:
        return np.array(array)

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "fresh": np.array,
            "clamped": clamped,
            "wrapped": wrapped,
            "to_host": np.asarray,
            "host_write": host_write,
        }

    def measured_peak(self, work: Callable[[], Any]) -> int:
        """The bytes that `work` allocates and that live at once, at most, as `tracemalloc` counts them."""
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def synchronize(self) -> None:
        """NumPy has finished when a call returns."""


def clamped(array: Array, axis: int, start: int, extent: int) -> Array:
    """`extent` positions from `start` along `axis`, each clamped into range; a view where none has to be."""
    size = array.shape[axis]
    if start >= 0 and start + extent <= size:
        return _cut(array, axis, start, extent)
    positions = np.clip(np.arange(start, start + extent), 0, size - 1)
    taken: Array = array.take(positions, axis)
    return taken


def wrapped(array: Array, axis: int, start: int, extent: int) -> Array:
    """`extent` positions from `start` along `axis`, modulo the axis; a view where they do not wrap."""
    size = array.shape[axis]
    first = start % size
    if first + extent <= size:
        return _cut(array, axis, first, extent)
    taken: Array = array.take(np.arange(start, start + extent) % size, axis)
    return taken


def _cut(array: Array, axis: int, start: int, extent: int) -> Array:
    cut: Array = array[(slice(None),) * axis + (slice(start, start + extent),)]
    return cut


def host_write(array: Array, index: tuple[int, ...], value: Array) -> Array:
    """Store `value` at `index`; a slot (no index) is replaced."""
    if not index:
        return value
    array[index] = value
    return array
