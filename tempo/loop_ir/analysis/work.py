"""What a program's loops do at sizes: operations, bytes moved, launches, and changes to the host and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.costs import Cost, Costs
from tempo.loop_ir.ir import Block, CallHost, Compute, Evict, Fetch, Loop, LoopProgram, nested
from tempo.sdg.call import StaticType, static_type
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Expr, Symbol


def loops_cost(program: LoopProgram, rates: Costs, sizes: Mapping[Symbol, int]) -> Cost:
    """Of all that is run; a loop whose bounds move with another is taken where that is half-way. Of branches both sides
    count half, as one of them is run."""
    total = _Total(dict(sizes))
    total.block(program.items, 1, program)
    return Cost(rates, total.operations, total.bytes, round(total.launches), round(total.transitions))


@dataclass
class _Total:
    values: dict[Symbol, int]
    operations: float = 0
    bytes: float = 0
    launches: float = 0
    transitions: float = 0

    def block(self, block: Block, times: float, program: LoopProgram) -> None:
        for each in block:
            match each:
                case Compute():
                    self._compute(each, times)
                case CallHost() | Fetch() | Evict():
                    self.transitions += times
                case Loop():
                    lo, hi = self._at(each.lo), self._at(each.hi)
                    outer, self.values[each.var] = self.values.get(each.var), (lo + hi) // 2
                    self.block(each.body, times * max(0, hi - lo), program)
                    self.values.pop(each.var) if outer is None else self.values.update({each.var: outer})
                case _:
                    inner = [side for side in nested(each) if side]
                    for side in inner:
                        self.block(side, times / len(inner), program)
        for segment in program.called(tuple(each for each in block if not nested(each))):
            self.block(segment.body, times, program)

    def _compute(self, compute: Compute, times: float) -> None:
        operands = tuple(static_type(type, self._extent) for type in compute.operand_types)
        result = static_type(compute.type, self._extent)
        call = call_for(compute.op, compute.attrs, operands, result, self._extent)
        self.operations += times * OPERATORS[compute.op].cost(call)
        if not OPERATORS[compute.op].views:
            self.launches += times
            self.bytes += times * sum(map(_bytes, (*operands, result)))

    def _at(self, expr: Expr) -> int:
        return int(expr.evaluate(self.values))

    def _extent(self, expr: Expr) -> int:
        return max(0, self._at(expr))


def _bytes(type: StaticType) -> int:
    return math.prod(type.shape) * dtypes.itemsize(type.dtype)
