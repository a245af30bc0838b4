"""Chains of movement in LoopIR: a named value, and what is made of it by operators that only move elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tempo.loop_ir.ir import Compute
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import cut_attrs
from tempo.symbolic import Expr, const

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Moving:
    """A value under a name, and the statements that have made it; their results are `base` with a number."""

    base: str
    name: str
    type: TensorType
    statements: tuple[Compute, ...] = ()

    def at(self, axis: int, index: Expr) -> Moving:
        """The element `index` of an axis, which keeps one position."""
        attrs = cut_attrs(self.type.shape, axis, index, const(1))
        return self._by("slice", attrs["lengths"], **attrs)

    def transposed(self, order: tuple[int, ...]) -> Moving:
        if order == tuple(range(len(order))):
            return self
        return self._by("transpose", tuple(self.type.shape[axis] for axis in order), axes=order)

    def reshaped(self, shape: Shape) -> Moving:
        return self if shape == self.type.shape else self._by("reshape", shape, shape=shape)

    def _by(self, op: str, made: Shape, **attrs: Any) -> Moving:
        name, type = f"{self.base}_{len(self.statements)}", TensorType(made, self.type.dtype)
        scalars = OPERATORS[op].scalars(attrs)
        compute = Compute(name, op, attrs, (self.name,), (self.type,), type, scalars)
        return Moving(self.base, name, type, (*self.statements, compute))
