"""Constant folding: what an operator makes of constants is a constant, where it is small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tempo import dtypes
from tempo.passes.rewrite.driver import Sweep, Term
from tempo.sdg.call import Array, ArrayValue, StaticType
from tempo.sdg.graph import Node
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

    def __call__(self, node: Node, sweep: Sweep) -> Term | None:
        if node.op in _REPEATS or OPERATORS[node.op].kind in _NOT_FOLDED:
            return None
        operands = [sweep.view(edge) for edge in node.operands]
        arrays = [operand.attr("value").array for operand in operands if operand is not None and operand.is_constant]
        if len(arrays) != len(operands) or not self._is_small(node, arrays):
            return None
        return Term("constant", attrs={"value": ArrayValue(_evaluated(node, arrays))})

    def _is_small(self, node: Node, arrays: list[Array]) -> bool:
        operator = OPERATORS[node.op]
        needed = (*node.type.shape, *operator.static(node.attributes))
        if not all(size.is_const for size in needed):
            return False
        if any(scalar.symbols() for scalar in operator.scalars(node.attributes)):
            return False
        elements = int(np.prod([size.as_int() for size in node.type.shape], dtype=np.int64))
        return max([elements, *(array.size for array in arrays)]) <= self.elements


def _evaluated(node: Node, arrays: list[Array]) -> Array:
    operator = OPERATORS[node.op]
    operands = [StaticType(array.shape, dtypes.from_numpy(array.dtype)) for array in arrays]
    shape = tuple(size.as_int() for size in node.type.shape)
    call = call_for(node.op, node.attrs, operands, StaticType(shape, node.type.dtype), Expr.as_int)
    scalars = [scalar.evaluate({}) for scalar in operator.scalars(node.attributes)]
    with np.errstate(all="ignore"):
        found = np.asarray(operator.numpy(call)(*arrays, *scalars))
    return found.astype(dtypes.to_numpy(node.type.dtype), copy=False).reshape(shape)
