"""Reads and writes of arrays at positions that the host knows, and at those that lie on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tempo.backends import ByPoint
from tempo.backends.loop_ir import Buffer, Compute, PointIndex, Read, Write
from tempo_torch.arrays import clamped, positions_of, signed, wrapped
from tempo_torch.moving import Points, Values, number
from tempo_torch.operators.indexing import as_long


def taken(array: Any, buffer: Buffer, read: Read, values: Values, sizes: Points) -> torch.Tensor:
    """What is at an index: a view where all of it is known, else a copy."""
    entries = list(zip(buffer.axes, read.index, strict=True))
    while isinstance(array, ByPoint):
        (_, entry), *entries = entries
        assert isinstance(entry, PointIndex)
        array = array[number(entry.index, values)]
    axis, moving = 0, list[tuple[int, torch.Tensor, bool]]()
    for along, entry in entries:
        if isinstance(entry, PointIndex):
            at = number(entry.index, values)
            if isinstance(at, torch.Tensor):
                moving.append((axis, at, True))
                axis += 1
            else:
                array = array.select(axis, at)
            continue
        start, extent, size = number(entry.start, values), int(entry.extent.evaluate(sizes)), array.shape[axis]
        is_circular = along.kind == "window"
        if isinstance(start, torch.Tensor):
            at = start + torch.arange(extent, device=array.device)
            inside = at if entry.exact else at.remainder(size) if is_circular else at.clamp(0, size - 1)
            moving.append((axis, inside, False))
        elif entry.exact:
            array = array.narrow(axis, start, extent)
        elif is_circular or (start, extent) != (0, size):
            array = (wrapped if is_circular else clamped)(array, axis, start, extent)
        axis += 1
    for at_axis, positions, _ in moving:
        array = positions_of(array, at_axis, positions)
    for at_axis, _, is_point in reversed(moving):
        array = array.squeeze(at_axis) if is_point else array
    return array  # type: ignore[no-any-return]


def indices(compute: Compute, given: Sequence[Any], scalars: Sequence[Any]) -> Iterator[tuple[torch.Tensor, Any]]:
    """What an operator looks up, and how many positions there are."""
    count, axis = compute.attrs.get("count", 1), compute.attrs["axis"]
    sizes, lengths = given[0].shape[axis : axis + count], scalars or [None] * count
    for index, size, length in zip(given[1 : 1 + count], sizes, lengths, strict=True):
        short = length if isinstance(length, torch.Tensor) else size if length is None else min(length, size)
        yield as_long(index), short.clamp(max=size) if isinstance(short, torch.Tensor) else short


def write(array: torch.Tensor, statement: Write, values: Values, value: torch.Tensor, sizes: Points) -> None:
    axis, moving = 0, list[tuple[int, torch.Tensor]]()
    for index, far in zip(statement.index, statement.extents, strict=True):
        at, extent = number(index, values), None if far is None else int(far.evaluate(sizes))
        if isinstance(at, torch.Tensor):
            if extent is None:
                value = value.unsqueeze(axis)
            else:
                at = at + torch.arange(extent, device=array.device)
            moving.append((axis, at))
        elif extent is None:
            array = array.select(axis, at)
            continue
        else:
            array = array.narrow(axis, at, extent)
        axis += 1
    if not moving:
        array.copy_(value)
        return
    shape = list(array.shape)
    for at_axis, at in moving:
        shape[at_axis] = len(at)
    whole, part = signed(array), signed(value.expand(shape))
    if len(moving) == 1:
        whole.index_copy_(moving[0][0], moving[0][1], part)
        return
    axes, front = [each for each, _ in moving], tuple(range(len(moving)))
    index = tuple(at.reshape([-1 if each == mine else 1 for each in front]) for mine, (_, at) in enumerate(moving))
    whole.movedim(axes, front).index_put_(index, part.movedim(axes, front))
