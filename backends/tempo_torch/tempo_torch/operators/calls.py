"""The user's own functions of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tempo import dtypes
from tempo.backends.operators import Call, function_of, result_of
from tempo_torch.arrays import TORCH_DTYPES
from tempo_torch.operators.builder import Builder, Function
from tempo_torch.waits import told


def _result(call: Call, device: torch.device) -> Function:
    def tensor(value: Any, dtype: Any = None) -> torch.Tensor:
        wanted = None if dtype is None else TORCH_DTYPES[dtypes.from_numpy(dtype)]
        return torch.as_tensor(value, dtype=wanted, device=device).detach()

    return told(result_of(tensor)(call), "it is what a function of the user's gave")


def _call(call: Call, device: torch.device) -> Function:
    function = function_of(call)
    return told(lambda *given: function(*given), "what a function of the user's does is not known")


CALLS: Mapping[str, Builder] = {"backend_call": _call, "backend_result": _result}
