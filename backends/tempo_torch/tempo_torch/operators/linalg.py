"""Linear algebra, by the forms that check nothing on the host; what has no answer is NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tempo_torch.operators.builder import Builder, Function, in_float32

Checked = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _or_nan(function: Checked) -> Builder:
    """`function` gives a result and for each matrix a number that is not 0 where it has none."""

    def run(*given: torch.Tensor) -> torch.Tensor:
        made, failed = function(*given)
        return made.masked_fill(failed.ne(0)[..., None, None], torch.nan)

    return _rounded_once(run)


def _rounded_once(function: Function) -> Builder:
    return lambda call, device: in_float32(function, call)


LINALG: Mapping[str, Builder] = {
    "solve": _or_nan(torch.linalg.solve_ex),
    "cholesky": _or_nan(torch.linalg.cholesky_ex),
    "det": _rounded_once(torch.linalg.det),
}
