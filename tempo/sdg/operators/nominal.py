"""Nominal operators: each declaration is its own node, and the runtime, not a function on arrays, makes its value."""

from __future__ import annotations

from tempo.errors import InternalError
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators.operator import Attrs, Function, Operator
from tempo.sdg.operators.shapes import all_opaque, no_cost


def _nominal(name: str, made_by: str) -> Operator:
    def infer(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
        raise InternalError(f"the type of {name} is declared with it, not inferred")

    def numpy(call: Call) -> Function:
        raise InternalError(f"{name} is no function on arrays: {made_by}")

    return Operator(
        name=name,
        kind="nominal",
        infer=infer,
        roles=all_opaque,
        cost=no_cost,
        numpy=numpy,
        lift_note=f"{made_by}; what lifting does to it is a matter of its layout or its cases",
    )


NOMINAL = (
    _nominal("input", "the caller gives its values"),
    _nominal("merge", "its value is that of the first case that holds"),
    _nominal("host_call", "a function of the host makes its results"),
    _nominal("sink", "a function of the host takes its operands"),
)
