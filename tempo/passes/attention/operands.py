"""The operands of attention as its operators take them, from what the spelled-out form says of their axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tempo.passes.attention.match import Attention, Extra
from tempo.passes.simplify.movement import ONE, Views
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import Expr, as_expr

Shape = tuple[Expr, ...]
POINTS = -1
"""Stands for the axis of points among those of the scores, which have none themselves."""


def has_numbers(found: Attention, views: Views) -> bool:
    """Rows are merged into one axis, whose size is an expression where at most one of theirs is not a number."""
    shape = views.type_of(found.queries.edge).shape
    sizes = [shape[axis] for axis in found.queries.free]
    return sum(not size.is_const for size in sizes) <= 1


def inside(graph: Graph, node: Node, given: Iterable[Edge]) -> frozenset[int] | None:
    """What lies between what a composite is of and its result, `node`; None where others read of it, too."""
    ends = {edge.node for edge in given}
    pending = [edge.node for edge in node.operands]
    seen: set[int] = set()
    while pending:
        id = pending.pop()
        operands = graph.nodes[id].operands
        if id in seen or id in ends or not operands:
            continue
        seen.add(id)
        pending.extend(edge.node for edge in operands)
    readers = graph.consumers
    shown = any(reader not in seen and reader != node.id for id in seen for reader, _ in readers[id])
    shown = shown or not seen.isdisjoint(output.edge.node for output in graph.outputs)
    return None if shown else frozenset(seen)


@dataclass(frozen=True)
class Operands:
    """`points` is the axis of the queries that is none of the scores: of the points that are computed at once."""

    found: Attention
    tensors: Tensors
    queries: Edge
    points: int | None = None

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes of the scores in front of the rows."""
        return self.found.batch if self.points is None else (*self.found.batch, POINTS)

    def arranged_queries(self) -> Edge:
        shape = self.tensors.shape(given := self._in_order())
        count = len(self.lead)
        return self.tensors.reshape(given, (*shape[:count], _merged(self.rows), shape[-1]))

    @property
    def rows(self) -> Shape:
        """The sizes of the axes that are one as rows."""
        return self.tensors.shape(self._in_order())[len(self.lead) : -1]

    def _in_order(self) -> Edge:
        """Batch, points, rows, width."""
        found, count = self.found, len(self.found.queries.batch)
        free = count + len(found.keys.free) if found.keys_first else count
        axes = [found.queries.batch[found.place(axis)] for axis in found.batch]
        axes += [] if self.points is None else [POINTS]
        axes += [found.queries.free[found.place(axis) - free] for axis in found.rows]
        return self.tensors.transpose(self.queries, [self._axis(each) for each in (*axes, *found.queries.contracted)])

    def _axis(self, axis: int) -> int:
        """The axis of the queries that was this one before they had an axis of points."""
        if self.points is None:
            return axis
        return self.points if axis == POINTS else axis + (axis >= self.points)

    def attrs(self) -> dict[str, Any]:
        found = self.found
        keys, values = found.keys, found.values
        batch = [keys.batch[found.place(axis)] for axis in found.batch]
        return {
            "key_axes": (*batch, *keys.free, *keys.contracted),
            "value_axes": (*values.batch, *values.contracted, *values.free),
            "scale": found.scale,
            "biased": bool(found.bias),
            "masked": bool(found.mask),
            "fill": found.fill,
        }

    def arranged_extra(self, extra: Extra, points: int | None = None) -> Edge:
        """A bias or a mask: batch, points, rows as one axis, keys. `points` is the axis of it that is those."""
        order = (*self.lead, *self.found.rows, self.found.keys_axis)
        shown = [points if axis == POINTS else extra.axes[axis] for axis in order]
        edge, count = aligned(extra.edge, shown, self.tensors), len(self.lead)
        shape = self.tensors.shape(edge)
        before, own, last = shape[:count], shape[count:-1], shape[-1]
        if len(own) == 1:
            return edge
        if all(size == ONE for size in own):
            return self.tensors.reshape(edge, (*before, ONE, last))
        edge = self.tensors.broadcast(edge, (*before, *self.rows, last))
        return self.tensors.reshape(edge, (*before, _merged(self.rows), last))

    def result(self, made: Edge) -> Edge:
        """What the operator makes, with the axes of the contraction but for some of size 1; points behind the batch."""
        count, shape = len(self.lead), self.tensors.shape(made)
        made = self.tensors.reshape(made, (*shape[:count], *self.rows, shape[-1]))
        return self.tensors.moved(made, count + len(self.rows), count) if self.found.values_first else made


def summed(found: Attention, tensors: Tensors) -> tuple[Extra, ...]:
    """All biases as one."""
    if len(found.bias) < 2:
        return found.bias
    parts = [aligned(extra.edge, extra.axes, tensors) for extra in found.bias]
    total = parts[0]
    for part in parts[1:]:
        total = tensors.add(total, part)
    return (Extra(total, tuple(None if size == ONE else at for at, size in enumerate(tensors.shape(total)))),)


def aligned(edge: Edge, shown: Sequence[int | None], tensors: Tensors) -> Edge:
    """With these of its axes, in order; one of size 1 for None."""
    shape = tensors.shape(edge)
    kept = [axis for axis in shown if axis is not None]
    rest = [axis for axis in range(len(shape)) if axis not in kept]
    edge = tensors.transpose(edge, (*kept, *rest))
    return tensors.reshape(edge, tuple(ONE if axis is None else shape[axis] for axis in shown))


def _merged(sizes: Shape) -> Expr:
    """The product, of which one factor at most is no number."""
    number = prod(size.as_int() for size in sizes if size.is_const)
    return next((size * number for size in sizes if not size.is_const), as_expr(number))
