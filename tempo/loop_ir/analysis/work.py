"""What a program's loops do at sizes: operations, bytes moved, launches, and changes to the host and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tempo.costs import Cost, Costs, type_bytes
from tempo.loop_ir.ir import Block, Branch, CallHost, CallSegment, Compute, Evict, Fetch, Loop, LoopProgram, nested
from tempo.sdg.call import static_type
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Condition, Expr, Symbol

MOST_ITERATIONS = 1 << 16
"""That conditions are looked at in."""


def loops_cost(program: LoopProgram, rates: Costs, sizes: Mapping[Symbol, int]) -> Cost:
    """Of all that is run; a loop whose bounds move with another is taken where that is half-way. A side of a branch
    counts as often as its condition says in the innermost loop that it asks about; where that is not known, half."""
    total = _Total(dict(sizes))
    total.block(program.items, 1, program)
    return Cost(rates, total.operations, total.bytes, round(total.launches), round(total.transitions))


@dataclass
class _Total:
    values: dict[Symbol, int]
    points: dict[Symbol, tuple[int, int]] = field(default_factory=dict)  # of the loops around, outermost first
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
                    around = self.values, self.points
                    self.values, self.points = (
                        {**self.values, each.var: (lo + hi) // 2},
                        {**self.points, each.var: (lo, hi)},
                    )
                    self.block(each.body, times * max(0, hi - lo), program)
                    self.values, self.points = around
                case Branch():
                    share = self._share(each.condition)
                    self.block(each.then, times * share, program)
                    self.block(each.otherwise, times * (1 - share), program)
                case CallSegment(segment):
                    self.block(program.segments[segment].body, times, program)
                case _:
                    for inner in nested(each):
                        self.block(inner, times, program)

    def _compute(self, compute: Compute, times: float) -> None:
        operands = tuple(static_type(type, self._extent) for type in compute.operand_types)
        result = static_type(compute.type, self._extent)
        call = call_for(compute.op, compute.attrs, operands, result, self._extent)
        self.operations += times * OPERATORS[compute.op].cost(call)
        if not OPERATORS[compute.op].views:
            self.launches += times
            self.bytes += times * sum(map(type_bytes, (*operands, result)))

    def _share(self, condition: Condition) -> float:
        """Of how many iterations it holds in."""
        asked = [var for var in self.points if var in condition.symbols()]
        if not condition.symbols() <= self.values.keys():
            return 0.5
        if not asked:
            return float(bool(condition.evaluate(self.values)))
        lo, hi = self.points[asked[-1]]
        if hi - lo > MOST_ITERATIONS:
            points = np.linspace(lo, hi - 1, MOST_ITERATIONS).astype(int)
        else:
            points = np.arange(lo, max(hi, lo + 1))
        return float(np.mean(condition.evaluate({**self.values, asked[-1]: points})))

    def _at(self, expr: Expr) -> int:
        return int(expr.evaluate(self.values))

    def _extent(self, expr: Expr) -> int:
        return max(0, self._at(expr))
