"""Products in a dtype of more bits than what is given has: of halves where a processor does not multiply them, int8."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch

_LARGE = 1 << 20
"""Elements, 4 MB of float32. On the CPU as many are made another dtype at once, in memory that a thread keeps: what is
new to the process costs a fault for each of its pages, and malloc gives back what was used. All keys and values of
batch 8, 1,055 of 16 x 64 in bfloat16, made float32 at once take 24 ms, so 2.6. A product then reads them from the
cache: 32 rows by 32,000 x 1,024 take 39 ms so, 43 in parts twice as large, 58 in ones four times as large."""
_SMALL = 1 << 17
"""Elements, 512 KB of float32, that malloc has at hand once as many were given back (mallopt(3), M_MMAP_THRESHOLD)."""
_kept = threading.local()
"""By dtype and place the memory of a thread, which it keeps: 4 MB of float32, 8 of float64."""


def product(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`torch.matmul` of matrices, or of as many of them, in `dtype`; of sides of fewer bits the larger one in parts.

    Parts follow each other in memory, so they may be sums of their own; not of halves, which would be rounded twice.
    """
    if x.dtype != dtype and (y.dtype == dtype or y.numel() < x.numel()):
        return product(y.mT, x.mT, dtype).mT
    if _is_at_hand(y, dtype):
        return torch.matmul(x.to(dtype), y.to(dtype))
    x = x.to(dtype)
    lies_by_columns, is_half = y.stride(-2) < y.stride(-1), dtype.itemsize < 4
    if lies_by_columns or is_half:
        found = [torch.matmul(x, part.mT) for part in widened(y.mT, dtype)]
        return found[0] if len(found) == 1 else torch.cat(found, -1)
    made, at = None, 0
    for part in widened(y, dtype):
        count = part.shape[-2]
        found = torch.matmul(x.narrow(-1, at, count), part)
        made, at = found if made is None else made.add_(found), at + count
    assert made is not None, "there is one part at least"
    return made


def widened(x: torch.Tensor, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """`x`, which is not at hand in `dtype`, in parts along the axis before the last. A part is there until the next is
    asked for, of this or of another tensor."""
    for part in x.split(max(1, _LARGE * x.shape[-2] // x.numel()), -2):
        yield wider(part, dtype)


def wider(x: torch.Tensor, dtype: torch.dtype, place: int = 0) -> torch.Tensor:
    """`x` in `dtype`. On the CPU one that is not too large is there until the next is asked for at this place."""
    if _is_at_hand(x, dtype) or x.numel() > _LARGE:
        return x.to(dtype)
    return _memory(x, dtype, place).copy_(x.detach())


def counts_at_once(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """How many along the first two axes, of which both have as many, are not too large for `wider`, one at least."""
    rows, columns, size = x.shape[0], x.shape[1], max(x.numel(), y.numel())
    if _is_at_hand(x, dtype) and _is_at_hand(y, dtype):
        return rows, columns
    return min(rows, max(1, _LARGE * rows // size)), min(columns, max(1, _LARGE * rows * columns // size))


def _is_at_hand(x: torch.Tensor, dtype: torch.dtype) -> bool:
    return x.dtype == dtype or x.numel() <= _SMALL or x.device.type != "cpu"


def _memory(like: torch.Tensor, dtype: torch.dtype, place: int) -> torch.Tensor:
    """That of this thread for a place, as `like` lies."""
    name = f"{dtype} {place}"
    held: torch.Tensor | None = getattr(_kept, name, None)
    if held is None:
        with torch.inference_mode(False):
            held = torch.empty(_LARGE, dtype=dtype, device=like.device)
        setattr(_kept, name, held)
    return held.as_strided(like.shape, torch.empty_like(like, device="meta").stride())
