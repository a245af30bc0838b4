"""Attention on the keys before the length: what lies behind them is not read."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tempo.backends.operators import Call
from tempo_torch.operators.builder import Builder, Function, in_float32

_KERNEL_RANK = 4  # of batch, heads, rows, width: with any other the kernel takes a way that is no faster than steps


def _attention(call: Call, device: torch.device) -> Function:
    """`queries, keys, values[, bias][, mask], length`; see `tempo.sdg.composites.attention`.

    On the CPU steps are as fast as torch's kernel while rows are few (512 keys of 2 x 64, batch 1: 32 and 35 us; 8,192
    keys: 0.7 and 1.0 ms), and the kernel loses NaN: where all scores are NaN its result is 0.
    """
    attrs = call.attrs
    by_kernel = device.type != "cpu" and not attrs["masked"] and len(call.result.shape) <= _KERNEL_RANK
    attend = _by_kernel(call) if by_kernel else _in_steps(call)
    key_axes, value_axes = tuple(attrs["key_axes"]), tuple(attrs["value_axes"])
    cut_keys, cut_values = key_axes[-2], value_axes[-2]
    size = call.operands[1].shape[cut_keys]
    cut_extras = [at for at, extra in enumerate(call.operands[3:]) if extra.shape[-1] != 1 or size == 1]

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: torch.Tensor | int) -> torch.Tensor:
        *extras, length = given
        if length < size:
            k, v = k.narrow(cut_keys, 0, length), v.narrow(cut_values, 0, length)
            for at in cut_extras:
                extras[at] = extras[at].narrow(-1, 0, length)
        return attend(q, k.permute(key_axes), v.permute(value_axes), *extras)

    return attention


def _by_kernel(call: Call) -> Function:
    """Leading axes of size 1 make up the kernel's four."""
    missing = _KERNEL_RANK - len(call.result.shape)
    before, scale = (None,) * missing, call.attrs["scale"]
    kernel = torch.nn.functional.scaled_dot_product_attention

    def attend(*given: torch.Tensor) -> torch.Tensor:
        q, k, v, *bias = (x[before] for x in given) if missing else given
        made = kernel(q, k, v, *bias, scale=scale)
        return made[(0,) * missing] if missing else made

    return attend


def _in_steps(call: Call) -> Function:
    """A mask's fill is kept as it is: a row that sees nothing but fills is the mean of all values, as written."""
    attrs = call.attrs
    scale, fill, biased, masked = attrs["scale"], attrs["fill"], attrs["biased"], attrs["masked"]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *extras: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(q, k.mT)
        if scale != 1:
            scores = scores.mul_(scale)
        if biased:
            scores = scores.add_(extras[0])
        if masked:
            scores = scores.masked_fill_(extras[-1].logical_not(), fill)
        return torch.matmul(torch.softmax(scores, -1), v)

    return in_float32(attend, call)


ATTENTION: Mapping[str, Builder] = {"attention": _attention}
"""Named in the descriptor's `composites`."""
