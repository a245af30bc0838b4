"""What the rules of reverse mode are made of. The rules themselves stand beside their operators.

A rule is given one application of its operator and the *cotangent* of the result: the derivative of the loss with
respect to it. It gives for every operand that operand's cotangent, in the shape that the operator sees; None where the
operator is constant in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import Attrs
from tempo.sdg.operators.making import Maker
from tempo.symbolic import Expr, const


@dataclass(frozen=True)
class Formula(Maker):
    """One application of an operator, and what can be made of its operands."""

    attrs: Attrs
    operands: tuple[Edge, ...]
    maker: Maker

    @property
    def x(self) -> Edge:
        return self.operands[0]

    @property
    def y(self) -> Edge:
        return self.operands[1]

    def seen(self, edge: Edge) -> TensorType:
        return self.maker.seen(edge)

    def apply(self, op: str, *operands: Edge, **attrs: Any) -> Edge:
        return self.maker.apply(op, *operands, **attrs)

    # Arithmetic; numbers take the dtype of the tensor that they meet.

    def number(self, value: float, like: Edge | None = None) -> Edge:
        return self.constant(value, self.dtype(self.x if like is None else like))

    def _two(self, op: str, a: Edge | float, b: Edge | float) -> Edge:
        left = a if isinstance(a, Edge) else self.number(a, b if isinstance(b, Edge) else None)
        return self.apply(op, left, b if isinstance(b, Edge) else self.number(b, left))

    def add(self, a: Edge | float, b: Edge | float) -> Edge:
        return self._two("add", a, b)

    def sub(self, a: Edge | float, b: Edge | float) -> Edge:
        return self._two("sub", a, b)

    def mul(self, a: Edge | float, b: Edge | float) -> Edge:
        return self._two("mul", a, b)

    def div(self, a: Edge | float, b: Edge | float) -> Edge:
        return self._two("div", a, b)

    def square(self, a: Edge) -> Edge:
        return self.mul(a, a)

    def neg(self, a: Edge) -> Edge:
        return self.apply("neg", a)

    def compare(self, op: str, a: Edge | float, b: Edge | float) -> Edge:
        return self._two(op, a, b)

    def where(self, mask: Edge, a: Edge | float, b: Edge | float) -> Edge:
        left = a if isinstance(a, Edge) else self.number(a, b if isinstance(b, Edge) else None)
        return self.apply("where", mask, left, b if isinstance(b, Edge) else self.number(b, left))

    # Shapes.

    def spread(self, edge: Edge, axes: Sequence[int], shape: Sequence[Expr]) -> Edge:
        """A value that has lost `axes` of `shape`, repeated along them."""
        kept = tuple(const(1) if axis in axes else size for axis, size in enumerate(shape))
        return self.broadcast(self.reshape(edge, kept), shape)

    def summed_to(self, edge: Edge, shape: tuple[Expr, ...]) -> Edge:
        """The transpose of broadcasting `shape` to that of `edge`: sums along the axes that were repeated."""
        given = self.shape(edge)
        if given == shape:
            return edge
        new = len(given) - len(shape)
        repeated = [new + axis for axis, size in enumerate(shape) if size != given[new + axis]]
        return self.reshape(self.sum(edge, (*range(new), *repeated)), shape)


@dataclass(frozen=True)
class Reverse(Formula):
    """An application with its result and the cotangent of that: what rules are made of."""

    result: Edge
    cotangent: Edge

    @property
    def g(self) -> Edge:
        return self.cotangent

    def number(self, value: float, like: Edge | None = None) -> Edge:
        return super().number(value, self.g if like is None else like)


Gradient = Callable[[Reverse], Sequence[Edge | None]]
Partial = Callable[[Reverse], Edge | None]


def elementwise(*partials: Partial) -> Gradient:
    """One partial cotangent per operand, in the shape of the result; summed where the operand was broadcast."""

    def gradient(r: Reverse) -> list[Edge | None]:
        found = [partial(r) for partial in partials]
        return [None if edge is None else _fitted(r, edge, x) for edge, x in zip(found, r.operands)]

    return gradient


def _fitted(r: Reverse, edge: Edge, operand: Edge) -> Edge:
    return r.summed_to(r.broadcast(edge, r.shape(r.result)), r.shape(operand))


def constant(r: Reverse) -> tuple[None, ...]:
    """The result does not change with the operands, or only in jumps."""
    return (None,) * len(r.operands)


def none(r: Reverse) -> None:
    """The partial of an operand that makes no difference."""
    return
