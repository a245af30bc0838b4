"""Elementwise operators: operands of one dtype, shapes that broadcast as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from tempo import dtypes
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import (
    ANY,
    FLOAT,
    INTEGER,
    NUMBER,
    Attrs,
    broadcast_axes,
    broadcast_shapes,
    check_count,
    check_kind,
    check_same_dtype,
    in_float32,
    no_cost,
    per_element,
    typed,
)
from tempo.sdg.operators.making import Partial, Reverse, constant, elementwise, none
from tempo.sdg.operators.operator import Builder, Function, Operator

BITS = ("bool", "int", "uint")
TRANSCENDENTAL = 10.0  # operations that one exp, log, sin ... counts for


# Functions that NumPy has not, or has with another meaning.


def rsqrt(dtype: str) -> Function:
    return in_float32(dtype, lambda x: np.reciprocal(np.sqrt(x)))


def logistic(dtype: str) -> Function:
    """1 / (1 + exp(-x)). Where exp overflows to infinity, 0 is right."""
    one = np.float64(1) if dtype == "float64" else np.float32(1)
    return in_float32(dtype, lambda x: one / (one + np.exp(-x)))


def integer_power(base: Any, exponent: Any) -> Any:
    """Wraps as integer multiplication does; a negative exponent truncates 1 / base**n towards 0, and 0**-n is 0."""
    negative = exponent < 0
    power = np.power(base, np.where(negative, exponent & 1, exponent))  # (+-1)**-n is (+-1)**(n mod 2)
    return np.where(negative & (base != 1) & (base != -1), np.zeros_like(power), power)


def saturating_cast(target: str) -> Function:
    """Float to integer as XLA does it: towards zero, into the range of the target, NaN to 0."""
    dtype = dtypes.to_numpy(target)
    limits = np.iinfo(dtype)
    least, greatest = dtype.type(limits.min), dtype.type(limits.max)

    def saturated(x: Any) -> Any:
        below, above = x <= limits.min, x >= limits.max
        inside = np.where(below | above | np.isnan(x), x.dtype.type(0), x).astype(dtype)
        return np.where(below, least, np.where(above, greatest, inside))

    def narrowed(x: Any) -> Any:
        wide = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        if wide.size and limits.min <= wide.min() and wide.max() < limits.max:  # both false for NaN
            return wide.astype(dtype)
        return saturated(wide)

    return narrowed


def erf(dtype: str) -> Function:
    """The error function, within 1 ulp of `dtype`."""
    exact = np.vectorize(math.erf, otypes=[np.float64])
    if dtype == "float64":
        return exact
    series, target = _erf_series(), dtypes.to_numpy(dtype)

    def function(x: Any) -> Any:
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


def _always(function: Function) -> Builder:
    """A function that gives the right dtype for every dtype."""
    return lambda call: function


def _by_dtype(function: Callable[[str], Function]) -> Builder:
    return lambda call: function(call.result.dtype)


def _without_warning(function: np.ufunc) -> Builder:
    """Integer division: NumPy's result (0 for a division by zero) without its warning."""

    def quiet(left: Any, right: Any) -> Any:
        with np.errstate(divide="ignore", over="ignore"):
            return function(left, right)

    return lambda call: function if dtypes.is_float(call.result.dtype) else quiet


def _power(call: Call) -> Function:
    return np.power if dtypes.kind(call.result.dtype) in ("float", "uint") else integer_power


def _elementwise(
    name: str,
    count: int,
    kinds: tuple[str, ...],
    numpy: Builder,
    weight: float = 1.0,
    result: str | None = None,
    partials: tuple[Partial, ...] = (),
    bounded: bool = False,
) -> Operator:
    return Operator(
        name=name,
        kind="elementwise",
        infer=typed(name, count, lambda attrs, *shapes: broadcast_shapes(shapes, name), kinds, result),
        axes=broadcast_axes,
        cost=per_element(weight),
        numpy=numpy,
        gradient=elementwise(*partials) if partials else constant,
        bounded=bounded,
    )


def _unary(name: str, kinds: tuple[str, ...], function: Function, *partials: Partial, **other: Any) -> Operator:
    return _elementwise(name, 1, kinds, _always(function), partials=partials, **other)


def _binary(name: str, kinds: tuple[str, ...], function: Function, *partials: Partial, **other: Any) -> Operator:
    return _elementwise(name, 2, kinds, _always(function), partials=partials, **other)


def _infer_cast(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("cast", operands, 1)
    dtypes.to_numpy(attrs["dtype"])
    return TensorType(operands[0].shape, attrs["dtype"])


def _infer_where(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("where", operands, 3)
    check_kind("where on a mask", operands[0].dtype, ("bool",))
    dtype = check_same_dtype("where", operands[1:])
    return TensorType(broadcast_shapes([operand.shape for operand in operands], "where"), dtype)


def _infer_after(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("after", operands, 2)
    return TensorType(broadcast_shapes([operand.shape for operand in operands], "after"), operands[0].dtype)


def _numpy_after(call: Call) -> Function:
    shape = call.result.shape
    if call.operands[0].shape == shape:
        return lambda x, y: x
    return lambda x, y: np.broadcast_to(x, shape)


def _numpy_cast(call: Call) -> Function:
    source, target = call.operands[0].dtype, call.result.dtype
    if dtypes.is_float(source) and dtypes.is_integer(target):
        return saturating_cast(target)
    dtype = call.result.numpy_dtype
    return lambda x: x.astype(dtype)


# Partial cotangents: g is that of the result, x and y are the operands, r.result the value. Where the derivative jumps,
# and at the ties of maximum and minimum, they are what JAX takes.


def _power_x(r: Reverse) -> Edge:
    """g * y * x**(y - 1), and 0 where y is 0, also at x = 0."""
    return r.mul(r.g, r.where(r.compare("eq", r.y, 0), 0, r.mul(r.y, r.apply("pow", r.x, r.sub(r.y, 1)))))


def _power_y(r: Reverse) -> Edge:
    """g * x**y * log(x), and 0 at x = 0."""
    is_zero = r.compare("eq", r.x, 0)
    return r.mul(r.g, r.where(is_zero, 0, r.mul(r.apply("log", r.where(is_zero, 1, r.x)), r.result)))


def _chosen(wins: str, mine: int) -> Partial:
    """The cotangent where operand `mine` is the extreme, half of it where both are."""

    def partial(r: Reverse) -> Edge:
        own, other = r.operands[mine], r.operands[1 - mine]
        half = r.where(r.compare("eq", own, other), 0.5, 0.0)
        return r.mul(r.g, r.where(r.compare(wins, own, other), 1.0, half))

    return partial


def _over(numerator: Callable[[Reverse], Edge]) -> Partial:
    """g * numerator / (x**2 + y**2)"""
    return lambda r: r.mul(r.g, r.div(numerator(r), r.add(r.square(r.x), r.square(r.y))))


def _times(op: str, negative: bool = False) -> Partial:
    """g * op(x), or minus that"""

    def partial(r: Reverse) -> Edge:
        factor = r.apply(op, r.x)
        return r.mul(r.g, r.neg(factor) if negative else factor)

    return partial


UNARY = (
    _unary("neg", NUMBER, np.negative, lambda r: r.neg(r.g)),
    _unary("abs", NUMBER, np.absolute, _times("sign")),
    _unary("sign", NUMBER, np.sign, bounded=True),
    _unary("exp", FLOAT, np.exp, lambda r: r.mul(r.g, r.result), weight=TRANSCENDENTAL),
    _unary("expm1", FLOAT, np.expm1, lambda r: r.mul(r.g, r.add(r.result, 1)), weight=TRANSCENDENTAL),
    _unary("log", FLOAT, np.log, lambda r: r.div(r.g, r.x), weight=TRANSCENDENTAL),
    _unary("log1p", FLOAT, np.log1p, lambda r: r.div(r.g, r.add(r.x, 1)), weight=TRANSCENDENTAL),
    _unary("sqrt", FLOAT, np.sqrt, lambda r: r.div(r.mul(r.g, 0.5), r.result)),
    _elementwise(
        "rsqrt", 1, FLOAT, _by_dtype(rsqrt), 2.0,
        partials=(lambda r: r.mul(r.g, r.mul(-0.5, r.div(r.result, r.x))),),
    ),
    _unary("sin", FLOAT, np.sin, _times("cos"), weight=TRANSCENDENTAL),
    _unary("cos", FLOAT, np.cos, _times("sin", negative=True), weight=TRANSCENDENTAL),
    _unary("tan", FLOAT, np.tan, lambda r: r.mul(r.g, r.add(r.square(r.result), 1)), weight=TRANSCENDENTAL),
    _unary("asin", FLOAT, np.arcsin, lambda r: r.mul(r.g, r.apply("rsqrt", r.sub(1, r.square(r.x)))),
           weight=TRANSCENDENTAL),
    _unary("acos", FLOAT, np.arccos, lambda r: r.mul(r.g, r.neg(r.apply("rsqrt", r.sub(1, r.square(r.x))))),
           weight=TRANSCENDENTAL),
    _unary("atan", FLOAT, np.arctan, lambda r: r.div(r.g, r.add(r.square(r.x), 1)),
           weight=TRANSCENDENTAL, bounded=True),
    _unary("sinh", FLOAT, np.sinh, _times("cosh"), weight=TRANSCENDENTAL),
    _unary("cosh", FLOAT, np.cosh, _times("sinh"), weight=TRANSCENDENTAL),
    _unary("tanh", FLOAT, np.tanh, lambda r: r.mul(r.g, r.sub(1, r.square(r.result))),
           weight=TRANSCENDENTAL, bounded=True),
    _unary("asinh", FLOAT, np.arcsinh, lambda r: r.mul(r.g, r.apply("rsqrt", r.add(r.square(r.x), 1))),
           weight=TRANSCENDENTAL),
    _unary(
        "acosh", FLOAT, np.arccosh,
        lambda r: r.mul(r.g, r.mul(r.apply("rsqrt", r.sub(r.x, 1)), r.apply("rsqrt", r.add(r.x, 1)))),
        weight=TRANSCENDENTAL,
    ),
    _unary("atanh", FLOAT, np.arctanh, lambda r: r.div(r.g, r.sub(1, r.square(r.x))), weight=TRANSCENDENTAL),
    _elementwise(
        "erf", 1, FLOAT, _by_dtype(erf), TRANSCENDENTAL,
        partials=(lambda r: r.mul(r.g, r.mul(2 / math.sqrt(math.pi), r.apply("exp", r.neg(r.square(r.x))))),),
        bounded=True,
    ),
    _elementwise(
        "logistic", 1, FLOAT, _by_dtype(logistic), TRANSCENDENTAL,
        partials=(lambda r: r.mul(r.g, r.mul(r.result, r.sub(1, r.result))),),
        bounded=True,
    ),
    _unary("floor", FLOAT, np.floor),
    _unary("ceil", FLOAT, np.ceil),
    _unary("round", FLOAT, np.rint),
    _unary("logical_not", ANY, np.logical_not, result="bool"),
    _unary("bitwise_not", BITS, np.invert),
    _unary("isnan", FLOAT, np.isnan, result="bool"),
    _unary("isinf", FLOAT, np.isinf, result="bool"),
    _unary("isfinite", FLOAT, np.isfinite, result="bool"),
)  # fmt: skip

BINARY = (
    _binary("add", ANY, np.add, lambda r: r.g, lambda r: r.g),
    _binary("sub", NUMBER, np.subtract, lambda r: r.g, lambda r: r.neg(r.g)),
    _binary("mul", ANY, np.multiply, lambda r: r.mul(r.g, r.y), lambda r: r.mul(r.g, r.x)),
    _binary(
        "div", FLOAT, np.true_divide,
        lambda r: r.div(r.g, r.y), lambda r: r.neg(r.mul(r.div(r.g, r.y), r.result)),
    ),
    _elementwise("floordiv", 2, NUMBER, _without_warning(np.floor_divide)),
    _elementwise(
        "mod", 2, NUMBER, _without_warning(np.remainder),
        partials=(lambda r: r.g, lambda r: r.neg(r.mul(r.g, r.apply("floordiv", r.x, r.y)))),
    ),
    _elementwise("pow", 2, NUMBER, _power, TRANSCENDENTAL, partials=(_power_x, _power_y)),
    _binary("maximum", ANY, np.maximum, _chosen("gt", 0), _chosen("gt", 1)),
    _binary("minimum", ANY, np.minimum, _chosen("lt", 0), _chosen("lt", 1)),
    _binary("atan2", FLOAT, np.arctan2, _over(lambda r: r.y), _over(lambda r: r.neg(r.x)), weight=TRANSCENDENTAL),
    _binary("bitwise_and", BITS, np.bitwise_and),
    _binary("bitwise_or", BITS, np.bitwise_or),
    _binary("bitwise_xor", BITS, np.bitwise_xor),
    _binary("shift_left", INTEGER, np.left_shift),
    _binary("shift_right", INTEGER, np.right_shift),
    _binary("logical_and", ANY, np.logical_and, result="bool"),
    _binary("logical_or", ANY, np.logical_or, result="bool"),
    _binary("logical_xor", ANY, np.logical_xor, result="bool"),
    _binary("eq", ANY, np.equal, result="bool"),
    _binary("ne", ANY, np.not_equal, result="bool"),
    _binary("lt", ANY, np.less, result="bool"),
    _binary("le", ANY, np.less_equal, result="bool"),
    _binary("gt", ANY, np.greater, result="bool"),
    _binary("ge", ANY, np.greater_equal, result="bool"),
)  # fmt: skip


def _cast_back(r: Reverse) -> tuple[Edge | None]:
    """Between floating dtypes a cast is the identity, rounded; others are constant."""
    source = r.dtype(r.x)
    return (r.apply("cast", r.g, dtype=source) if dtypes.is_float(source) else None,)


ELEMENTWISE = (
    *UNARY,
    *BINARY,
    Operator(
        name="cast",
        kind="elementwise",
        infer=_infer_cast,
        axes=broadcast_axes,
        cost=per_element(),
        numpy=_numpy_cast,
        gradient=_cast_back,
    ),
    Operator(
        name="where",
        kind="elementwise",
        infer=_infer_where,
        axes=broadcast_axes,
        cost=per_element(),
        numpy=_always(cast(Function, np.where)),
        gradient=elementwise(none, lambda r: r.where(r.x, r.g, 0), lambda r: r.where(r.x, 0, r.g)),
    ),
    # x, once y is there: a dependence, of which the values of y are no part. It orders what is computed again.
    Operator(
        name="after",
        kind="elementwise",
        infer=_infer_after,
        axes=broadcast_axes,
        cost=no_cost,
        numpy=_numpy_after,
        views=True,
        gradient=elementwise(lambda r: r.g, none),
    ),
)
