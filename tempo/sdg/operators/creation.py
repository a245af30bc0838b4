"""Operators that make values: constants, iotas, the values of index expressions and conditions, random bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.sdg import threefry
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import (
    SIZE,
    Attrs,
    Factor,
    Factors,
    Role,
    Shape,
    broadcast_axes,
    check_axes,
    check_count,
    created,
    no_axes_known,
    no_cost,
    per_element,
    shape_of,
    show,
)
from tempo.sdg.operators.operator import Function, Operator

_NO_OPERAND = "it has no operand; the pass makes a lifted dim an axis of an iota where its expression varies"


def _always_same(array: Any) -> Function:
    """The same read-only array at every call."""
    array.flags.writeable = False
    return lambda *scalars: array


# constant {value: ArrayValue}


def _numpy_constant(call: Call) -> Function:
    return _always_same(call.attrs["value"].array)


# iota {shape, axis, dtype}: the position along `axis`


def _iota_type(attrs: Attrs) -> TensorType:
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


def _wrapped(value: int) -> np.int32:
    """Modulo 2**32, as all arithmetic of int32 is: a sum that it is part of may fit again."""
    try:
        return np.int32(value)
    except OverflowError:
        return np.uint32(value & 0xFFFFFFFF).view(np.int32)


# random_bits {declaration, coordinates, shape, bits}: a function of seed, declaration, coordinates, never of an order
# or of a size. The operand is the seed; each coordinate is an `Expr`, the same for the whole result, or an int, an axis
# of the result along which the coordinate is the position.

_WORD = 0xFFFFFFFF
_WIDTHS = (8, 16, 32, 64)
_OPERATIONS = 100.0  # of one Threefry block


def _infer_bits(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    check_count("random_bits", operands, 1)
    seed, shape, bits = operands[0], shape_of(attrs["shape"]), attrs["bits"]
    if seed.shape != () or seed.dtype != "uint32":
        raise DTypeError(f"random_bits: the seed is one uint32, not {seed.dtype}{show(seed.shape)}")
    if bits not in _WIDTHS:
        raise DTypeError(f"random_bits: {bits} bits are none of {_WIDTHS}")
    axes = [coordinate for coordinate in attrs["coordinates"] if isinstance(coordinate, int)]
    check_axes("random_bits", axes, len(shape))
    if len(axes) != len(shape):
        raise ShapeError(f"random_bits: not every axis of {show(shape)} is a coordinate, so elements would repeat")
    return TensorType(shape, f"uint{bits}")


def _numpy_bits(call: Call) -> Function:
    shape, bits, dtype = call.result.shape, call.attrs["bits"], call.result.numpy_dtype
    declaration = int(call.attrs["declaration"]) & _WORD
    positions = [_positions(coordinate, shape) for coordinate in call.attrs["coordinates"]]

    def draw(seed: Any, *scalars: int) -> Any:
        given = iter(scalars)
        coordinates = [int(next(given)) & _WORD if axis is None else axis for axis in positions]
        first, second = threefry.fold((int(seed) & _WORD, declaration), coordinates)
        return _join(first, second, bits).astype(dtype, copy=False)

    return draw


def _positions(coordinate: Any, shape: tuple[int, ...]) -> Any:
    """The positions along the axis that the coordinate names, aligned with the result; None for a run-time scalar."""
    if not isinstance(coordinate, int):
        return None
    aligned = [-1 if axis == coordinate else 1 for axis in range(len(shape))]
    return np.arange(shape[coordinate], dtype=np.uint32).reshape(aligned)


def _join(first: Any, second: Any, bits: int) -> Any:
    """64 bits are both words, the first one high; fewer are the low bits of the first word."""
    if bits < 64:
        return np.asarray(first, np.uint32)
    joined = np.left_shift(first, np.uint64(32), dtype=np.uint64)
    joined |= second
    return joined


CREATION = (
    Operator(
        name="constant",
        kind="creation",
        infer=created("constant", lambda attrs: TensorType(shape_of(attrs["value"].shape), attrs["value"].dtype)),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=_numpy_constant,
        lift_note=_NO_OPERAND,
    ),
    Operator(
        name="iota",
        kind="creation",
        infer=created("iota", _iota_type),
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
        infer=created("index_value", lambda attrs: TensorType((), "int32")),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=lambda call: _wrapped,
        lift_note=_NO_OPERAND,
        scalar_attrs=("expr",),
    ),
    Operator(
        name="condition_value",
        kind="creation",
        infer=created("condition_value", lambda attrs: TensorType((), "bool")),
        axes=broadcast_axes,
        cost=no_cost,
        numpy=lambda call: np.bool_,
        lift_note=_NO_OPERAND,
        scalar_attrs=("condition",),
    ),
    Operator(
        name="random_bits",
        kind="random",
        infer=_infer_bits,
        axes=no_axes_known,
        cost=per_element(_OPERATIONS),
        numpy=_numpy_bits,
        lift_note="the pass makes the coordinate of the lifted dim an axis of the result",
        scalar_attrs=("coordinates",),
        static_attrs=("shape",),
        entries={"shape": SIZE},
    ),
)
