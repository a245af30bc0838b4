"""Attention of many points at once, in blocks of points: torch's kernel on each, with a mask where it is needed.

On the CPU (512 points, batch 4, 8 heads of 32, one thread) blocks of 64 take 12 ms by the kernel and 24 in steps, the
kernel on all points at once, which knows of a causal mask, 17; of 1,024 points, batch 8, 16 heads of 64 (two threads)
blocks of 64 take 243, of 256 213, all at once 284.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from tempo.backends.operators import Attrs, Band, Call, PointBlock, band_of, points_at_once
from tempo_torch.operators.attention import BATCH, NOTHING, by_kernel, in_steps
from tempo_torch.operators.builder import Builder, Function, in_float32
from tempo_torch.waits import told, waits

Attend = Callable[..., torch.Tensor]
_MANY = 1024
"""How many points a block has on an accelerator, where the kernel itself goes in blocks."""
_GREATEST = 1e38
"""Scores beyond it may overflow."""


def _banded(call: Call, device: torch.device) -> Function:
    """`queries, keys, values[, bias][, mask]`; see `sdg.composites.attention`. Halves in float32, but for the kernel of
    an accelerator."""
    attention = _BandedKernel(call, band_of(call), device.type == "cpu")
    function = in_float32(attention, call) if attention.on_cpu else attention
    return told(lambda *given: function(*given), "its size is looked at on the host")


@dataclass(frozen=True)
class _BandedKernel:
    call: Call
    band: Band
    on_cpu: bool

    def __call__(self, *given: torch.Tensor) -> torch.Tensor:
        attrs = self.call.attrs
        q, k, v, *extras = given
        k, v = k.permute(tuple(attrs["key_axes"])), v.permute(tuple(attrs["value_axes"]))
        is_for_kernel = self.is_for_kernel(q, k, v, *extras)
        if is_for_kernel and not self.on_cpu and self.band.is_causal and not extras:
            return _causal(attrs, q, k, v)
        if is_for_kernel:
            attend: Attend = self.by_kernel if attrs["masked"] else partial(by_kernel, attrs)
        else:
            attend = partial(in_steps, attrs)
        out = q.new_empty(self.call.result.shape)
        for block in self.band.blocks(self.size(is_for_kernel, v)):
            points, keys = slice(block.first, block.last), slice(block.start, block.stop)
            part, shape = q[..., points, :, :], (block.last - block.first, q.shape[-2], block.stop - block.start)
            rows = [_rows(_part(extra, points, keys), shape) for extra in extras]
            seen = self.seen(block, q.device)
            seen = None if seen is None else _rows(seen[:, None], shape)
            made = attend(part.flatten(-3, -2), k[..., keys, :], v[..., keys, :], *rows, seen=seen)
            out[..., points, :, :] = made.reshape(*part.shape[:-1], made.shape[-1])
        return out

    def by_kernel(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *extras: torch.Tensor, seen: torch.Tensor | None
    ) -> torch.Tensor:
        """With a mask: what it hides has no weight, but where a row sees nothing else; these have equal ones."""
        *bias, mask = extras
        visible = mask if seen is None else mask & seen
        blind = visible.any(-1, keepdim=True).logical_not_()
        if math.isinf(self.call.attrs["fill"]):
            return by_kernel(self.call.attrs, q, k, v, *bias, seen=visible).masked_fill(blind, torch.nan)
        visible = visible | blind if seen is None else visible | (blind & seen)
        bias = [each.masked_fill(blind, 0) for each in bias]
        return by_kernel(self.call.attrs, q.masked_fill(blind, 0), k, v, *bias, seen=visible)

    def size(self, is_for_kernel: bool, v: torch.Tensor) -> int:
        """How many points make a block: one where values are not finite, since a weight of 0 does not hide them."""
        if is_for_kernel:
            return max(64, min(256, self.band.points // 4)) if self.on_cpu else _MANY
        return points_at_once(self.call) if math.isfinite(_norm(v)) else 1

    @property
    def has_kernel(self) -> bool:
        queries, *others = self.call.operands
        return len(others) <= 2 or queries.rank - 3 <= BATCH

    def is_for_kernel(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *extras: torch.Tensor) -> bool:
        """Not where the kernel makes 0 of what is NaN or all hidden, nor where a mask's fill may have weight beside
        other scores. Scores are finite by |q k| <= |q| |k|."""
        if not self.has_kernel:
            return False
        attrs = self.call.attrs
        bias = _norm(extras[0]) if attrs["biased"] else 0
        scores = _norm(q) * _norm(k) * abs(attrs["scale"]) + bias
        return (
            scores < _GREATEST
            and math.isfinite(_norm(v))
            and not (attrs["masked"] and attrs["fill"] > -scores - NOTHING)
        )

    def seen(self, block: PointBlock, device: torch.device) -> torch.Tensor | None:
        """Which keys of a block each of its points sees; None where all see all."""
        if self.band.all_see_all(block):
            return None
        shift = block.first - block.start
        seen = torch.ones(block.last - block.first, block.stop - block.start, dtype=torch.bool, device=device)
        return seen.tril_(shift + self.band.high - 1).triu_(shift + self.band.low)


def _causal(attrs: Attrs, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """All points at once; rows that share keys are heads that do."""
    *batch, points, rows, width = q.shape
    heads = q.movedim(-2, -3).reshape(*batch[:-1], rows * (batch[-1] if batch else 1), points, width)
    made = by_kernel(attrs, heads, k, v, is_causal=True, enable_gqa=rows > 1)
    return made.reshape(*batch, rows, points, v.shape[-1]).movedim(-3, -2)


@waits("a weight of 0 does not hide what is not finite, so all points at once are looked at")
def _norm(x: torch.Tensor) -> float:
    """No less than the size of any element; NaN or infinite where one is."""
    return float(torch.linalg.vector_norm(x, dtype=torch.float64 if x.dtype is torch.float64 else torch.float32))


def _part(extra: torch.Tensor, points: slice, keys: slice) -> torch.Tensor:
    """What belongs to a block; axes of size 1 repeat."""
    extra = extra if extra.shape[-1] == 1 else extra[..., keys]
    return extra if extra.shape[-3] == 1 else extra[..., points, :, :]


def _rows(extra: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """Of each row of each point, one after the other: rows that share keys are more points."""
    return extra.expand(*extra.shape[:-3], *shape).flatten(-3, -2)


BANDED: Mapping[str, Builder] = {"banded_attention": _banded}
"""Named in the descriptor's `composites`."""
