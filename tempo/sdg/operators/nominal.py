"""Nominal operators: each declaration is its own node, and the runtime, not a function on arrays, makes its value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tempo.errors import InternalError
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.axes import Attrs, no_axes_known
from tempo.sdg.operators.backend_function import function_of, result_of
from tempo.sdg.operators.operator import Function, Operator
from tempo.sdg.operators.shapes import no_cost


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
