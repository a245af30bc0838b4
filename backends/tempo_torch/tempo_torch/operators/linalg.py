"""Linear algebra, by the forms that check nothing on the host; what has no answer is NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tempo.backends.operators import Call
from tempo_torch.operators.builder import HALF, Builder, Function, result_dtype

Checked = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _or_nan(function: Checked) -> Builder:
    """`function` gives a result and for each matrix a number that is not 0 where it has none."""

    def builder(call: Call, device: torch.device) -> Function:
        dtype = result_dtype(call)
        inner = torch.float32 if call.result.dtype in HALF else dtype

        def run(*given: torch.Tensor) -> torch.Tensor:
            made, failed = function(*(each.to(inner) for each in given))
            return made.masked_fill(failed.ne(0)[..., None, None], torch.nan).to(dtype)

        return run

    return builder


def _det(call: Call, device: torch.device) -> Function:
    dtype = result_dtype(call)
    inner = torch.float32 if call.result.dtype in HALF else dtype
    return lambda a: torch.linalg.det(a.to(inner)).to(dtype)


LINALG: Mapping[str, Builder] = {
    "solve": _or_nan(torch.linalg.solve_ex),
    "cholesky": _or_nan(torch.linalg.cholesky_ex),
    "det": _det,
}
