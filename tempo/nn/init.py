"""Initialisers: each is called as `init(shape, dims=..., dtype=...)` and gives a tensor expression or an array.

Draws come from the seed of the run, one per point of the parameter's dims that are no time dims. The last axis of
`shape` counts outputs, what stands before it inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tempo as tp

Init = Callable[..., Any]
_POLAR_STEPS = 40  # each grows small singular values by 1.5, and squares the error of those near 1


def constant(value: float) -> Init:
    """The same number everywhere."""
    return lambda shape, dims, dtype: tp.full(shape, value, dtype=dtype)


def zeros(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
    """0 everywhere."""
    return tp.zeros(shape, dtype=dtype)


def ones(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
    """1 everywhere."""
    return tp.ones(shape, dtype=dtype)


def uniform(low: float = 0.0, high: float = 1.0) -> Init:
    """Uniform in [low, high)."""
    return lambda shape, dims, dtype: tp.random.uniform(shape, low, high, dims=dims, dtype=dtype)


def normal(std: float = 1.0, mean: float = 0.0) -> Init:
    """Normal with the given mean and standard deviation."""
    return lambda shape, dims, dtype: tp.random.normal(shape, mean, std, dims=dims, dtype=dtype)


def glorot_uniform(gain: float = 1.0) -> Init:
    """Uniform within `gain * sqrt(6 / (inputs + outputs))`. Source: Glorot and Bengio 2010, equation 16."""

    def init(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
        inputs, outputs = _fans(shape)
        bound = gain * math.sqrt(6 / (inputs + outputs))
        return tp.random.uniform(shape, -bound, bound, dims=dims, dtype=dtype)

    return init


def he_normal(gain: float = math.sqrt(2)) -> Init:
    """Normal with standard deviation `gain / sqrt(inputs)`. Source: He et al. 2015, equation 10."""

    def init(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
        return tp.random.normal(shape, 0.0, gain / math.sqrt(_fans(shape)[0]), dims=dims, dtype=dtype)

    return init


def fan_in_uniform(gain: float = 1.0) -> Init:
    """Uniform within `gain / sqrt(inputs)`: what PyTorch's Linear starts from."""

    def init(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
        bound = gain / math.sqrt(_fans(shape)[0])
        return tp.random.uniform(shape, -bound, bound, dims=dims, dtype=dtype)

    return init


def orthogonal(gain: float = 1.0) -> Init:
    """`gain` times a matrix with orthonormal rows or columns, uniform among those. Source: Saxe et al. 2014.

    The polar factor of a normal draw, by Newton and Schulz's iteration (Higham 2008, Functions of Matrices, 8.3).
    """

    def init(shape: Any, dims: Any = (), dtype: Any = tp.float32) -> Any:
        inputs, outputs = _fans(shape)
        tall = inputs >= outputs
        x = tp.random.normal((inputs, outputs) if tall else (outputs, inputs), dims=dims, dtype=dtype)
        x = x / tp.sqrt((x * x).sum())  # no singular value is above 1, where the iteration converges
        for _ in range(_POLAR_STEPS):
            x = 1.5 * x - 0.5 * (x @ (x.T @ x))
        return tp.reshape(gain * (x if tall else x.T), shape)

    return init


def _fans(shape: tuple[Any, ...]) -> tuple[int, int]:
    """How many inputs and outputs a weight of `shape` joins."""
    return math.prod(shape[:-1]), shape[-1]
