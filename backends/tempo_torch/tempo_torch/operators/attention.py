"""Attention on the keys before the length: what lies behind them is not read. Beside it what all attention is made of:
torch's kernel, and steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tempo.backends.operators import Attrs, Call
from tempo_torch.moving import Moving
from tempo_torch.operators.builder import HALF, HALVES, Builder, Function, Operation, widened

_MANY_SCORES = 1 << 21
"""Elements, 8 MB of float32, that steps would hold twice."""

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
    if scores > max(_MANY_SCORES, k.numel()) and v.shape[-1]:
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
    return x.float() if x.dtype in HALVES else x


def _by_keys(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    found = [torch.matmul(q, part.mT) for part in widened(k, q.dtype)]
    return found[0] if len(found) == 1 else torch.cat(found, -1)


def _of_values(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    made, at = None, 0
    for part in widened(v, weights.dtype):
        count = part.shape[-2]
        found = torch.matmul(weights.narrow(-1, at, count), part)
        made, at = found if made is None else made.add_(found), at + count
    assert made is not None, "there is one part at least"
    return made


ATTENTION: Mapping[str, Builder] = {"attention": _attention}
"""Named in the descriptor's `composites`."""
