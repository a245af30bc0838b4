"""The operator table: for each primitive what makes its function, given everything static that is known of a call.

A function takes the backend's arrays, then the run-time scalars, and returns an array of `call.result`'s shape and
dtype. `tempo.sdg.operators` defines what each primitive means, with NumPy. A library that is no NumPy writes every
entry; this table takes that meaning as it is, and shows how an entry is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo.backends.operators import OPERATORS, Call
from tempo_plain.plugin import PLUGIN

Array = np.ndarray[Any, Any]
Builder = Callable[[Call], Callable[..., Array]]


def _dot(call: Call) -> Callable[..., Array]:
    """Without batch axes one call of `tensordot`, whose result has the same axes: free ones left, then right."""
    attrs = call.attrs
    if attrs["lhs_batch"] or call.result.dtype not in ("float32", "float64"):
        return OPERATORS["dot"].numpy(call)
    axes = tuple(attrs["lhs_contract"]), tuple(attrs["rhs_contract"])

    def dot(x: Array, y: Array) -> Array:
        return np.asarray(np.tensordot(x, y, axes))

    return dot


def _rsqrt(call: Call) -> Callable[..., Array]:
    """1 / sqrt(x), rounded once: computed in float64 unless it is that already."""
    dtype = call.result.numpy_dtype

    def rsqrt(x: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1.0 / np.sqrt(x, dtype=np.float64)).astype(dtype)

    return rsqrt


_REPLACED: Mapping[str, Builder] = {"dot": _dot, "rsqrt": _rsqrt}

TABLE: Mapping[str, Builder] = {
    name: _REPLACED.get(name, operator.numpy)
    for name, operator in OPERATORS.items()
    if name not in PLUGIN.capabilities.unsupported
}
"""Every primitive that the descriptor does not exclude."""
