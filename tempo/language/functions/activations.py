"""Activation functions of neural networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo.errors import ProgramError, user_location
from tempo.language.apply import apply
from tempo.language.conversion import TensorLike, promoted
from tempo.language.functions.arithmetic import absolute as magnitude
from tempo.language.functions.arithmetic import maximum, minimum, where
from tempo.language.functions.elementwise import erf, exp, expm1, log1p, tanh
from tempo.language.indexing.expression import show
from tempo.language.tensor import RecurrentTensor


def _float(x: TensorLike) -> RecurrentTensor:
    return promoted(x, to_float=True)[0]


def relu(x: TensorLike) -> RecurrentTensor:
    """`max(x, 0)`."""
    return maximum(x, 0)


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> RecurrentTensor:
    """`x` where positive, else `negative_slope * x`."""
    tensor = _float(x)
    return where(tensor > 0, tensor, tensor * negative_slope)


def elu(x: TensorLike, alpha: float = 1.0) -> RecurrentTensor:
    """`x` where positive, else `alpha * (exp(x) - 1)`."""
    tensor = _float(x)
    return where(tensor > 0, tensor, alpha * expm1(minimum(tensor, 0)))


def sigmoid(x: TensorLike) -> RecurrentTensor:
    """`1 / (1 + exp(-x))`."""
    tensor = _float(x)
    return apply("logistic", tensor, weak=tensor.weak)


def log_sigmoid(x: TensorLike) -> RecurrentTensor:
    """`log(sigmoid(x))` without overflow."""
    return -softplus(-_float(x))


def softplus(x: TensorLike) -> RecurrentTensor:
    """`log(1 + exp(x))` without overflow."""
    tensor = _float(x)
    return maximum(tensor, 0) + log1p(exp(-magnitude(tensor)))


def silu(x: TensorLike) -> RecurrentTensor:
    """`x * sigmoid(x)`, also known as swish."""
    tensor = _float(x)
    return tensor * sigmoid(tensor)


def gelu(x: TensorLike, approximate: str | bool = "none") -> RecurrentTensor:
    """`x` times the standard normal's distribution function: exact, by `erf`, or with "tanh" (True) by its fit.

    `approximate` is "none" or "tanh", as PyTorch's, or a bool, as JAX's. Source: Hendrycks and Gimpel 2016, section 2.
    """
    tensor = _float(x)
    if _by_tanh(approximate):
        inside = 0.7978845608028654 * (tensor + 0.044715 * (tensor * tensor * tensor))
        return tensor * 0.5 * (1 + tanh(inside))
    return tensor * 0.5 * (1 + erf(tensor * 0.7071067811865476))


def _by_tanh(approximate: Any) -> bool:
    if isinstance(approximate, bool | np.bool_):
        return bool(approximate)
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        raise ProgramError(
            f"approximate is {show(approximate)}, which names no way to compute gelu",
            location=user_location(),
            hint='write "none" (exact, the default) or "tanh"; False and True mean the same',
        )
    return approximate == "tanh"
