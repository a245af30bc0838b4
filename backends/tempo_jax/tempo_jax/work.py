"""How much statements do: elements moved, and arithmetic. Conditionals, selections and loops are chosen by it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tempo.backends.loop_ir import Buffer, Compute, Loop, Read, Statement, WindowIndex, Write, nested, walk
from tempo.backends.loops import iterations
from tempo.backends.operators import OPERATORS, call_for, static_type
from tempo.symbolic import Expr, Symbol

Sizes = Mapping[Symbol, int]


def operators(statements: tuple[Statement, ...]) -> int:
    """How many there are in the text."""
    return sum(isinstance(each, Compute) for each in walk(statements))


def work(statements: tuple[Statement, ...], buffers: Mapping[int, Buffer], sizes: Sizes, element: float = 1) -> float:
    """Elements read and written (each as much as `element` operations) and operations, in all iterations of loops whose
    bounds are known; of branches, both sides."""

    def resolve(extent: Expr) -> int:
        return max(int(extent.evaluate(sizes)), 0)

    def elements(statement: Read | Write) -> int:
        if isinstance(statement, Write):
            windows = [extent for extent in statement.extents if extent is not None]
        else:
            windows = [entry.extent for entry in statement.index if isinstance(entry, WindowIndex)]
        return math.prod(resolve(extent) for extent in (*windows, *buffers[statement.buffer].shape))

    def cost(statement: Compute) -> float:
        operands = tuple(static_type(type, resolve) for type in statement.operand_types)
        call = call_for(statement.op, statement.attrs, operands, static_type(statement.type, resolve), resolve)
        return OPERATORS[statement.op].cost(call)

    def total(statement: Statement) -> float:
        if isinstance(statement, Read | Write):
            return element * elements(statement)
        if isinstance(statement, Compute):
            return cost(statement)
        inside = sum(total(each) for block in nested(statement) for each in block)
        return inside * iterations(statement, sizes) if isinstance(statement, Loop) else inside

    return sum(total(each) for each in statements)
