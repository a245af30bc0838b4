"""Operators without operands: constants, iotas, and the values of index expressions and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.sdg.call import ArrayValue, Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import SIZE, Attrs, Factor, Factors, Role, Shape, broadcast_axes
from tempo.sdg.operators.operator import Function, Operator
from tempo.sdg.operators.shapes import Infer, check_axes, check_count, no_cost, shape_of

_NO_OPERAND = "it has no operand; the pass makes a lifted dim an axis of an iota where its expression varies"


def _always_same(array: Any) -> Function:
    """The same read-only array at every call."""
    array.flags.writeable = False
    return lambda *scalars: array


# constant {value: ArrayValue}


def _infer_constant(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("constant", operands, 0)
    value: ArrayValue = attrs["value"]
    return TensorType(shape_of(value.shape), value.dtype)


def _numpy_constant(call: Call) -> Function:
    return _always_same(call.attrs["value"].array)


# iota {shape, axis, dtype}: the position along `axis`


def _infer_iota(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("iota", operands, 0)
    check_axes("iota", (attrs["axis"],), len(attrs["shape"]))
    dtypes.to_numpy(attrs["dtype"])
    return TensorType(shape_of(attrs["shape"]), attrs["dtype"])


def _counted(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Positions count along its axis."""
    return tuple(Factor(Role.PARALLEL, (), place, ordered=place == attrs["axis"]) for place in range(len(result)))


def _numpy_iota(call: Call) -> Function:
    shape, axis = call.result.shape, call.attrs["axis"]
    positions = np.arange(shape[axis]).astype(call.result.numpy_dtype)
    aligned = positions.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return _always_same(np.array(np.broadcast_to(aligned, shape)))


# index_value {expr}: int32; condition_value {condition}: bool


def _scalar(op: str, dtype: str) -> Infer:
    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        check_count(op, operands, 0)
        return TensorType((), dtype)

    return infer


def _wrapped(value: int) -> np.int32:
    """Modulo 2**32, as all arithmetic of int32 is: a sum that it is part of may fit again."""
    try:
        return np.int32(value)
    except OverflowError:
        return np.uint32(value & 0xFFFFFFFF).view(np.int32)


CREATION = (
    Operator(
        name="constant",
        kind="creation",
        infer=_infer_constant,
        axes=broadcast_axes,
        cost=no_cost,
        numpy=_numpy_constant,
        lift_note=_NO_OPERAND,
    ),
    Operator(
        name="iota",
        kind="creation",
        infer=_infer_iota,
        axes=_counted,
        cost=no_cost,
        numpy=_numpy_iota,
        lift_note=_NO_OPERAND,
        static_attrs=("shape",),
        entries={"shape": SIZE},
    ),
    Operator(
        name="index_value",
        kind="creation",
        infer=_scalar("index_value", "int32"),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=lambda call: _wrapped,
        lift_note=_NO_OPERAND,
        scalar_attrs=("expr",),
    ),
    Operator(
        name="condition_value",
        kind="creation",
        infer=_scalar("condition_value", "bool"),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=lambda call: np.bool_,
        lift_note=_NO_OPERAND,
        scalar_attrs=("condition",),
    ),
)
