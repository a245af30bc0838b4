"""Tensors: dtypes by name, to and from NumPy arrays, and the array functions that generated source calls.

Nothing is copied between the CPU's tensors and NumPy arrays: they share memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from tempo import dtypes

Array = np.ndarray[Any, Any]

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in dtypes.DTYPES}
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_BITS16 = np.dtype(np.int16)


class _Writable:
    """The memory of a read-only array, for `np.asarray`, as one that may be written to.

    Torch has no read-only tensors and warns of them. A buffer that is made of an input is never written to.
    """

    def __init__(self, array: Array) -> None:
        self._owner = array  # keeps the memory
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


def from_host(array: Array, device: torch.device) -> torch.Tensor:
    """A tensor of the array's memory where the device is the CPU, else a copy on the device."""
    if device.type == "cpu" and array.dtype != _BFLOAT16 and array.flags.carray:
        return torch.from_numpy(array)
    brain = array.dtype == _BFLOAT16
    bits = array.view(_BITS16) if brain else array
    if any(stride < 0 or stride % bits.itemsize for stride in bits.strides):  # torch knows no such strides
        bits = np.array(bits, order="C")
    if not bits.flags.writeable:
        bits = np.asarray(_Writable(bits))
    tensor = torch.from_numpy(bits)
    tensor = tensor.view(torch.bfloat16) if brain else tensor
    return tensor if device.type == "cpu" else tensor.to(device)


def to_host(tensor: torch.Tensor) -> Array:
    """A NumPy array of the tensor's memory where it is the CPU's, else a copy."""
    local = tensor if tensor.is_cpu else tensor.cpu()
    if local.dtype is torch.bfloat16:
        return local.view(torch.int16).numpy().view(_BFLOAT16)
    return local.numpy()


def clamped(tensor: torch.Tensor, axis: int, start: int | torch.Tensor, extent: int, step: int = 1) -> torch.Tensor:
    """`extent` positions from `start` along `axis`, each clamped into range; where the host knows `start`, a view of
    neighbours that are within."""
    size = tensor.shape[axis]
    if not isinstance(start, torch.Tensor) and step == 1 and 0 <= start <= size - extent:
        return tensor.narrow(axis, start, extent)
    positions = torch.arange(extent, device=tensor.device).mul_(step).add_(start).clamp_(0, size - 1)
    return positions_of(tensor, axis, positions)


def wrapped(tensor: torch.Tensor, axis: int, start: int, extent: int) -> torch.Tensor:
    """`extent` positions from `start` along `axis`, modulo the axis; a view where they do not wrap."""
    size = tensor.shape[axis]
    first = start % size
    if first + extent <= size:
        return tensor.narrow(axis, first, extent)
    positions = torch.arange(start, start + extent, device=tensor.device).remainder_(size)
    return positions_of(tensor, axis, positions)


def host_writer(device: torch.device) -> Callable[[torch.Tensor, tuple[int, ...], Array], torch.Tensor]:
    """Stores what a function of the host returned."""

    def host_write(tensor: torch.Tensor, index: tuple[int, ...], value: Array) -> torch.Tensor:
        """Store `value` at `index`; a slot (no index) is replaced."""
        if not index:
            return from_host(value, device)
        if tensor.is_cpu:  # NumPy stores into the same memory in a third of the time
            to_host(tensor)[index] = value
        else:
            tensor[index] = from_host(value, device)
        return tensor

    return host_write


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Which have kernels; the others have few, on CUDA those that copy, convert, fill, join and compare for equality."""


def signed(array: torch.Tensor) -> torch.Tensor:
    """The same bits, of a dtype that has kernels."""
    return array.view(_SIGNED.get(array.dtype, array.dtype))


def positions_of(array: torch.Tensor, axis: int, positions: torch.Tensor) -> torch.Tensor:
    """`index_select` of any dtype."""
    if array.dtype not in _SIGNED:
        return array.index_select(axis, positions)
    return signed(array).index_select(axis, positions).view(array.dtype)
