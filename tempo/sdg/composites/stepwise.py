"""What a composite means: its decomposition, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tempo.sdg.call import Call, static_type
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators.gradients import Formula
from tempo.sdg.operators.operator import Builder, Function
from tempo.sdg.operators.shapes import shape_of
from tempo.symbolic import Expr


def stepwise(decompose: Callable[[Formula], Edge]) -> Builder:
    """The meaning of a composite: its decomposition, run step by step on arrays; scalars are handed on to the steps."""

    def builder(call: Call) -> Function:
        # The table holds composites, which are made of the others.
        from tempo.sdg.builder import NodeBuilder
        from tempo.sdg.operators.table import OPERATORS, call_for
        from tempo.sdg.rewriter import Tensors

        made, scalars, steps = NodeBuilder(), OPERATORS[call.op].scalars(call.attrs), []
        types = [TensorType(shape_of(each.shape), each.dtype) for each in call.operands]
        operands = tuple(made.declare(Node(-1, "input", (), (type,))) for type in types)
        result = decompose(Formula(call.attrs, operands, Tensors(made, None))).node
        for node in list(made.nodes.values())[len(operands) :]:
            given = [static_type(made.seen_type(edge), Expr.as_int) for edge in node.operands]
            step = call_for(node.op, node.attrs, given, static_type(node.type, Expr.as_int), Expr.as_int)
            steps.append((node, OPERATORS[node.op].numpy(step), OPERATORS[node.op].scalars(step.attrs)))

        def run(*given: Any) -> Any:
            values = dict(enumerate(given[: len(operands)]))
            now = dict(zip(scalars, given[len(operands) :], strict=True))
            for node, function, own in steps:
                values[node.id] = function(*(values[edge.node] for edge in node.operands), *(now[each] for each in own))
            return values[result]

        return run

    return builder
