"""Composites that torch has a kernel for: one pass over the data instead of four or five."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tempo.backends.operators import Call
from tempo_torch.operators.builder import HALF, Builder, Function, result_dtype

Along = Callable[[torch.Tensor], torch.Tensor]
"""Along the last axis."""


def _over_axes(along: Callable[[Call], Along], keeps: bool = True) -> Builder:
    """The axes become the last one, and what they were again."""

    def builder(call: Call, device: torch.device) -> Function:
        del device
        (operand,), axes, function = call.operands, tuple(call.attrs["axes"]), _rounded(along(call), call)
        rank = len(operand.shape)
        if axes == (rank - 1,):
            return function
        last = tuple(range(rank - len(axes), rank))
        sizes = tuple(operand.shape[axis] for axis in axes)

        def moved(x: torch.Tensor) -> torch.Tensor:
            rows = x.movedim(axes, last)
            found = function(rows.flatten(rank - len(axes)))
            return found.unflatten(-1, sizes).movedim(last, axes) if keeps else found

        return moved

    return builder


def _rounded(along: Along, call: Call) -> Along:
    """Halves in float32, rounded once: torch's own kernels round between the steps."""
    if call.result.dtype not in HALF:
        return along
    dtype = result_dtype(call)
    return lambda x: along(x.float()).to(dtype)


def _softmax(call: Call) -> Along:
    return lambda x: torch.softmax(x, -1)


def _log_softmax(call: Call) -> Along:
    return lambda x: torch.log_softmax(x, -1)


def _logsumexp(call: Call) -> Along:
    return lambda x: torch.logsumexp(x, -1)


def _layer_norm(call: Call) -> Along:
    epsilon = call.attrs["epsilon"]
    return lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=epsilon)


def _rms_norm(call: Call) -> Along:
    epsilon = call.attrs["epsilon"]
    return lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:], eps=epsilon)


COMPOSITES: Mapping[str, Builder] = {
    "softmax": _over_axes(_softmax),
    "log_softmax": _over_axes(_log_softmax),
    "logsumexp": _over_axes(_logsumexp, keeps=False),
    "layer_norm": _over_axes(_layer_norm),
    "rms_norm": _over_axes(_rms_norm),
}
"""Each is named in the descriptor's `composites`."""
