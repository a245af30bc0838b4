"""Elementwise functions that NumPy has not, or has with another meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tempo import dtypes

Value = Any  # a NumPy array or scalar
Function = Callable[..., Value]

HALF = frozenset({"float16", "bfloat16"})
"""Dtypes whose sums, contractions and composed functions are computed in float32 and rounded once."""


def in_float32(dtype: str, function: Function) -> Function:
    """The function, with halves computed in float32 and rounded once."""
    if dtype not in HALF:
        return function
    target = dtypes.to_numpy(dtype)
    return lambda *arrays: function(*(x.astype(np.float32) for x in arrays)).astype(target)


def rsqrt(dtype: str) -> Function:
    return in_float32(dtype, lambda x: np.reciprocal(np.sqrt(x)))


def logistic(dtype: str) -> Function:
    """1 / (1 + exp(-x)). Where exp overflows to infinity, 0 is right."""
    one = np.float64(1) if dtype == "float64" else np.float32(1)
    return in_float32(dtype, lambda x: one / (one + np.exp(-x)))


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

    def saturated(x: Value) -> Value:
        below, above = x <= limits.min, x >= limits.max
        inside = np.where(below | above | np.isnan(x), x.dtype.type(0), x).astype(dtype)
        return np.where(below, least, np.where(above, greatest, inside))

    def cast(x: Value) -> Value:
        wide = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        if wide.size and limits.min <= wide.min() and wide.max() < limits.max:  # both false for NaN
            return wide.astype(dtype)
        return saturated(wide)

    return cast


def erf(dtype: str) -> Function:
    """The error function, within 1 ulp of `dtype`."""
    exact = np.vectorize(math.erf, otypes=[np.float64])
    if dtype == "float64":
        return exact
    series, target = _erf_series(), dtypes.to_numpy(dtype)

    def function(x: Value) -> Value:
        wide = x.astype(np.float64)
        if wide.size <= _FEW:
            return exact(wide).astype(target)
        inside = np.clip(wide, -_ERF_LIMIT, _ERF_LIMIT)
        return (inside * np.polynomial.chebyshev.chebval(inside * inside / _ERF_HALF - 1, series)).astype(target)

    return function


_FEW = 256  # elements for which single calls cost no more than the terms of the series
_ERF_LIMIT = 4.0  # beyond it erf rounds to 1 in float32
_ERF_HALF = _ERF_LIMIT**2 / 2


@cache
def _erf_series() -> np.ndarray[Any, Any]:
    """Chebyshev coefficients of erf(x) / x as a function of x**2, within the limit; good to 1e-9."""

    def ratio(node: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        points = np.sqrt((node + 1) * _ERF_HALF)
        return np.array([math.erf(x) / x if x > 0 else 2 / math.sqrt(math.pi) for x in points.tolist()])

    return np.polynomial.chebyshev.chebinterpolate(ratio, 22)
