"""Elementwise functions that NumPy has not, or has with another meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from tempo import dtypes

Value = Any  # a NumPy array or scalar
Function = Callable[[Value], Value]


def rsqrt(x: Value) -> Value:
    return np.reciprocal(np.sqrt(x))


def logistic(x: Value) -> Value:
    """1 / (1 + exp(-x)), with exp of nothing positive, so that nothing overflows and small results stay precise."""
    small = np.exp(-np.absolute(x))
    one = np.ones_like(small)
    return np.where(x < 0, small, one) / (one + small)


def integer_power(base: Value, exponent: Value) -> Value:
    """Wraps as integer multiplication does; a negative exponent truncates 1 / base**n towards 0, and 0**-n is 0."""
    negative = exponent < 0
    power = np.power(base, np.where(negative, exponent & 1, exponent))  # (+-1)**-n is (+-1)**(n mod 2)
    return np.where(negative & (base != 1) & (base != -1), np.zeros_like(power), power)


def saturating_cast(target: str) -> Function:
    """Float to integer as XLA does it: towards zero, into the range of the target, NaN to 0."""
    dtype = dtypes.to_numpy(target)
    limits = np.iinfo(dtype)
    least, greatest = dtype.type(limits.min), dtype.type(limits.max)

    def cast(x: Value) -> Value:
        wide = np.asarray(x) if x.dtype == np.float64 else np.asarray(x, np.float32)
        below, above = wide <= limits.min, wide >= limits.max
        inside = np.where(below | above | np.isnan(wide), wide.dtype.type(0), wide).astype(dtype)
        return np.where(below, least, np.where(above, greatest, inside))

    return cast


def erf(dtype: str) -> Function:
    """The error function, within 1 ulp of `dtype`."""
    if dtype == "float64":
        return np.vectorize(math.erf, otypes=[np.float64])
    series, target = _erf_series(), dtypes.to_numpy(dtype)

    def function(x: Value) -> Value:
        inside = np.clip(x.astype(np.float64), -_ERF_LIMIT, _ERF_LIMIT)
        return (inside * chebyshev.chebval(inside * inside / _ERF_HALF - 1, series)).astype(target)

    return function


_ERF_LIMIT = 4.0  # beyond it erf rounds to 1 in float32
_ERF_HALF = _ERF_LIMIT**2 / 2


@cache
def _erf_series() -> np.ndarray[Any, Any]:
    """Chebyshev coefficients of erf(x) / x as a function of x**2, within the limit; good to 1e-9."""

    def ratio(node: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        points = np.sqrt((node + 1) * _ERF_HALF)
        return np.array([math.erf(x) / x if x > 0 else 2 / math.sqrt(math.pi) for x in points.tolist()])

    return chebyshev.chebinterpolate(ratio, 22)
