"""Composites that torch has a kernel for: one pass over the data instead of four or five."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch.nn import functional

from tempo.backends.operators import Call
from tempo_torch.operators.builder import Builder, Function, Operation, in_float32


def _over_axes(along: Function, keeps: bool = True) -> Builder:
    """`along` the last axis, given the attributes too. The axes become the last one, and what they were again."""

    def builder(call: Call, device: torch.device) -> Function:
        del device
        (operand,), axes = call.operands, tuple(call.attrs["axes"])
        others = {name: value for name, value in call.attrs.items() if name != "axes"}
        function = in_float32(partial(along, **others), call)  # torch's own kernels round halves between the steps
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


def _layer_norm(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], eps=epsilon)


_SHORT = 1 << 14
"""Elements of a row of which torch's norm, which adds one after the other, is as exact as its sums (of 65,536 float32
within 2e-7), where they lie side by side."""


def _rms_norm(call: Call, device: torch.device) -> Function:
    """On the CPU torch makes its `rms_norm` of five functions. These are four, one of which goes over the rows: for one
    row of 1,024 between products of large matrices they take 25 us for 52, for 256 rows 41 for 60."""
    (operand,), axes, epsilon = call.operands, tuple(call.attrs["axes"]), call.attrs["epsilon"]
    if device.type != "cpu" or axes != (len(operand.shape) - 1,) or not 0 < operand.shape[-1] <= _SHORT:
        return _over_axes(lambda x, epsilon: functional.rms_norm(x, x.shape[-1:], eps=epsilon))(call, device)
    wide = torch.float64 if operand.dtype == "float64" else torch.float32
    added, part = torch.tensor(epsilon, dtype=wide, device=device), 1 / operand.shape[-1]

    def by_norms(x: torch.Tensor) -> torch.Tensor:
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.addcmul(added, norms, norms, value=part).rsqrt_()

    return in_float32(by_norms, call)


def _at_each(function: Function, in_place: Function) -> Builder:
    """Torch's own kernels round halves once."""
    return lambda call, device: Operation(function, in_place)


COMPOSITES: Mapping[str, Builder] = {
    "softmax": _over_axes(partial(torch.softmax, dim=-1)),
    "log_softmax": _over_axes(partial(torch.log_softmax, dim=-1)),
    "logsumexp": _over_axes(partial(torch.logsumexp, dim=-1), keeps=False),
    "layer_norm": _over_axes(_layer_norm),
    "rms_norm": _rms_norm,
    "silu": _at_each(functional.silu, torch.ops.aten.silu_),
    "gelu": _at_each(functional.gelu, torch.ops.aten.gelu_),
    "gelu_by_tanh": _at_each(
        partial(functional.gelu, approximate="tanh"), partial(torch.ops.aten.gelu_, approximate="tanh")
    ),
}
"""Each is named in the descriptor's `composites`."""
