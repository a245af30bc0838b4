"""Making nodes: what rules of operators and passes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, TensorType
from tempo.symbolic import Expr, as_expr, const

Axes = Sequence[int]


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
