"""Index expressions for many points at once: as tensors, what they are at each point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tempo.sdg.builder import NodeBuilder
from tempo.sdg.call import static_type
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import Expr, Symbol, const, dim, maximum, minimum

I, J = Symbol("i", "dim"), Symbol("j", "dim")
i, j = dim("i"), dim("j")
POINTS = {I: np.array([0, 4, 9], np.int32), J: np.array([11, 6, 0], np.int32)}

EXPRS: dict[str, Expr] = {
    "a sum": i - 2 * j + 3,
    "two extrema and a number": maximum(i, j, 5) - maximum(i + 2, 2 * j, 7) + 3,
    "more than 32 bits hold on the way": maximum(i, j, 5)
    - maximum(i + 2, 2 * j, 7)
    + 3
    + (i + 2**31) // 2**30 * 2**30
    - 2**31,
    "quotients": (i + 2 * j) // 3 + minimum(i, j) % 2,
}


def evaluated(new: NodeBuilder, wanted: Edge) -> Any:
    values: dict[int, Any] = {}
    for node in new.nodes.values():
        types = [static_type(new.seen_type(edge), Expr.as_int) for edge in node.operands]
        call = call_for(node.op, node.attrs, types, static_type(node.type, Expr.as_int), Expr.as_int)
        given = POINTS[I if node.name == "i" else J] if node.is_input else None
        scalars = [expr.evaluate({}) for expr in OPERATORS[node.op].scalars(node.attributes)]
        operands = (values[edge.node] for edge in node.operands)
        values[node.id] = OPERATORS[node.op].numpy(call)(*operands, *scalars) if given is None else given
    return values[wanted.node]


@pytest.mark.parametrize("name", EXPRS)
def test_values_are_those_at_the_points(name: str) -> None:
    new, expr = NodeBuilder(), EXPRS[name]
    type = TensorType((const(3),), "int32")
    along = {symbol: new.declare(Node(-1, "input", (), (type,), name=symbol.name)) for symbol in (I, J)}
    found = Tensors(new, None).values(expr, along)
    np.testing.assert_array_equal(evaluated(new, found), expr.evaluate(POINTS))
