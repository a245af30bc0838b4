"""The backend: an operator table and arrays. `GenericBackend` makes loops of them, as generated Python source.

A backend that compiles whole loops overrides `compile_segment` too; Tempo's JAX backend is the example of that. The
contract is `tempo.backends.Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.backends import GenericBackend
from tempo.backends.operators import Call
from tempo.errors import UnsupportedError
from tempo.plugins import BackendPlugin
from tempo_plain.operators import TABLE
from tempo_plain.plugin import PLUGIN

Array = np.ndarray[Any, Any]


class PlainBackend(GenericBackend):
    """Arrays are NumPy's. A library with arrays of its own converts in `from_host` and `to_host`."""

    info: BackendPlugin = PLUGIN

    def operator(self, call: Call) -> Callable[..., Array]:
        types = (call.result, *call.operands)
        excluded = self.info.why_not(call.op, *(each.dtype for each in types))
        if excluded is not None or call.op not in TABLE:
            raise UnsupportedError(f"the backend {self.info.name!r} does not run {call.op!r} for {call.result.dtype}")
        return TABLE[call.op](call)

    # -- arrays ----------------------------------------------------------------------------------------------------

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        array = np.empty(shape, dtypes.to_numpy(dtype))
        if fill is not None:
            array.fill(fill)
        return array

    def from_host(self, array: Array) -> Array:
        return np.asarray(array)

    def to_host(self, array: Array) -> Array:
        return np.asarray(array)

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        return np.transpose(array, axes)

    def owned(self, array: Array) -> Array:
        return np.array(array)

    def synchronize(self) -> None:
        """NumPy has finished when a call returns. A library that runs ahead of Python waits here."""

    # -- what generated source calls beside operators --------------------------------------------------------------

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "fresh": np.array,
            "clamped": clamped,
            "wrapped": wrapped,
            "to_host": np.asarray,
            "host_write": host_write,
        }


def clamped(array: Array, axis: int, start: int, extent: int) -> Array:
    """`extent` positions from `start` along `axis`; a position outside of the axis reads its nearest one."""
    positions = np.clip(np.arange(start, start + extent), 0, array.shape[axis] - 1)
    return np.asarray(np.take(array, positions, axis))


def wrapped(array: Array, axis: int, start: int, extent: int) -> Array:
    """`extent` positions from `start` along `axis`, modulo its size: a window of a circular buffer."""
    return np.asarray(np.take(array, np.arange(start, start + extent) % array.shape[axis], axis))


def host_write(array: Array, index: tuple[int, ...], value: Array) -> Array:
    """Stores what a host call returned and returns the buffer; without an index the value is the buffer."""
    if not index:
        return value
    array[index] = value
    return array
