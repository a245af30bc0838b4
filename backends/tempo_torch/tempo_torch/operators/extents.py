"""Operators that add, drop or overwrite positions along axes: pad, slice, mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tempo.backends.operators import Call
from tempo.symbolic import as_expr
from tempo_torch.operators.builder import Builder, Function, Operation, result_dtype
from tempo_torch.operators.movement import flipped

Axis = tuple[int, int, int, int]  # start, size, length, step


def _pad(call: Call, device: torch.device) -> Function:
    shape, dtype, value = call.result.shape, result_dtype(call), call.attrs.get("value", 0)
    inside = tuple(slice(low, low + size) for low, size in zip(call.attrs["low"], call.operands[0].shape))

    def pad(x: torch.Tensor) -> torch.Tensor:
        result = torch.full(shape, value, dtype=dtype, device=device)
        result[inside] = x
        return result

    return pad


def _slice(call: Call, device: torch.device) -> Function:
    starts = [as_expr(start) for start in call.attrs["starts"]]
    lengths, steps, dtype = call.result.shape, call.attrs["steps"], call.result.dtype
    if 0 in lengths:
        return lambda x, *starts: x.new_empty(lengths)
    axes = list(zip(call.operands[0].shape, lengths, steps))
    if all(start.is_const for start in starts):
        fixed = [(start.as_int(), *axis) for start, axis in zip(starts, axes)]
        if all(_within(*axis) for axis in fixed):
            return _basic_slice(fixed, dtype)
    if len(axes) == 1 and steps[0] == 1:
        return _leading_slice(*axes[0][:2])

    moving = [number for number, start in enumerate(starts) if not start.is_const]
    known = [(0 if number in moving else start.as_int(), *axes[number]) for number, start in enumerate(starts)]
    if len(moving) == 1 and steps[moving[0]] == 1 and all(_within(*axis) for axis in known):
        return _moving_slice(known, moving[0], dtype)

    def general(x: torch.Tensor, *starts: int) -> torch.Tensor:
        return _sliced(x, [(start, *axis) for start, axis in zip(starts, axes)], dtype)

    return general


def _basic_slice(axes: Sequence[Axis], dtype: str) -> Function:
    """Every position is inside. Torch slices forward only, so axes with a negative step are reversed afterwards."""
    index = tuple(_forward(start, length, step) for start, _, length, step in axes)
    backward = tuple(number for number, axis in enumerate(axes) if axis[3] < 0)
    if not backward:
        return lambda x, *starts: x[index]
    reverse = flipped(dtype, backward)
    return lambda x, *starts: reverse(x[index])


def _forward(start: int, length: int, step: int) -> slice:
    """The same positions in increasing order."""
    if length == 0:
        return slice(0, 0)
    last = start + (length - 1) * step
    return slice(min(start, last), max(start, last) + 1, abs(step))


def _leading_slice(size: int, length: int) -> Function:
    last = size - length

    def leading(x: torch.Tensor, start: int) -> torch.Tensor:
        if 0 <= start <= last:
            return x[start : start + length]
        return x.index_select(0, _clamped(start, size, length, 1, x.device))

    return leading


def _moving_slice(axes: Sequence[Axis], moving: int, dtype: str) -> Function:
    """One axis has a start that is known at run time; the positions along the others are all inside."""
    _, size, length, _ = axes[moving]
    others = [axis if number != moving else (0, size, size, 1) for number, axis in enumerate(axes)]
    whole = all((start, length, step) == (0, size, 1) for start, size, length, step in others)
    cut = (lambda x: x) if whole else _basic_slice(others, dtype)
    last = size - length

    def slice_at(x: torch.Tensor, *starts: int) -> torch.Tensor:
        start = starts[moving]
        if 0 <= start <= last:
            return cut(x).narrow(moving, start, length)
        return cut(x).index_select(moving, _clamped(start, size, length, 1, x.device))

    return slice_at


def _sliced(x: torch.Tensor, axes: Sequence[Axis], dtype: str) -> torch.Tensor:
    """Positions outside an axis are clamped into it: only what static tiling reads beyond a length is outside."""
    inside = [axis if _within(*axis) else (0, axis[1], axis[1], 1) for axis in axes]
    x = _basic_slice(inside, dtype)(x)
    for number, axis in enumerate(axes):
        if not _within(*axis):
            x = x.index_select(number, _clamped(*axis, x.device))
    return x


def _within(start: int, size: int, length: int, step: int) -> bool:
    last = start + (length - 1) * step
    return length == 0 or (0 <= start < size and 0 <= last < size)


def _clamped(start: int, size: int, length: int, step: int, device: torch.device) -> torch.Tensor:
    positions = torch.arange(length, device=device).mul_(step).add_(start)
    return positions.clamp_(0, size - 1)


def _mask(call: Call, device: torch.device) -> Function:
    axis, fill, size = call.attrs["axis"], call.attrs["fill"], call.result.shape[call.attrs["axis"]]

    def mask(x: torch.Tensor, length: int) -> torch.Tensor:
        if length >= size:
            return x
        result, kept = x.clone(memory_format=torch.contiguous_format), max(length, 0)
        result.narrow(axis, kept, size - kept).fill_(fill)
        return result

    def mask_in_place(x: torch.Tensor, length: int) -> torch.Tensor:
        if length < size:
            kept = max(length, 0)
            x.narrow(axis, kept, size - kept).fill_(fill)
        return x

    return Operation(mask, mask_in_place)


EXTENTS: Mapping[str, Builder] = {"pad": _pad, "slice": _slice, "mask": _mask}
