"""Constant folding: what an operator makes of constants is a constant, where it is small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tempo import dtypes
from tempo.passes.rewrite.driver import Draft, Sweep, Term
from tempo.sdg.call import Array, ArrayValue, StaticType
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Expr

# Indexing may have to raise an error, at the point where it happens; constants are folded already.
_NOT_FOLDED = frozenset({"indexing", "nominal", "random"})
# What only repeats elements says more than the elements do: a scalar fits any shape.
_REPEATS = frozenset({"constant", "copy", "broadcast"})


@dataclass(frozen=True)
class FoldConstants:
    """f(constants) = constant, computed by the operator's NumPy meaning, where the result is small."""

    elements: int

    def __call__(self, draft: Draft, sweep: Sweep) -> Term | None:
        if draft.op in _REPEATS or OPERATORS[draft.op].kind in _NOT_FOLDED:
            return None
        values = [constant(edge, sweep) for edge in draft.operands]
        arrays = [value.array for value in values if value is not None]
        if len(arrays) != len(values) or not self._is_small(draft, arrays):
            return None
        return Term("constant", attrs={"value": ArrayValue(_evaluated(draft, arrays))})

    def _is_small(self, draft: Draft, arrays: list[Array]) -> bool:
        operator = OPERATORS[draft.op]
        needed = (*draft.type.shape, *operator.static(dict(draft.attrs)))
        if not all(size.is_const for size in needed):
            return False
        if any(scalar.symbols() for scalar in operator.scalars(dict(draft.attrs))):
            return False
        elements = int(np.prod([size.as_int() for size in draft.type.shape], dtype=np.int64))
        return max([elements, *(array.size for array in arrays)]) <= self.elements


def constant(edge: Edge, sweep: Sweep) -> ArrayValue | None:
    """The value of the constant that an edge reads, None where it reads none."""
    draft = sweep.view(edge)
    return draft.attr("value") if draft is not None and draft.op == "constant" else None


def _evaluated(draft: Draft, arrays: list[Array]) -> Array:
    operator = OPERATORS[draft.op]
    operands = [StaticType(array.shape, dtypes.from_numpy(array.dtype)) for array in arrays]
    shape = tuple(size.as_int() for size in draft.type.shape)
    call = call_for(draft.op, draft.attrs, operands, StaticType(shape, draft.type.dtype), Expr.as_int)
    scalars = [scalar.evaluate({}) for scalar in operator.scalars(dict(draft.attrs))]
    with np.errstate(all="ignore"):
        found = np.asarray(operator.numpy(call)(*arrays, *scalars))
    return found.astype(dtypes.to_numpy(draft.type.dtype), copy=False).reshape(shape)
