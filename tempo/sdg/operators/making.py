"""Making nodes: what rules of operators and passes share, and what the rules of reverse mode are made of.

The rules themselves stand beside their operators. A rule of reverse mode is given one application of its operator and
the *cotangent* of the result: the derivative of the loss with respect to it. It gives for every operand that operand's
cotangent, in the shape that the operator sees; None where the operator is constant in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import Attrs, without
from tempo.symbolic import Expr, as_expr, const

Axes = Sequence[int]
INDEX_DTYPE = "int32"


class Maker(ABC):
    """Makes nodes; where nothing would move, the edge is what it was."""

    @abstractmethod
    def apply(self, op: str, *operands: Edge, **attrs: Any) -> Edge: ...

    @abstractmethod
    def seen(self, edge: Edge) -> TensorType: ...

    def shape(self, edge: Edge) -> tuple[Expr, ...]:
        return self.seen(edge).shape

    def rank(self, edge: Edge) -> int:
        return len(self.shape(edge))

    def dtype(self, edge: Edge) -> str:
        return self.seen(edge).dtype

    def constant(self, value: float, dtype: str) -> Edge:
        return self.apply("constant", value=ArrayValue(np.asarray(value, dtypes.to_numpy(dtype))))

    def zeros(self, type: TensorType) -> Edge:
        return self.broadcast(self.constant(0, type.dtype), type.shape)

    def cast(self, edge: Edge, dtype: str) -> Edge:
        return edge if self.dtype(edge) == dtype else self.apply("cast", edge, dtype=dtype)

    def sum(self, edge: Edge, axes: Iterable[int]) -> Edge:
        chosen = tuple(axes)
        return self.apply("reduce_sum", edge, axes=chosen) if chosen else edge

    def dot(self, lhs: Edge, rhs: Edge, contract: tuple[Axes, Axes], batch: tuple[Axes, Axes]) -> Edge:
        """The axes of the result are the batch, then the free ones of lhs, then those of rhs."""
        sides = {"lhs_contract": contract[0], "rhs_contract": contract[1], "lhs_batch": batch[0], "rhs_batch": batch[1]}
        return self.apply("dot", lhs, rhs, **{name: tuple(axes) for name, axes in sides.items()})

    def reshape(self, edge: Edge, shape: Iterable[Expr | int]) -> Edge:
        wanted = tuple(as_expr(size) for size in shape)
        return edge if wanted == self.shape(edge) else self.apply("reshape", edge, shape=wanted)

    def broadcast(self, edge: Edge, shape: Iterable[Expr | int]) -> Edge:
        wanted = tuple(as_expr(size) for size in shape)
        return edge if wanted == self.shape(edge) else self.apply("broadcast", edge, shape=wanted)

    def transpose(self, edge: Edge, axes: Sequence[int]) -> Edge:
        return edge if tuple(axes) == tuple(range(len(axes))) else self.apply("transpose", edge, axes=tuple(axes))

    def cut(self, edge: Edge, axis: int, start: Expr, length: Expr) -> Edge:
        """`length` positions of one axis, from `start` on."""
        shape = self.shape(edge)
        if start == const(0) and length == shape[axis]:
            return edge
        return self.apply("slice", edge, **cut_attrs(shape, axis, start, length))

    def at_most(self, index: Edge, last: Expr) -> Edge:
        """Indices, `last` where they are greater, in a dtype that holds both."""
        dtype = self.dtype(index)
        if dtypes.itemsize(dtype) < dtypes.itemsize(INDEX_DTYPE):
            dtype = INDEX_DTYPE
        return self.apply("minimum", self.cast(index, dtype), self.cast(self.apply("index_value", expr=last), dtype))

    def surrounded(self, edge: Edge, axis: int, low: Expr, high: Expr, value: float = 0) -> Edge:
        """With so many positions of `value` before and after those of one axis."""
        if low == high == const(0):
            return edge
        return self.apply("pad", edge, **pad_attrs(self.rank(edge), axis, low, high, value))


def cut_attrs(shape: Sequence[Expr], axis: int, start: Expr, length: Expr) -> dict[str, Any]:
    """The attributes of a `slice` along one axis."""
    starts = tuple(start if place == axis else const(0) for place in range(len(shape)))
    lengths = (*shape[:axis], length, *shape[axis + 1 :])
    return {"starts": starts, "lengths": lengths, "steps": (1,) * len(shape)}


def pad_attrs(rank: int, axis: int, low: Expr, high: Expr, value: float = 0) -> dict[str, Any]:
    """The attributes of a `pad` along one axis."""
    sides = (tuple(many if place == axis else const(0) for place in range(rank)) for many in (low, high))
    return {**dict(zip(("low", "high"), sides)), "value": value}


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

    def _two(self, op: str, a: Edge | float, b: Edge | float, *given: Edge) -> Edge:
        left = a if isinstance(a, Edge) else self.number(a, b if isinstance(b, Edge) else None)
        return self.apply(op, *given, left, b if isinstance(b, Edge) else self.number(b, left))

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
        return self._two("where", a, b, mask)

    # Shapes.

    def spread(self, edge: Edge, axes: Sequence[int], shape: Sequence[Expr]) -> Edge:
        """A value that has lost `axes` of `shape`, repeated along them."""
        kept = tuple(const(1) if axis in axes else size for axis, size in enumerate(shape))
        return self.broadcast(self.reshape(edge, kept), shape)

    def summed_to(self, edge: Edge, shape: tuple[Expr, ...], batch: int = 0) -> Edge:
        """The transpose of broadcasting `shape`, behind its first `batch` axes, to that of `edge`: sums along the axes
        that are new or were repeated."""
        given = self.shape(edge)
        new = range(batch, batch + len(given) - len(shape))
        old = without(range(len(given)), new)
        repeated = [axis for axis, size in zip(old, shape) if size != given[axis]]
        return self.reshape(self.sum(edge, (*new, *repeated)), shape)


@dataclass(frozen=True)
class Reverse(Formula):
    """An application with its result and the cotangent of that: what rules are made of."""

    result: Edge
    g: Edge

    def number(self, value: float, like: Edge | None = None) -> Edge:
        return super().number(value, self.g if like is None else like)


Gradient = Callable[[Reverse], Sequence[Edge | None]]
Partial = Callable[[Reverse], Edge | None]


def elementwise(*partials: Partial) -> Gradient:
    """One partial cotangent per operand, in the shape of the result; summed where the operand was broadcast."""

    def gradient(r: Reverse) -> list[Edge | None]:
        found = [partial(r) for partial in partials]
        whole = [None if edge is None else r.broadcast(edge, r.shape(r.result)) for edge in found]
        return [None if edge is None else r.summed_to(edge, r.shape(x)) for edge, x in zip(whole, r.operands)]

    return gradient


def constant(r: Reverse) -> tuple[None, ...]:
    """The result does not change with the operands, or only in jumps."""
    return (None,) * len(r.operands)


def none(r: Reverse) -> None:
    """The partial of an operand that makes no difference."""
    return
