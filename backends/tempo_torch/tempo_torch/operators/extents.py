"""Operators that add, drop or overwrite positions along axes: pad, slice, shift, mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tempo.backends.operators import Call
from tempo.symbolic import as_expr
from tempo_torch.arrays import clamped, signed
from tempo_torch.operators.builder import Builder, Function, Operation
from tempo_torch.operators.movement import flipped


def _pad(call: Call, device: torch.device) -> Function:
    pairs = zip(reversed(call.attrs["low"]), reversed(call.attrs["high"]), strict=True)  # torch begins at the last axis
    widths, value = [width for pair in pairs for width in pair], call.attrs.get("value", 0)
    return lambda x: torch.constant_pad_nd(x, widths, value)


def _shift(call: Call, device: torch.device) -> Function:
    axis, shape = call.attrs["axis"], call.result.shape
    distance = max(min(call.attrs["distance"], shape[axis]), -shape[axis])
    widths = [0, 0] * (len(shape) - axis - 1) + [distance, -distance]  # torch begins at the last axis
    return lambda x: torch.constant_pad_nd(x, widths)


def _slice(call: Call, device: torch.device) -> Function:
    """Along axes with a known start one view that is made at once, along the others each for itself."""
    lengths, steps, sizes = call.result.shape, call.attrs["steps"], call.operands[0].shape
    if 0 in lengths:
        return lambda x, *starts: x.new_empty(lengths)
    starts = [as_expr(start) for start in call.attrs["starts"]]
    index, backward, moving = [slice(None)] * len(sizes), [], []
    for axis, (start, size, length, step) in enumerate(zip(starts, sizes, lengths, steps, strict=True)):
        if not start.is_const or not _within(start.as_int(), size, length, step):
            moving.append((axis, length, step))
        elif (length, step) != (size, 1):
            index[axis] = _forward(start.as_int(), length, step)
            backward += [axis] * (step < 0)
    cut = _cut(tuple(index), flipped(call.result.dtype, tuple(backward)) if backward else None)
    if not moving:
        return cut
    return lambda x, *starts: _moved(cut(x), moving, starts)


def _within(start: int, size: int, length: int, step: int) -> bool:
    return 0 <= start < size and 0 <= start + (length - 1) * step < size


def _forward(start: int, length: int, step: int) -> slice:
    """The same positions in increasing order."""
    last = start + (length - 1) * step
    return slice(min(start, last), max(start, last) + 1, abs(step))


def _cut(index: tuple[slice, ...], reverse: Function | None) -> Function:
    """Torch slices forward only, so axes with a negative step are reversed afterwards."""
    if reverse is not None:
        return lambda x, *starts: reverse(x[index])
    is_whole = all(along == slice(None) for along in index)
    return (lambda x, *starts: x) if is_whole else lambda x, *starts: x[index]


def _moved(x: torch.Tensor, axes: Sequence[tuple[int, int, int]], starts: Sequence[int]) -> torch.Tensor:
    """Positions outside an axis are clamped into it: only what static tiling reads beyond a length is outside."""
    for axis, length, step in axes:
        x = clamped(x, axis, starts[axis], length, step)
    return x


def _mask(call: Call, device: torch.device) -> Function:
    axis, fill, size = call.attrs["axis"], call.attrs["fill"], call.result.shape[call.attrs["axis"]]

    def in_place(x: torch.Tensor, length: int | torch.Tensor) -> torch.Tensor:
        if isinstance(length, torch.Tensor):
            return on_device(x, length)
        if length < size:
            kept = max(length, 0)
            x.narrow(axis, kept, size - kept).fill_(fill)
        return x

    def mask(x: torch.Tensor, length: int | torch.Tensor) -> torch.Tensor:
        if isinstance(length, torch.Tensor):
            return on_device(x, length)
        return x if length >= size else in_place(x.clone(memory_format=torch.contiguous_format), length)

    def on_device(x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Without a look at the length."""
        behind = torch.arange(size, device=device) >= length
        aligned = behind.reshape(-1, *[1] * (x.ndim - axis - 1))
        other = torch.full((), fill, dtype=x.dtype, device=device)
        return torch.where(aligned, signed(other), signed(x)).view(x.dtype)

    return Operation(mask, in_place)


EXTENTS: Mapping[str, Builder] = {"pad": _pad, "slice": _slice, "shift": _shift, "mask": _mask}
