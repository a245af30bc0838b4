"""Random bits: a function of seed, declaration and coordinates, never of an order or of a size.

random_bits {declaration, coordinates, shape, bits}: the operand is the seed; each coordinate is an `Expr`, the same for
the whole result, or an int, an axis of the result along which the coordinate is the position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo.errors import DTypeError, ShapeError
from tempo.sdg import threefry
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import SIZE, Attrs, no_axes_known
from tempo.sdg.operators.operator import Function, Operator
from tempo.sdg.operators.shapes import check_axes, check_count, shape_of, show

_WORD = 0xFFFFFFFF
_WIDTHS = (8, 16, 32, 64)
_OPERATIONS = 100.0  # of one Threefry block


def _infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
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


def _numpy(call: Call) -> Function:
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


def _cost(call: Call) -> float:
    return _OPERATIONS * call.result.elements


RANDOM_BITS = Operator(
    name="random_bits",
    kind="random",
    infer=_infer,
    axes=no_axes_known,
    cost=_cost,
    numpy=_numpy,
    lift_note="the pass makes the coordinate of the lifted dim an axis of the result",
    scalar_attrs=("coordinates",),
    static_attrs=("shape",),
    entries={"shape": SIZE},
)
