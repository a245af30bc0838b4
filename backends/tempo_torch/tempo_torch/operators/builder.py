"""What builders share, and the way through NumPy for what torch has no kernel for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tempo.sdg.call import Call
from tempo.sdg.operators import OPERATORS
from tempo_torch.arrays import TORCH_DTYPES, from_host, to_host

Function = Callable[..., torch.Tensor]
Builder = Callable[[Call, torch.device], Function]

HALF = frozenset({"float16", "bfloat16"})
"""Sums and contractions of them are computed in float32 and rounded once."""

UNSIGNED = frozenset({"uint16", "uint32", "uint64"})
"""Torch stores these and has few kernels for them: no sum of two, no order, no shift."""


def result_dtype(call: Call) -> torch.dtype:
    return TORCH_DTYPES[call.result.dtype]


def is_unsigned(call: Call) -> bool:
    return any(type.dtype in UNSIGNED for type in (*call.operands, call.result))


def by_numpy(call: Call, device: torch.device) -> Function:
    """The core's own meaning, on the tensors' memory; on another device than the CPU through copies."""
    meaning = OPERATORS[call.op].numpy(call)

    def function(*given: Any) -> torch.Tensor:
        arguments = (to_host(each) if isinstance(each, torch.Tensor) else each for each in given)
        with np.errstate(all="ignore"):
            return from_host(np.asarray(meaning(*arguments)), device)

    return function


def always(function: Function) -> Builder:
    """One function for every call of an operator; what torch lacks for unsigned integers, NumPy does."""
    return lambda call, device: by_numpy(call, device) if is_unsigned(call) else function


def on_all(function: Function) -> Builder:
    """One function for every call, for what torch has for every dtype."""
    return lambda call, device: function


def in_float32(function: Function, call: Call) -> Function:
    """The function, with halves computed in float32 and rounded once."""
    if call.result.dtype not in HALF:
        return function
    target = result_dtype(call)
    return lambda *given: function(*(x.float() for x in given)).to(target)
