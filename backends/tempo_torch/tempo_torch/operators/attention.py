"""Attention on the keys before the length: what lies behind them is not read. Beside it what all attention is made of:
torch's kernel, and steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from math import inf, isfinite, prod
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tempo.backends.operators import Attrs, Call
from tempo_torch.moving import Moving
from tempo_torch.operators.builder import HALF, HALVES, Builder, Function, Operation, result_dtype
from tempo_torch.operators.packing import is_for_mkl, multiplies
from tempo_torch.operators.widening import counts_at_once, product, wider

_MANY_SCORES = 1 << 21
"""Elements, 8 MB of float32, that steps would hold twice."""
_HIDING = -1e4
"""A fill from which down a mask is taken for one that hides."""
NOTHING = 800
"""What a score is below the greatest of its row whose weight is 0, in float64, too."""
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

BATCH = 2  # axes: with any other number the kernel takes a way that is no faster than steps


def _attention(call: Call, device: torch.device) -> Function:
    """`queries, keys, values[, bias][, mask], length`; see `tempo.sdg.composites.attention`.

    On the CPU the kernel takes 0.1 to 0.7 of what steps do where these copy keys (`_lie_as_one`), or scores are many
    (16 heads of 256 rows and 2,047 keys: 0.5 to 0.8); else 0.9 to 1.6, most where both are few (a row and 33 keys). Of
    bfloat16 where the kernel multiplies it, which is not made float32 for it, 0.3 to 0.8.
    """
    attrs, on_cpu, is_half = call.attrs, device.type == "cpu", call.result.dtype in HALF
    steps: Function = partial(in_steps, attrs)
    hides_as_kernel = not attrs["masked"] or (on_cpu and attrs["fill"] <= _HIDING)
    is_for_kernel = hides_as_kernel and len(call.result.shape) <= BATCH + 2
    attend = steps
    if is_for_kernel:
        attend = _on_cpu(call) if on_cpu else partial(by_kernel, attrs)
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
    """`seen`: which keys each row sees, if not all."""
    hidden = None if bias is None or seen is None else torch.where(seen, bias, -torch.inf)
    added = next((_batched(each) for each in (hidden, bias, seen) if each is not None), None)
    given = (_batched(x) for x in (q, k, v))
    made = scaled_dot_product_attention(*given, attn_mask=added, scale=attrs["scale"], **more)
    return made.reshape(*q.shape[:-1], v.shape[-1])


def _on_cpu(call: Call) -> Function:
    """By torch's kernel where that is faster, and gives what the steps do."""
    attrs, (*batch, rows, width), *_ = call.attrs, *(operand.shape for operand in call.operands)
    scores_of_a_key, has_many_rows = prod(batch) * rows, 4 * rows > width
    always_lie_as_one = sum(size > 1 for size in batch) < 2
    has_one_width = call.result.shape[-1] == width
    is_multiplied = _kernel_multiplies(result_dtype(call))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *extras: torch.Tensor) -> torch.Tensor:
        scores = scores_of_a_key * k.shape[-2]
        is_faster = is_multiplied or (has_many_rows and scores > _MANY_SCORES)
        is_faster = is_faster or not (always_lie_as_one or (_lie_as_one(k) and _lie_as_one(v)))
        if is_faster and has_one_width and scores:
            return _by_kernel_as_in_steps(attrs, q, k, v, *extras)
        return in_steps(attrs, q, k, v, *extras)

    return attend


def _kernel_multiplies(dtype: torch.dtype) -> bool:
    """Whether the kernel multiplies these halves faster than float32. It does so by MKL: where that has no code for the
    processor, a row and 16 heads of 256 keys take 520 us, 83 in float32."""
    return multiplies(dtype) and is_for_mkl()


def _by_kernel_as_in_steps(
    attrs: Attrs, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *extras: torch.Tensor
) -> torch.Tensor:
    """Halves that the kernel does not multiply in float32, some at once.

    The kernel gives the log of the sum of each row's exponentials, too. That is 0 of a row whose scores are all -inf or
    NaN (of few keys), of which it makes 0, too; NaN where what a mask hides is not finite. Where it is far above the
    mask's fill, what is hidden has no weight in either. It divides by the sum at the end: values of the greatest
    numbers overflow; and weights below the least normal number are 0, which shows beside values that are as great.
    """
    given, added = [_batched(x) for x in (q, k, v)], torch.float32 if q.dtype in HALVES else q.dtype
    wide = q.dtype if _kernel_multiplies(q.dtype) else added
    if extras:
        given.append(_batched(_added(attrs, added, *extras)).expand(*given[0].shape[:2], -1, -1))
    least, counts = attrs["fill"] + NOTHING if attrs["masked"] else -inf, counts_at_once(*given[1:3], wide)
    if counts == given[0].shape[:BATCH]:
        made = _by_kernel_alone(attrs, least, wide, *given)
        return in_steps(attrs, q, k, v, *extras) if made is None else made.reshape(q.shape).to(q.dtype)
    found = torch.empty_like(given[0])
    for into, *part in zip(*(_parts(x, counts) for x in (found, *given))):
        made = _by_kernel_alone(attrs, least, wide, *part)
        if made is None:
            return in_steps(attrs, q, k, v, *extras)
        into.copy_(made)
    return found.reshape(q.shape)


def _by_kernel_alone(
    attrs: Attrs,
    least: float,
    wide: torch.dtype,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    added: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """None where steps might give something else."""
    given = q.to(wide), wider(k, wide, 0), wider(v, wide, 1)
    if not all(x.stride(-1) == 1 for x in given):  # the kernel takes it to be so
        return None
    made, sums = _KERNEL(*given, attn_mask=added, scale=attrs["scale"])
    lowest = float(sums.amin())
    is_alike = (lowest > 0 or (lowest > least and bool(sums.all()))) and isfinite(float(made.sum()))
    return made if is_alike else None


def _lie_as_one(matrices: torch.Tensor) -> bool:
    """Whether they lie at one distance from each other. Torch's batched product copies what does not: of 8 texts, keys
    and values at each of 2,047 points of 16 x 64, 92 ms, 7 by its kernel."""
    outer = [each for each in zip(matrices.shape[:-2], matrices.stride()) if each[0] != 1]
    return all(step == below * count for (_, step), (count, below) in pairwise(outer))


def _parts(x: torch.Tensor, counts: tuple[int, int]) -> list[torch.Tensor]:
    return [part for some in x.split(counts[0]) for part in some.split(counts[1], 1)]


def _added(attrs: Attrs, dtype: torch.dtype, *extras: torch.Tensor) -> torch.Tensor:
    """What is added to scores for a bias and a mask: that alone is the logarithm of what it says."""
    if not attrs["masked"]:
        return _wide(extras[0])
    return (torch.where(extras[-1], _wide(extras[0]), -inf) if attrs["biased"] else extras[-1].log()).to(dtype)


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
    wide = _wide(q)
    scores = product(wide, k.mT, wide.dtype)
    if attrs["scale"] != 1:
        scores = scores.mul_(attrs["scale"])
    if attrs["biased"]:
        scores = scores.add_(extras[0])
    if attrs["masked"]:
        scores = scores.masked_fill_(extras[-1].logical_not(), attrs["fill"])
    if seen is not None:
        scores = scores.masked_fill_(seen.logical_not(), -torch.inf)
    return product(torch.softmax(scores, -1), v, wide.dtype).to(q.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in HALVES else x


ATTENTION: Mapping[str, Builder] = {"attention": _attention}
"""Named in the descriptor's `composites`."""
