"""Operators that move or repeat elements: views where torch has them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tempo.backends.operators import Call
from tempo_torch.arrays import TORCH_DTYPES, signed
from tempo_torch.operators.builder import UNSIGNED, Builder, Function


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


def _reshape(call: Call, device: torch.device) -> Function:
    shape = call.result.shape
    if shape == call.operands[0].shape:
        return _identity
    return (lambda x: x.reshape(*shape)) if shape else lambda x: x.reshape(shape)  # sizes one by one are parsed faster


def _transpose(call: Call, device: torch.device) -> Function:
    axes = tuple(call.attrs["axes"])
    return _identity if axes == tuple(range(len(axes))) else lambda x: x.permute(*axes)


def _broadcast(call: Call, device: torch.device) -> Function:
    given, shape, batch = call.operands[0].shape, call.result.shape, call.attrs.get("batch", 0)
    if given == shape:
        return _identity
    aligned = (*given[:batch], *(1,) * (len(shape) - len(given)), *given[batch:])
    if aligned[len(aligned) - len(given) :] == given:  # torch, too, puts ones in front
        return lambda x: x.expand(*shape)
    return lambda x: x.reshape(aligned).expand(shape)


def _concat(call: Call, device: torch.device) -> Function:
    axis, concatenate = call.attrs["axis"], torch.cat
    return lambda *parts: concatenate(parts, axis)


def _flip(call: Call, device: torch.device) -> Function:
    return flipped(call.result.dtype, tuple(call.attrs["axes"]))


def flipped(dtype: str, axes: tuple[int, ...]) -> Function:
    """Reverse the axes."""
    if dtype not in UNSIGNED:
        return lambda x: x.flip(axes)
    unsigned = TORCH_DTYPES[dtype]
    return lambda x: signed(x).flip(axes).view(unsigned)


MOVEMENT: Mapping[str, Builder] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "concat": _concat,
    "flip": _flip,
    "copy": lambda call, device: _identity,
}
