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
from tempo.sdg.operators.axes import Attrs, no_axes_known, no_cost
from tempo.sdg.operators.operator import Builder, Function, Operator


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

NOMINAL = (
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
