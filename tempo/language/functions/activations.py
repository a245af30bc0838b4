"""Activation functions of neural networks."""

from __future__ import annotations

from tempo.language.apply import apply
from tempo.language.conversion import TensorLike, promoted
from tempo.language.functions.arithmetic import absolute as magnitude
from tempo.language.functions.arithmetic import maximum, minimum, where
from tempo.language.functions.elementwise import erf, exp, expm1, log1p, tanh
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


def gelu(x: TensorLike, approximate: bool = True) -> RecurrentTensor:
    """`x` times the standard normal's distribution function; by `tanh` where approximate, else by `erf`.

    Source: Hendrycks and Gimpel 2016, section 2.
    """
    tensor = _float(x)
    if approximate is False:
        return tensor * 0.5 * (1 + erf(tensor * 0.7071067811865476))
    inside = 0.7978845608028654 * (tensor + 0.044715 * (tensor * tensor * tensor))
    return tensor * 0.5 * (1 + tanh(inside))
