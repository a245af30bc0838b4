"""Elementwise operators: operands of one dtype, shapes that broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tempo import dtypes
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import special
from tempo.sdg.operators.operator import Attrs, Builder, Function, Lifted, Operator
from tempo.sdg.operators.shapes import (
    all_parallel,
    broadcast_shapes,
    check_count,
    check_kind,
    check_same_dtype,
    per_element,
)
from tempo.symbolic import Expr

Infer = Callable[[Attrs, tuple[TensorType, ...]], TensorType]

FLOAT = ("float",)
NUMBER = ("float", "int", "uint")
INTEGER = ("int", "uint")
BITS = ("bool", "int", "uint")
ANY = ("float", "int", "uint", "bool")
TRANSCENDENTAL = 10.0  # operations that one exp, log, sin ... counts for


def _infer(op: str, count: int, kinds: tuple[str, ...], result: str | None) -> Infer:
    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        check_count(op, operands, count)
        dtype = check_same_dtype(op, operands)
        check_kind(op, dtype, kinds)
        return TensorType(broadcast_shapes([operand.shape for operand in operands], op), result or dtype)

    return infer


def _lift(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    return Lifted(attrs)


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
    return np.power if dtypes.kind(call.result.dtype) in ("float", "uint") else special.integer_power


def _elementwise(
    name: str, count: int, kinds: tuple[str, ...], numpy: Builder, weight: float = 1.0, result: str | None = None
) -> Operator:
    return Operator(
        name=name,
        kind="elementwise",
        infer=_infer(name, count, kinds, result),
        roles=all_parallel,
        cost=per_element(weight),
        numpy=numpy,
        lift=_lift,
    )


def _unary(name: str, kinds: tuple[str, ...], function: Function, weight: float = 1.0, **other: Any) -> Operator:
    return _elementwise(name, 1, kinds, _always(function), weight, **other)


def _binary(name: str, kinds: tuple[str, ...], function: Function, weight: float = 1.0, **other: Any) -> Operator:
    return _elementwise(name, 2, kinds, _always(function), weight, **other)


def _infer_cast(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("cast", operands, 1)
    dtypes.to_numpy(attrs["dtype"])
    return TensorType(operands[0].shape, attrs["dtype"])


def _infer_where(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("where", operands, 3)
    check_kind("where on a mask", operands[0].dtype, ("bool",))
    dtype = check_same_dtype("where", operands[1:])
    return TensorType(broadcast_shapes([operand.shape for operand in operands], "where"), dtype)


def _numpy_cast(call: Call) -> Function:
    source, target = call.operands[0].dtype, call.result.dtype
    if dtypes.is_float(source) and dtypes.is_integer(target):
        return special.saturating_cast(target)
    dtype = call.result.numpy_dtype
    return lambda x: x.astype(dtype)


UNARY = (
    _unary("neg", NUMBER, np.negative),
    _unary("abs", NUMBER, np.absolute),
    _unary("sign", NUMBER, np.sign),
    _unary("exp", FLOAT, np.exp, TRANSCENDENTAL),
    _unary("expm1", FLOAT, np.expm1, TRANSCENDENTAL),
    _unary("log", FLOAT, np.log, TRANSCENDENTAL),
    _unary("log1p", FLOAT, np.log1p, TRANSCENDENTAL),
    _unary("sqrt", FLOAT, np.sqrt),
    _elementwise("rsqrt", 1, FLOAT, _by_dtype(special.rsqrt), 2.0),
    _unary("sin", FLOAT, np.sin, TRANSCENDENTAL),
    _unary("cos", FLOAT, np.cos, TRANSCENDENTAL),
    _unary("tan", FLOAT, np.tan, TRANSCENDENTAL),
    _unary("asin", FLOAT, np.arcsin, TRANSCENDENTAL),
    _unary("acos", FLOAT, np.arccos, TRANSCENDENTAL),
    _unary("atan", FLOAT, np.arctan, TRANSCENDENTAL),
    _unary("sinh", FLOAT, np.sinh, TRANSCENDENTAL),
    _unary("cosh", FLOAT, np.cosh, TRANSCENDENTAL),
    _unary("tanh", FLOAT, np.tanh, TRANSCENDENTAL),
    _unary("asinh", FLOAT, np.arcsinh, TRANSCENDENTAL),
    _unary("acosh", FLOAT, np.arccosh, TRANSCENDENTAL),
    _unary("atanh", FLOAT, np.arctanh, TRANSCENDENTAL),
    _elementwise("erf", 1, FLOAT, _by_dtype(special.erf), TRANSCENDENTAL),
    _elementwise("logistic", 1, FLOAT, _by_dtype(special.logistic), TRANSCENDENTAL),
    _unary("floor", FLOAT, np.floor),
    _unary("ceil", FLOAT, np.ceil),
    _unary("round", FLOAT, np.rint),
    _unary("logical_not", ANY, np.logical_not, result="bool"),
    _unary("bitwise_not", BITS, np.invert),
    _unary("isnan", FLOAT, np.isnan, result="bool"),
    _unary("isinf", FLOAT, np.isinf, result="bool"),
    _unary("isfinite", FLOAT, np.isfinite, result="bool"),
)

BINARY = (
    _binary("add", ANY, np.add),
    _binary("sub", NUMBER, np.subtract),
    _binary("mul", ANY, np.multiply),
    _binary("div", FLOAT, np.true_divide),
    _elementwise("floordiv", 2, NUMBER, _without_warning(np.floor_divide)),
    _elementwise("mod", 2, NUMBER, _without_warning(np.remainder)),
    _elementwise("pow", 2, NUMBER, _power, TRANSCENDENTAL),
    _binary("maximum", ANY, np.maximum),
    _binary("minimum", ANY, np.minimum),
    _binary("atan2", FLOAT, np.arctan2, TRANSCENDENTAL),
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
)

CAST = Operator(
    name="cast",
    kind="elementwise",
    infer=_infer_cast,
    roles=all_parallel,
    cost=per_element(),
    numpy=_numpy_cast,
    lift=_lift,
)

WHERE = Operator(
    name="where",
    kind="elementwise",
    infer=_infer_where,
    roles=all_parallel,
    cost=per_element(),
    numpy=_always(cast(Function, np.where)),
    lift=_lift,
)

ELEMENTWISE = (*UNARY, *BINARY, CAST, WHERE)
