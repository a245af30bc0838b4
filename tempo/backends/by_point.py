"""An array that is given as several, one for each point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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

    @property
    def dtype(self) -> Any:
        return self[0].dtype

    def each(self, function: Callable[[Any], Any]) -> ByPoint:
        """What the function makes of every array."""
        return ByPoint(part.each(function) if isinstance(part, ByPoint) else function(part) for part in self)

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

    def joined_behind(self, axes: int, join: Callable[[ByPoint], Any]) -> Any:
        """By point along the first `axes` axes at most, what is behind them joined; one array where that is none."""
        if axes == 0:
            return join(self)
        return ByPoint(part.joined_behind(axes - 1, join) if isinstance(part, ByPoint) else part for part in self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.joined().astype(dtype, copy=False) if dtype is not None else self.joined()


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
