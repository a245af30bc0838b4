"""Attention on the keys before the length: what lies behind them is not read. Beside it what all attention is made of:
torch's kernel, and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tempo.backends.operators import Attrs, Call
from tempo_torch.arrays import TORCH_DTYPES
from tempo_torch.moving import Moving
from tempo_torch.operators.builder import HALF, Builder, Function, Operation

_HALVES = frozenset(TORCH_DTYPES[name] for name in HALF)
_LARGE = 1 << 21
"""Elements, 8 MB of float32. What takes more on the CPU takes memory that is new at every call, a fault for each of its
pages: all keys and values of batch 8, 1,055 of 16 x 64 in bfloat16, made float32 at once take 24 ms, in parts 3."""

BATCH = 2  # axes: with any other number the kernel takes a way that is no faster than steps


def _attention(call: Call, device: torch.device) -> Function:
    """`queries, keys, values[, bias][, mask], length`; see `tempo.sdg.composites.attention`.

    On the CPU the kernel takes 1.0 to 1.7 of what steps do, but 0.5 where scores are many (batch 8, 8 heads of 512 rows
    and keys, which are 64 wide).
    """
    attrs, on_cpu, is_half = call.attrs, device.type == "cpu", call.result.dtype in HALF
    steps = partial(in_steps, attrs)
    is_for_kernel = not attrs["masked"] and len(call.result.shape) <= BATCH + 2
    attend = partial(_on_cpu if on_cpu else by_kernel, attrs) if is_for_kernel else steps
    key_axes, value_axes = tuple(attrs["key_axes"]), tuple(attrs["value_axes"])
    cut_keys, cut_values = key_axes[-2], value_axes[-2]
    size = call.operands[1].shape[cut_keys]
    cut_extras = [at for at, extra in enumerate(call.operands[3:]) if extra.shape[-1] != 1 or size == 1]

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> torch.Tensor:
        *extras, length = given
        moving, length = (length, min(length.most, size)) if isinstance(length, Moving) else (None, length)
        if length < size:
            k, v = k.narrow(cut_keys, 0, length), v.narrow(cut_values, 0, length)
            for at in cut_extras:
                extras[at] = extras[at].narrow(-1, 0, length)
        if moving is None:
            return attend(q, k.permute(key_axes), v.permute(value_axes), *extras)
        # A weight of 0 does not hide what is not finite, and what lies behind the length may be anything.
        inside, behind = moving.inside(length)
        behind = behind[:, None]
        v = v.permute(value_axes).masked_fill(behind, 0)
        # The kernel goes through the keys of a query one by one.
        if on_cpu or not (is_for_kernel and is_half):
            return steps(q, k.permute(key_axes), v, *extras, seen=inside)
        return by_kernel(attrs, q, k.permute(key_axes).masked_fill(behind, 0), v, *extras, seen=inside)

    return Operation(attention, bounded=True)


def by_kernel(
    attrs: Attrs,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None = None,
    seen: torch.Tensor | None = None,
    **more: Any,
) -> torch.Tensor:
    """Of no mask, whose fill is a number; `seen`: which keys each row sees, if not all."""
    hidden = None if bias is None or seen is None else torch.where(seen, bias, -torch.inf)
    added = next((_batched(each) for each in (hidden, bias, seen) if each is not None), None)
    given = (_batched(x) for x in (q, k, v))
    made = scaled_dot_product_attention(*given, attn_mask=added, scale=attrs["scale"], **more)
    return made.reshape(*q.shape[:-1], v.shape[-1])


def _on_cpu(attrs: Attrs, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
    """By torch's kernel where steps would hold large scores, unless a row may be one of which it makes 0: where all
    scores are NaN or -inf."""
    scores = q.numel() // max(q.shape[-1], 1) * k.shape[-2]
    if scores > max(_LARGE, k.numel()) and v.shape[-1]:
        made = by_kernel(attrs, *map(_wide, (q, k, v, *bias)))
        first = made.select(-1, 0)
        if int(torch.count_nonzero(first)) == first.numel() or made.any(-1).all():
            return made.to(q.dtype)
    return in_steps(attrs, q, k, v, *bias)


def _batched(x: torch.Tensor) -> torch.Tensor:
    """With the kernel's number of axes in front of the last two."""
    more = x.ndim - 2 - BATCH
    return x.flatten(0, more) if more > 0 else x[(None,) * -more]


def in_steps(
    attrs: Attrs,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *extras: torch.Tensor,
    seen: torch.Tensor | None = None,
) -> torch.Tensor:
    """A mask's fill is kept as it is: a row that sees nothing but fills is the mean of all values, as written. Halves
    are computed in float32 and rounded once."""
    scores = _by_keys(_wide(q), k)
    if attrs["scale"] != 1:
        scores = scores.mul_(attrs["scale"])
    if attrs["biased"]:
        scores = scores.add_(extras[0])
    if attrs["masked"]:
        scores = scores.masked_fill_(extras[-1].logical_not(), attrs["fill"])
    if seen is not None:
        scores = scores.masked_fill_(seen.logical_not(), -torch.inf)
    return _of_values(torch.softmax(scores, -1), v).to(q.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in _HALVES else x


def _by_keys(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    if _is_whole(k):
        return torch.matmul(q, _wide(k).mT)
    return torch.cat([torch.matmul(q, part.mT) for part in _widened(k)], -1)


def _of_values(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if _is_whole(v):
        return torch.matmul(weights, _wide(v))
    made, *others = map(torch.matmul, weights.split(_at_once(v), -1), _widened(v))
    for other in others:
        made.add_(other)
    return made


def _is_whole(x: torch.Tensor) -> bool:
    """Whether all keys or values are made float32 at once, or are none of halves."""
    return x.numel() <= _LARGE or x.dtype not in _HALVES or x.device.type != "cpu"


def _at_once(x: torch.Tensor) -> int:
    """How many keys or values."""
    return max(1, _LARGE * x.shape[-2] // x.numel())


def _widened(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Keys or values in float32, one part after the other in the same memory."""
    first, *others = x.split(_at_once(x), -2)
    held = first.float()
    yield held
    for part in others:
        yield held.narrow(-2, 0, part.shape[-2]).copy_(part)


ATTENTION: Mapping[str, Builder] = {"attention": _attention}
"""Named in the descriptor's `composites`."""
