"""Values whose extents vary: a physical shape that does not, and the valid length of each axis.

An axis is *dynamic* where its valid length varies with a dim, or with a length in a bucket. Only the positions before
the valid length mean anything.
Axes that are not dynamic are exactly as long as they are valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tempo.analysis.demand.demand import Demand
from tempo.analysis.demand.images import extremes
from tempo.errors import UnsupportedError
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import FALSE, TRUE, Box, Condition, Context, Expr, Symbol, as_expr, const, maximum, over_lengths

Shape = tuple[Expr, ...]
Fills = Mapping[int, bool | int | float]


@dataclass(frozen=True)
class Frame:
    """Position p holds element p - shift, and means something where 0 <= p - shift < length."""

    shift: Expr
    length: Expr
    extent: Expr

    def valid(self, position: Expr) -> Condition:
        return position.ge(self.shift) & position.lt(self.shift + self.length)


@dataclass(frozen=True)
class Value:
    """What an edge of the new graph shows; `lengths` are the valid lengths, over the dims of the consumer.

    `fills`, by axis: what is known to lie behind its valid length. Instead there may be NaN where it is among the valid
    positions beside it, too: whatever folds them has it anyway. `frames`, by axis, where only axes in a frame are
    dynamic (`tempo.passes.ragged.masking`).
    """

    edge: Edge
    lengths: Shape
    fills: Fills = field(default_factory=dict)
    frames: tuple[Frame | None, ...] | None = None

    def is_dynamic(self, axis: int) -> bool:
        return self.lengths[axis].varies if self.frames is None else self.frames[axis] is not None

    def frame(self, axis: int) -> Frame | None:
        return None if self.frames is None else self.frames[axis]

    @property
    def dynamic_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(self.lengths)) if self.is_dynamic(axis))


class Hulls:
    """Upper bounds of expressions over the demanded points of a node."""

    def __init__(self, graph: Graph, demands: Mapping[int, Demand], facts: Condition) -> None:
        self.graph = graph
        self.demands = demands
        self.facts = facts
        self.sizes = Context.of((), facts)
        self._contexts: dict[tuple[tuple[Symbol, ...], Box, Condition], Context] = {}

    def hull(self, expr: Expr, node: Node, condition: Condition = TRUE) -> Expr:
        """The greatest value of a length where `node` is demanded and `condition` holds, in sizes; at least 0.

        Where it is 0 at all sizes it is 1: what nothing reads may be an extreme, which has no value of nothing.
        """
        if not expr.varies:
            return expr
        context = self.context(node, condition)
        greatest: Expr | None
        greatest = simpler = context.simplify(expr)
        if expr.dims():
            _, greatest, _ = extremes(simpler, self.demands[node.id].box, context, self.sizes)
        if greatest is None:
            raise UnsupportedError(f"{node.op}: no bound is known for the extent {expr}", location=node.location)
        greatest = self.sizes.simplify(maximum(over_lengths(greatest), const(0)))
        return const(1) if greatest == const(0) else greatest

    def context(self, node: Node, condition: Condition = TRUE) -> Context:
        """What holds at every demanded point of `node` where `condition` does."""
        key = (node.domain, self.demands[node.id].box, condition)
        if key not in self._contexts:
            self._contexts[key] = Context.of(self.graph.domain_dims(node), self.facts, condition, box=key[1])
        return self._contexts[key]


@dataclass(frozen=True)
class Situation:
    """A node whose extents are made static, its operands, and what rules do with them."""

    node: Node
    values: tuple[Value, ...]
    hulls: Hulls
    rewriter: Rewriter

    @cached_property
    def tensors(self) -> Tensors:
        return Tensors(self.rewriter, self.node.location)

    @cached_property
    def attrs(self) -> dict[str, Any]:
        return self.node.attributes

    @property
    def lengths(self) -> Shape:
        """The valid lengths of the result."""
        return self.node.shape

    def implies(self, condition: Condition) -> bool:
        """Whether it holds wherever the node is demanded. Where that is nowhere, shapes are checked all the same."""
        here = self.hulls.context(self.node)
        return (self.hulls.sizes if here.implies(FALSE) else here).implies(condition)

    def extent(self, axis: int) -> Expr:
        """Of an axis of the result that is made anew."""
        return self.hull(self.lengths[axis])

    def hull(self, expr: Expr | int) -> Expr:
        return self.hulls.hull(as_expr(expr), self.node)

    def physical(self, value: Value) -> Shape:
        return self.tensors.shape(value.edge)

    def apply(self, values: Iterable[Value], **changed: Any) -> Edge:
        """The node's operator on other operands, with attributes changed."""
        return self.tensors.apply(self.node.op, *(value.edge for value in values), **{**self.attrs, **changed})

    def unsupported(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.node.op} {why}",
            location=self.node.location,
            hint="Give the tensor a shape that does not vary, or express it with operators that reduce or select.",
        )

    def masked(self, value: Value, axis: int, fill: bool | int | float) -> Value:
        """The same with `fill` wherever a dynamic axis is not valid."""
        if not value.is_dynamic(axis):
            return value
        edge = self.tensors.apply("mask", value.edge, axis=axis, fill=fill, length=value.lengths[axis])
        return replace(value, edge=edge, fills={axis: fill})

    def sized(self, value: Value, axis: int, size: Expr) -> Value:
        """The same with a physical axis of `size`, which is at least the valid length."""
        edge = self.tensors.resized(value.edge, axis, size, self.hulls.sizes)
        zeros = {place: fill for place, fill in value.fills.items() if fill == 0}
        return value if edge == value.edge else replace(value, edge=edge, fills=zeros)

    def window(self, value: Value, axis: int, first: Expr, extent: Expr, step: int = 1) -> Value:
        """The same with `extent` positions of an axis, of which p shows `first + step * p`, where that exists."""
        return replace(value, edge=window(self.tensors, value.edge, axis, first, extent, self.hulls.sizes, step))

    def agreeing(self, values: Sequence[Value], places: Sequence[tuple[int, int]], length: Expr) -> tuple[Value, ...]:
        """The values, with equal physical sizes at `places`: pairs of the number of a value and its axis."""
        changed = list(values)
        sizes = {self.physical(changed[number])[axis] for number, axis in places}
        if len(sizes) <= 1:
            return tuple(changed)
        target = self.hull(length)
        for number, axis in places:
            changed[number] = self.sized(changed[number], axis, target)
        return tuple(changed)


def window(tensors: Tensors, edge: Edge, axis: int, first: Expr, extent: Expr, sizes: Context, step: int = 1) -> Edge:
    """An axis of `extent` positions, of which p shows position `first + step * p`, where that exists."""
    if extent != tensors.shape(edge)[axis]:  # of as many as there are, nothing is read where there is none
        edge = tensors.never_empty(edge, axis, sizes)
    indices = tensors.times(tensors.iota((extent,), 0), step)
    return tensors.gather(edge, indices if first == const(0) else tensors.add(indices, tensors.number(first)), axis)
