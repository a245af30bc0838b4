"""Large matrices by which several rows are multiplied many times, laid out for oneDNN before the first product.

A library brings a matrix into blocks that fit its registers in each product. For few rows that takes longer than the
product: 4 rows by a matrix of 4,096 x 1,024 take 1.6 ms, 0.4 where the matrix was brought into blocks before; 16 rows
by 2,048 x 512 take 0.45 and 0.31. Bringing it there takes as long as some ten or twenty products save.

These are the operators that `torch.compile` makes of a linear layer whose weights are frozen. Matrices are outputs by
inputs, as those of `torch.nn.Linear`.
"""

from __future__ import annotations

import torch

_OFTEN = 32
"""Products from which on a matrix is packed."""
_LARGE = 1 << 18
"""Elements of a matrix from which on the operator's overhead, ten microseconds, does not matter."""
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_worth_packing(rows: int, elements: int) -> bool:
    """One row by a matrix takes as long as reading it, however that lies."""
    return _HAS_ONEDNN and rows > 1 and elements >= _LARGE


def packed_if_often(matrix: torch.Tensor, times: int) -> torch.Tensor:
    return packed(matrix) if times >= _OFTEN else matrix


def turned_packed_if_often(matrix: torch.Tensor, times: int) -> torch.Tensor:
    """Of a matrix of inputs by outputs."""
    return packed_if_often(matrix.t(), times)


def packed(matrix: torch.Tensor) -> torch.Tensor:
    """As a tensor in oneDNN's layout."""
    made: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix)
    return made


def product(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rows by a matrix, packed or not."""
    if not matrix.is_mkldnn:
        return torch.mm(rows, matrix.t())
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
    return made
