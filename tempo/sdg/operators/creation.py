"""Operators that make values: constants, iotas, the values of index expressions and conditions, random bits.

And nominal ones, whose values the runtime makes.

Each declaration of a nominal operator is its own node. Functions of a backend's own arrays are such, too: what
`tp.backend_call` declares, and what tables need for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import BackendCallError, DTypeError, InternalError, Location, ShapeError
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
from tempo.sdg.operators.operator import Builder, Function, Operator

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
    """It is made before anything runs, so also where nothing does: there an extent may be below zero."""
    shape, axis = [max(0, extent) for extent in call.result.shape], call.attrs["axis"]
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
# of the result along which the coordinate is the position. `starts`: at which position each axis begins, of a part of a
# draw; `dims`: which dims became axes, the first axis first.

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
    starts = call.attrs.get("starts", (0,) * len(shape))
    positions = [_positions(coordinate, shape, starts) for coordinate in call.attrs["coordinates"]]

    def draw(seed: Any, *scalars: int) -> Any:
        given = iter(scalars)
        coordinates = [int(next(given)) & _WORD if axis is None else axis for axis in positions]
        first, second = threefry.fold((int(seed) & _WORD, declaration), coordinates)
        return _join(first, second, bits).astype(dtype, copy=False)

    return draw


def _positions(coordinate: Any, shape: tuple[int, ...], starts: Sequence[int]) -> Any:
    """The positions along the axis that the coordinate names, aligned with the result; None for a run-time scalar."""
    if not isinstance(coordinate, int):
        return None
    aligned = [-1 if axis == coordinate else 1 for axis in range(len(shape))]
    start = starts[coordinate]
    return np.arange(start, start + shape[coordinate], dtype=np.uint32).reshape(aligned)


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


# Nominal operators.


@dataclass(frozen=True, eq=False)
class BackendFunction:
    """A user's function, called with the backend's arrays (traced ones, where the backend traces its loops).

    It gives a tuple of `results` values. Raises `BackendCallError`, chained to what the function raised.
    """

    fn: Callable[..., Any]
    name: str
    results: int
    location: Location | None = field(default=None, repr=False)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        try:
            returned = self.fn(*arrays)
        except Exception as error:
            message = f"the backend call {self.name} failed: {type(error).__name__}: {error}"
            raise BackendCallError(message, location=self.location) from error
        values = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if returned is None or len(values) != self.results:
            what = "None" if returned is None else f"{len(values)} result{'s' * (len(values) != 1)}"
            raise BackendCallError(
                f"the backend call {self.name} returned {what}, declared: {self.results}",
                location=self.location,
                hint="return one array per entry of out=: an array, or a tuple of arrays",
            )
        return values


def function_of(call: Call) -> Callable[..., tuple[Any, ...]]:
    """The builder of `backend_call`: a function of the backend's arrays to a tuple of what the user's returned."""
    function: BackendFunction = call.attrs["fn"]
    return function


def result_of(converted: Callable[..., Any]) -> Callable[[Call], Callable[[tuple[Any, ...]], Any]]:
    """The builder of `backend_result`: one of these values, held to what was declared.

    `converted(value)` is the backend's array of a value, `converted(value, dtype)` the same cast to a NumPy dtype.
    """

    def build(call: Call) -> Callable[[tuple[Any, ...]], Any]:
        function, at, declared = call.attrs["fn"], call.attrs["at"], call.result

        def pick(values: tuple[Any, ...]) -> Any:
            array = converted(values[at])
            found = str(array.dtype).removeprefix("torch.")
            if tuple(array.shape) != declared.shape or not _fits(found, declared.dtype, values[at]):
                raise BackendCallError(
                    f"result {at} of the backend call {function.name} is {found}{list(array.shape)}, "
                    f"declared is {declared}",
                    location=function.location,
                    hint="correct out=, or what the function returns",
                )
            return array if found == declared.dtype else converted(values[at], declared.numpy_dtype)

        return pick

    return build


def _fits(found: str, declared: str, value: Any) -> bool:
    """Values are cast within a kind; Python's numbers up to floats."""
    if found == declared:
        return True
    weak = not hasattr(value, "dtype")
    return found in dtypes.DTYPES and (dtypes.can_cast(found, declared) if weak else dtypes.same_kind(found, declared))


def _nominal(
    name: str, made_by: str, lift_note: str, gradient_note: str, numpy: Builder | None = None, is_operand: bool = False
) -> Operator:
    """`is_operand`: it is its first operand, where it has one."""

    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        if is_operand and operands:
            return operands[0]
        raise InternalError(f"the type of {name} is declared with it, not inferred")

    def none(call: Call) -> Function:
        raise InternalError(f"{name} is no function on arrays: {made_by}")

    return Operator(
        name=name,
        kind="nominal",
        infer=infer,
        axes=no_axes_known,
        cost=no_cost,
        numpy=numpy or none,
        lift_note=lift_note,
        views=numpy is not None,
        gradient_note=gradient_note,
    )


# Placeholders of gradients; none is left when gradients are expanded (`tempo.autodiff`), before anything runs.
# gradient {loss: an edge, over: its dims, wrt: (node, result)}; stop_gradient (x); custom_gradient {cotangent: a node,
# gradients: an edge, or None, per further operand} (value, *operands); cotangent: what such gradients are functions of

PLACEHOLDERS = tuple(
    _nominal(name, "gradients are expanded first", stands_for, stands_for, is_operand=True)
    for name, stands_for in (
        ("gradient", "it stands for the gradient of a loss"),
        ("stop_gradient", "it is its operand, through which no derivative goes"),
        ("custom_gradient", "it is its first operand, and its own rule says what the others get"),
        ("cotangent", "it stands for the cotangent of a value with a gradient of its own"),
    )
)

_IN_LOOPS = "a function of the backend is opaque; give the dim as batched= where it takes all points at once"
_OPAQUE = (
    "nothing is known of a function of the backend: wrap it in tp.custom_gradient, or its results in tp.stop_gradient"
)

# backend_call {fn: a BackendFunction, backend}: a tuple of what the function returns; in LoopIR alone it is taken apart
# by backend_result {name, at, location} (that tuple).

# In programs of parts alone (`tempo.placement.partition`): all_reduce {over}, the sum of what the devices along an axis
# of the mesh have; all_gather {over, axis}, what they have, one behind the other along an axis; exchange {over, axis,
# distance}, a shift of all that they have.

NOMINAL = (
    *(
        _nominal(name, "the devices of a mesh make it together", "it is made when all is lifted", "it has none yet")
        for name in ("all_reduce", "all_gather", "exchange")
    ),
    _nominal("backend_call", "", _IN_LOOPS, _OPAQUE, function_of),
    _nominal("backend_result", "", _IN_LOOPS, _OPAQUE, result_of(np.asarray)),
    *(
        _nominal(
            name,
            made_by,
            f"{made_by}; what lifting does to it is a matter of its layout or its cases",
            "what derivatives go through are the cases of a merge; the others are constants",
        )
        for name, made_by in (
            ("input", "the caller gives its values"),
            ("merge", "its value is that of the first case that holds"),
            ("host_call", "a function of the host makes its results"),
            ("sink", "a function of the host takes its operands"),
        )
    ),
)
