"""The spelled-out form of attention, whatever movement lies between its parts, and its operands as operators take them.

    dot(softmax(where(mask, scale * dot(queries, keys) + bias, fill)), values)

Scale, bias and mask may be missing; the softmax is one operator or its steps; either side of a product may be first.
What is found says which axis of each operand is what, so that keys and values are read as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tempo.passes.simplify.movement import ONE, Axes, Views, look_through
from tempo.sdg.components import reached
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import Expr, as_expr


@dataclass(frozen=True)
class Extra:
    """A bias or a mask. `axes`: the axis of `edge` that every axis of the scores shows; None where it repeats."""

    edge: Edge
    axes: Axes


@dataclass(frozen=True)
class Side:
    """An operand of a contraction: the axes that are batch, free and contracted."""

    edge: Edge
    batch: tuple[int, ...]
    free: tuple[int, ...]
    contracted: tuple[int, ...]


@dataclass(frozen=True)
class Attention:
    """`batch` and `rows` are axes of the scores, in the order in which the result has them; `keys_axis` the other.

    `places` gives the axis of the contraction of `queries` and `keys` (batch, free left, free right) that each axis of
    the scores shows. Axes of size 1 that the contraction has not got are none of the rows: the result has them still.
    `values_first`: in the result the free axis of the values comes before the rows.
    """

    queries: Side
    keys: Side
    values: Side
    places: Axes
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    keys_axis: int
    scale: float
    bias: tuple[Extra, ...]
    mask: tuple[Extra, ...]
    fill: float
    keys_first: bool
    values_first: bool

    def place(self, axis: int) -> int:
        """That of one of the batch or of the rows."""
        place = self.places[axis]
        assert place is not None
        return place

    def given(self) -> Iterator[Edge]:
        """What attention is of."""
        yield from (side.edge for side in (self.queries, self.keys, self.values))
        yield from (extra.edge for extra in (*self.bias, *self.mask))


def find_attention(node: Node, views: Views) -> Attention | None:
    """What `node`, a contraction, is attention of; None where it is none."""
    if node.op != "dot":
        return None
    left, right = sides(node, views)
    return _of_weights(left, right, False, views) or _of_weights(right, left, True, views)


def sides(node: Node, views: Views) -> tuple[Side, Side]:
    left, right = (_side(node, at, name, views) for at, name in enumerate(("lhs", "rhs")))
    return left, right


def _side(node: Node, at: int, name: str, views: Views) -> Side:
    batch, contracted = tuple(node.attr(f"{name}_batch")), tuple(node.attr(f"{name}_contract"))
    rank = len(views.seen_type(node.operands[at]).shape)
    free = tuple(axis for axis in range(rank) if axis not in (*batch, *contracted))
    return Side(node.operands[at], batch, free, contracted)


def _of_weights(weights: Side, values: Side, values_first: bool, views: Views) -> Attention | None:
    if len(weights.contracted) != 1 or len(values.free) != 1:
        return None
    moved = look_through(weights.edge, views)
    if not _shows_all(moved.axes, weights.edge, views):
        return None
    found = normalised(views.view(moved.source), views)
    if found is None:
        return None
    scores, axis = found
    if moved.axes[weights.contracted[0]] != axis:
        return None
    chain = _ScoreChain(views, axis).follow(scores)
    if chain is None:
        return None
    batch, rows = (tuple(moved.axes[at] for at in group) for group in (weights.batch, weights.free))
    return chain.attention(values, batch, rows, values_first)


def _shows_all(axes: Axes, edge: Edge, views: Views) -> bool:
    """Whether only axes of size 1 show nothing."""
    sizes = views.seen_type(edge).shape
    return all(axis is not None or size == ONE for axis, size in zip(axes, sizes, strict=True))


def normalised(top: Node | None, views: Views) -> tuple[Edge, int] | None:
    """The scores of a softmax over one axis, and that axis."""
    if top is None:
        return None
    if top.op == "softmax":
        axes = top.attr("axes")
        return (top.operands[0], axes[0]) if len(axes) == 1 else None
    if top.op != "div":
        return None
    powers = views.view(top.operands[0])
    shifted = views.view(powers.operands[0]) if powers is not None and powers.op == "exp" else None
    if shifted is None or shifted.op != "sub":
        return None
    scores = shifted.operands[0]
    axis = _spread_reduction(top.operands[1], "reduce_sum", top.operands[0], views)
    if axis is None or axis != _spread_reduction(shifted.operands[1], "reduce_max", scores, views):
        return None
    return scores, axis


def _spread_reduction(edge: Edge, op: str, of: Edge, views: Views) -> int | None:
    """The axis of `of` over which `edge` is a reduction of it, repeated along that axis. Either may be moved."""
    moved, whole = look_through(edge, views), look_through(of, views)
    made = views.view(moved.source)
    if made is None or made.op != op or len(made.attr("axes")) != 1:
        return None
    given, reduced = look_through(made.operands[0], views), made.attr("axes")[0]
    if given.source != whole.source or given.axes[reduced] is None:
        return None
    left = [axis for place, axis in enumerate(given.axes) if place != reduced]
    missing = len(whole.axes) - len(moved.axes)
    shown: Axes = (*(None,) * missing, *(None if axis is None else left[axis] for axis in moved.axes))
    wanted = [None if axis == given.axes[reduced] else axis for axis in whole.axes]
    sizes = views.seen_type(of).shape
    if any(a != b and size != ONE for a, b, size in zip(shown, wanted, sizes, strict=True)):
        return None
    return whole.axes.index(given.axes[reduced]) if given.axes[reduced] in whole.axes else None


@dataclass(frozen=True)
class _ScoreChain:
    """What is done to the product of queries and keys, from the softmax back to it: mask, then bias, then scale."""

    views: Views
    keys_axis: int
    mask: tuple[Extra, ...] = ()
    fill: float = 0.0
    bias: tuple[Extra, ...] = ()
    scale: float | None = None
    product: Node | None = None
    places: Axes = ()

    def follow(self, edge: Edge, shown: Axes | None = None) -> _ScoreChain | None:
        """`shown`: for every axis of the scores the axis of `edge`."""
        shown = tuple(range(len(self.views.seen_type(edge).shape))) if shown is None else shown
        moved = look_through(edge, self.views)
        shown = tuple(None if axis is None else moved.axes[axis] for axis in shown)
        made = self.views.view(moved.source)
        if made is None or not _shows_all(moved.axes, edge, self.views):
            return None
        if made.op == "dot":
            return replace(self, product=made, places=shown)
        for at, operand in enumerate(made.operands):
            if self.views.seen_type(operand).shape == made.type.shape:
                found = self._step(made, at, shown)
                if found is not None:
                    return found
        return None

    def _step(self, made: Node, at: int, shown: Axes) -> _ScoreChain | None:
        """On to operand `at` of the operator `made`."""
        operand, scaled = made.operands[at], self.scale is not None
        if made.op == "where" and at == 1 and not (self.mask or self.bias or scaled):
            fill = self._number(made.operands[2])
            if fill is None:
                return None
            mask = self._extra(made, 0, shown)
            return replace(self, mask=(mask,), fill=fill).follow(operand, shown)
        if made.op == "add" and not scaled:
            return replace(self, bias=(*self.bias, self._extra(made, 1 - at, shown))).follow(operand, shown)
        if made.op == "mul" or (made.op == "div" and at == 0):
            factor = self._number(made.operands[1 - at])
            if factor is None or (made.op == "div" and factor == 0):
                return None
            scale = (self.scale or 1.0) * (factor if made.op == "mul" else 1 / factor)
            return replace(self, scale=scale).follow(operand, shown)
        return None

    def _extra(self, made: Node, at: int, shown: Axes) -> Extra:
        edge, rank = made.operands[at], len(made.type.shape)
        shape = self.views.seen_type(edge).shape
        own = (None if axis is None else axis - rank + len(shape) for axis in shown)
        return Extra(edge, tuple(None if axis is None or axis < 0 or shape[axis] == ONE else axis for axis in own))

    def _number(self, edge: Edge) -> float | None:
        made = self.views.view(look_through(edge, self.views).source)
        if made is None or made.op != "constant" or made.attr("value").array.size != 1:
            return None
        return float(made.attr("value").array.reshape(()))

    def attention(self, values: Side, batch: Axes, rows: Axes, values_first: bool) -> Attention | None:
        """Where the axes fit: batch in one product is batch in the other, and keys have one axis of their own."""
        assert self.product is not None
        places = self.places
        left, right = sides(self.product, self.views)
        count, keys_at = len(left.batch), places[self.keys_axis]
        own = tuple(axis for axis in rows if axis is not None and places[axis] is not None)
        shared = tuple(axis for axis in batch if axis is not None and places[axis] is not None)
        shown = [place for place in places if place is not None]
        if keys_at is None or keys_at < count or len(shared) != len(batch):
            return None
        keys_first = keys_at < count + len(left.free)
        queries, keys = (right, left) if keys_first else (left, right)
        if len(keys.free) != 1 or len(keys.contracted) != 1 or len(set(shown)) != len(shown):
            return None
        if len(shown) != count + len(queries.free) + 1 or len(own) != len(queries.free):
            return None
        if any(places[axis] >= count for axis in shared) or any(places[axis] < count for axis in own):  # type: ignore[operator]
            return None
        return Attention(
            queries, keys, values, places, shared, own, self.keys_axis, 1.0 if self.scale is None else self.scale,
            self.bias, self.mask, self.fill, keys_first, values_first,
        )  # fmt: skip


Shape = tuple[Expr, ...]
POINTS = -1
"""Stands for the axis of points among those of the scores, which have none themselves."""


def has_numbers(found: Attention, views: Views) -> bool:
    """Rows are merged into one axis, whose size is an expression where at most one of theirs is not a number."""
    shape = views.seen_type(found.queries.edge).shape
    sizes = [shape[axis] for axis in found.queries.free]
    return sum(not size.is_const for size in sizes) <= 1


def inside(graph: Graph, node: Node, given: Iterable[Edge]) -> frozenset[int] | None:
    """What lies between what a composite is of and its result, `node`; None where others read of it, too."""
    ends = {edge.node for edge in given}

    def made(id: int) -> list[int]:
        operands = (edge.node for edge in graph.nodes[id].operands)
        return [each for each in operands if each not in ends and graph.nodes[each].operands]

    seen, readers = reached(made(node.id), made), graph.consumers
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
