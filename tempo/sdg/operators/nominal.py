"""Nominal operators: each declaration is its own node, and the runtime, not a function on arrays, makes its value.

Functions of a backend's own arrays are such, too: what `tp.backend_call` declares, and what tables need for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import BackendCallError, InternalError, Location
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import Attrs, no_axes_known
from tempo.sdg.operators.operator import Function, Operator
from tempo.sdg.operators.shapes import no_cost


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


def _declared(name: str) -> Callable[[Attrs, tuple[TensorType, ...]], TensorType]:
    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        raise InternalError(f"the type of {name} is declared with it, not inferred")

    return infer


def _nominal(name: str, made_by: str) -> Operator:
    def numpy(call: Call) -> Function:
        raise InternalError(f"{name} is no function on arrays: {made_by}")

    return Operator(
        name=name,
        kind="nominal",
        infer=_declared(name),
        axes=no_axes_known,
        cost=no_cost,
        numpy=numpy,
        lift_note=f"{made_by}; what lifting does to it is a matter of its layout or its cases",
        gradient_note="what derivatives go through are the cases of a merge; the others are constants",
    )


def _placeholder(name: str, stands_for: str) -> Operator:
    """Of a gradient; none is left when gradients are expanded (`tempo.autodiff`), before anything runs."""

    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        if not operands:
            raise InternalError(f"the type of {name} is declared with it, not inferred")
        return operands[0]

    def numpy(call: Call) -> Function:
        raise InternalError(f"{name} is no function on arrays: gradients are expanded first")

    return Operator(
        name=name,
        kind="nominal",
        infer=infer,
        axes=no_axes_known,
        cost=no_cost,
        numpy=numpy,
        lift_note=stands_for,
        gradient_note=stands_for,
    )


# gradient {loss: an edge, over: its dims, wrt: (node, result)}; stop_gradient (x); custom_gradient {cotangent: a node,
# gradients: an edge, or None, per further operand} (value, *operands); cotangent: what such gradients are functions of

PLACEHOLDERS = (
    _placeholder("gradient", "it stands for the gradient of a loss"),
    _placeholder("stop_gradient", "it is its operand, through which no derivative goes"),
    _placeholder("custom_gradient", "it is its first operand, and its own rule says what the others get"),
    _placeholder("cotangent", "it stands for the cotangent of a value with a gradient of its own"),
)

_IN_LOOPS = "a function of the backend is opaque; give the dim as batched= where it takes all points at once"

# backend_call {fn: a BackendFunction, backend}: a tuple of what the function returns; in LoopIR alone it is taken apart
# by backend_result {name, at, location} (that tuple).
_BACKEND = tuple(
    Operator(
        name=name,
        kind="nominal",
        infer=_declared(name),
        axes=no_axes_known,
        cost=no_cost,
        numpy=numpy,
        lift_note=_IN_LOOPS,
        views=True,
        gradient_note="nothing is known of a function of the backend: wrap it in tp.custom_gradient, or its results in "
        "tp.stop_gradient",
    )
    for name, numpy in (("backend_call", function_of), ("backend_result", result_of(np.asarray)))
)

NOMINAL = (
    *_BACKEND,
    _nominal("input", "the caller gives its values"),
    _nominal("merge", "its value is that of the first case that holds"),
    _nominal("host_call", "a function of the host makes its results"),
    _nominal("sink", "a function of the host takes its operands"),
)
