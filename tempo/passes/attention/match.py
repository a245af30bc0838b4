"""The spelled-out form of attention, whatever movement lies between its parts, and its operands as operators take them.

    dot(softmax(where(mask, scale * dot(queries, keys) + bias, fill)), values)

Scale, bias and mask may be missing; the softmax is one operator or its steps; either side of a product may be first.
Every axis of what is found is labelled with the index that it is, as in `bqd,bkd->bqk` and `bqk,bkv->bqv`, so that keys
and values are read as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations
from math import prod
from typing import Any

from tempo.passes.simplify.movement import ONE, Axes, Views, look_through
from tempo.sdg.components import reached
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import HALF
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import Expr, as_expr

Labels = tuple[int | None, ...]
"""Which index each axis is: a number is the axis of the result that it reaches. None: it repeats."""
KEY, WIDTH, POINTS = -1, -2, -3
"""What the values are contracted along, what the keys are, and the points that are computed at once."""


@dataclass(frozen=True)
class Labelled:
    """What an edge shows, and which index each of its axes is."""

    edge: Edge
    labels: Labels

    def axis(self, label: int) -> int | None:
        return self.labels.index(label) if label in self.labels else None

    def axes(self, labels: Iterable[int]) -> tuple[int, ...]:
        """Of labels that it has."""
        return tuple(map(self.labels.index, labels))

    def source(self, views: Views) -> Labelled | None:
        """What movement shows; None where that repeats it."""
        moved, sizes = look_through(self.edge, views), views.seen_type(self.edge).shape
        if any(axis is None and size != ONE for axis, size in zip(moved.axes, sizes, strict=True)):
            return None
        labels = dict(zip(moved.axes, self.labels))
        return Labelled(moved.source, tuple(map(labels.get, range(len(views.seen_type(moved.source).shape)))))


@dataclass(frozen=True)
class Attention:
    """`batch` and `rows` are the indices of the queries but their width, in the order of the result; the keys have the
    batch alone. `out` is that of the values. Indices of size 1 that no operand has are none: the result has them still.
    """

    queries: Labelled
    keys: Labelled
    values: Labelled
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    out: int
    scale: float
    bias: tuple[Labelled, ...]
    mask: tuple[Labelled, ...]
    fill: float

    def given(self) -> Iterator[Edge]:
        """What attention is of."""
        yield from (each.edge for each in (self.queries, self.keys, self.values, *self.bias, *self.mask))


def find_attention(node: Node, views: Views) -> Attention | None:
    """What `node`, a contraction, is attention of; None where it is none."""
    sides = _operands(node, tuple(range(len(node.type.shape))), KEY, views) if node.op == "dot" else ()
    found = (_of_weights(weights, values, views) for weights, values in permutations(sides, 2))
    return next((each for each in found if each is not None), None)


def _operands(node: Node, result: Labels, inner: int, views: Views) -> tuple[Labelled, ...]:
    """What a node is made of, by the labels of its result, where no more is folded than one index, `inner`."""
    shapes = [views.seen_type(edge).shape for edge in node.operands]
    factors = OPERATORS[node.op].axes(node.attributes, shapes, node.type.shape)
    if sum(factor.result is None for factor in factors) > 1:
        return ()
    labels: list[list[int | None]] = [[None] * len(shape) for shape in shapes]
    for factor in factors:
        for number, axis in factor.places:
            labels[number][axis] = inner if factor.result is None else result[factor.result]
    return tuple(Labelled(edge, tuple(of)) for edge, of in zip(node.operands, labels))


def _of_weights(weights: Labelled, values: Labelled, views: Views) -> Attention | None:
    moved, free = weights.source(views), set(values.labels) - set(weights.labels)
    softmax = None if moved is None or len(free) != 1 else normalised(views.view(moved.edge), views)
    if moved is None or softmax is None or moved.labels[softmax[1]] != KEY:
        return None
    (out,) = free
    assert out is not None
    chain = _ScoreChain(views).follow(Labelled(softmax[0], moved.labels))
    return None if chain is None else chain.attention(values, out)


def normalised(top: Node | None, views: Views) -> tuple[Edge, int] | None:
    """The scores of a softmax over one axis, and that axis. That of halves is one of float32 (`widened`), between
    casts.
    """
    if top is None:
        return None
    if top.op == "cast" and top.dtype in HALF:
        found = normalised(views.view(top.operands[0]), views)
        wide = None if found is None else views.view(found[0])
        if found is None or wide is None or wide.op != "cast":
            return None
        return (wide.operands[0], found[1]) if views.seen_type(wide.operands[0]).dtype == top.dtype else None
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
    mask: tuple[Labelled, ...] = ()
    fill: float = 0.0
    bias: tuple[Labelled, ...] = ()
    scale: float | None = None
    product: tuple[Labelled, ...] = ()

    def follow(self, shown: Labelled) -> _ScoreChain | None:
        source = shown.source(self.views)
        made = None if source is None else self.views.view(source.edge)
        if source is None or made is None:
            return None
        operands = _operands(made, source.labels, WIDTH, self.views)
        if made.op == "dot":
            return replace(self, product=operands)
        whole = (at for at, each in enumerate(operands) if self.views.seen_type(each.edge).shape == made.type.shape)
        found = (self._step(made, at, operands) for at in whole)
        return next((each for each in found if each is not None), None)

    def _step(self, made: Node, at: int, operands: tuple[Labelled, ...]) -> _ScoreChain | None:
        """On to operand `at` of the operator `made`."""
        scores, scaled = operands[at], self.scale is not None
        if made.op == "where" and at == 1 and not (self.mask or self.bias or scaled):
            fill = self._number(operands[2])
            return None if fill is None else replace(self, mask=operands[:1], fill=fill).follow(scores)
        if made.op == "add" and not scaled:
            return replace(self, bias=(*self.bias, operands[1 - at])).follow(scores)
        if made.op == "mul" or (made.op == "div" and at == 0):
            factor = self._number(operands[1 - at])
            if factor is None or (made.op == "div" and factor == 0):
                return None
            scale = (self.scale or 1.0) * (factor if made.op == "mul" else 1 / factor)
            return replace(self, scale=scale).follow(scores)
        return None

    def _number(self, shown: Labelled) -> float | None:
        made = self.views.view(look_through(shown.edge, self.views).source)
        if made is None or made.op != "constant" or made.attr("value").array.size != 1:
            return None
        return float(made.attr("value").array.reshape(()))

    def attention(self, values: Labelled, out: int) -> Attention | None:
        """Where the axes fit: batch in one product is batch in the other, and keys have one index of their own.

        Rows are merged into one axis, whose size is an expression where at most one of theirs is not a number.
        """
        keys = next((each for each in self.product if KEY in each.labels), None)
        queries = next((each for each in self.product if KEY not in each.labels), None)
        if keys is None or queries is None or None in queries.labels:
            return None
        shared = set(values.labels) - {KEY, out}
        if set(keys.labels) != shared | {KEY, WIDTH} or not shared < set(queries.labels):
            return None
        own = sorted(each for each in queries.labels if each is not None and each != WIDTH)
        batch, rows = (tuple(each for each in own if (each in shared) is is_batch) for is_batch in (True, False))
        sizes = self.views.seen_type(queries.edge).shape
        if sum(not sizes[axis].is_const for axis in queries.axes(rows)) > 1:
            return None
        scale = 1.0 if self.scale is None else self.scale
        return Attention(queries, keys, values, batch, rows, out, scale, self.bias, self.mask, self.fill)


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
    """`queries` may have an axis of the points that are computed at once, which attention at a point has not.

    All are of `dtype`, that of the contraction: one contraction alone may read int8 beside floats.
    """

    found: Attention
    dtype: str
    tensors: Tensors
    queries: Labelled

    @property
    def lead(self) -> tuple[int, ...]:
        """The indices in front of the rows."""
        return (*self.found.batch, POINTS) if POINTS in self.queries.labels else self.found.batch

    @property
    def rows(self) -> tuple[Expr, ...]:
        """The sizes of the axes that are one as rows."""
        shape = self.tensors.shape(self.queries.edge)
        return tuple(shape[axis] for axis in self.queries.axes(self.found.rows))

    def of_dtype(self, *edges: Edge) -> tuple[Edge, ...]:
        return tuple(self.tensors.cast(edge, self.dtype) for edge in edges)

    def attrs(self) -> dict[str, Any]:
        found = self.found
        return {
            "key_axes": found.keys.axes((*found.batch, KEY, WIDTH)),
            "value_axes": found.values.axes((*found.batch, KEY, found.out)),
            "scale": found.scale,
            "biased": bool(found.bias),
            "masked": bool(found.mask),
            "fill": found.fill,
        }

    def arranged(self, given: Labelled, last: int) -> Edge:
        """Batch, points, rows as one axis, and `last`: the width of the queries, or the keys of a bias or a mask."""
        edge, count = aligned(given, (*self.lead, *self.found.rows, last), self.tensors), len(self.lead)
        shape = self.tensors.shape(edge)
        if len(self.rows) == 1:
            return edge
        own = ONE if all(size == ONE for size in shape[count:-1]) else _merged(self.rows)
        if own != ONE:
            edge = self.tensors.broadcast(edge, (*shape[:count], *self.rows, shape[-1]))
        return self.tensors.reshape(edge, (*shape[:count], own, shape[-1]))

    def result(self, made: Edge) -> Edge:
        """What the operator makes at a point, with the axes of the contraction but for some of size 1."""
        found, shape = self.found, self.tensors.shape(made)
        labels = (*found.batch, *found.rows, found.out)
        made = self.tensors.reshape(made, (*shape[: len(found.batch)], *self.rows, shape[-1]))
        return aligned(Labelled(made, labels), sorted(labels), self.tensors)


def summed(found: Attention, tensors: Tensors) -> tuple[Labelled, ...]:
    """All biases as one."""
    if len(found.bias) < 2:
        return found.bias
    labels = (*found.batch, *found.rows, KEY)
    total = reduce(tensors.add, (aligned(each, labels, tensors) for each in found.bias))
    shown = zip(labels, tensors.shape(total), strict=True)
    return (Labelled(total, tuple(None if size == ONE else label for label, size in shown)),)


def aligned(given: Labelled, labels: Sequence[int], tensors: Tensors) -> Edge:
    """With these axes, in order; one of size 1 for what it has not."""
    shape, axes = tensors.shape(given.edge), [given.axis(label) for label in labels]
    kept = [axis for axis in axes if axis is not None]
    edge = tensors.transpose(given.edge, (*kept, *(axis for axis in range(len(shape)) if axis not in kept)))
    return tensors.reshape(edge, tuple(ONE if axis is None else shape[axis] for axis in axes))


def _merged(sizes: tuple[Expr, ...]) -> Expr:
    """The product, of which one factor at most is no number."""
    number = prod(size.as_int() for size in sizes if size.is_const)
    return next((size * number for size in sizes if not size.is_const), as_expr(number))
