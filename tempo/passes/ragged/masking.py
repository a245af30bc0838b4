"""Nodes whose axes move with a dim, rewritten so that no shape mentions it: reads become hulls, valid by a predicate.

The meaning stays; what is read is more. So it is done to nodes that are about to be lifted along the dim, for which
all that they read is there anyway. Reductions mask with their neutral element. A contraction masks both operands, but
for one that is the same at all points along the dim: a mask of its own for every point would be as many copies of it
(`tempo.passes.ragged.masking` says how that one keeps what is not finite inside of its windows).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tempo import dtypes
from tempo.errors import InternalError
from tempo.passes.ragged.alignment import Axes, AxisClass, Frames
from tempo.passes.ragged.rules import convolved, static
from tempo.passes.ragged.values import Frame, Situation, Value, window
from tempo.sdg.graph import Edge, Graph, Node, Slice
from tempo.sdg.rewriter import Rewriter, Tensors, without_idle_dims
from tempo.symbolic import TRUE, Dim, Expr, Symbol, const, var

_POSITION = Symbol("%position", "dim")  # no identifier, so no dim of the program
_SIDES = "lhs", "rhs"
_EXACT = "float32"
"""Signs are summed in it, without error up to 2**24 of them."""


def hulled(graph: Graph, frames: Frames, chosen: Collection[int]) -> Graph:
    """`graph` with the nodes of `chosen` for which there are frames in them."""
    return _Hulling(graph, frames, frames.closed(chosen)).graph()


class _Hulling:
    def __init__(self, graph: Graph, frames: Frames, chosen: Collection[int]) -> None:
        self.old, self.frames, self.chosen = graph, frames, chosen
        self.symbol, self.sizes = frames.symbol, frames.hulls.sizes
        self.new = Rewriter(graph)

    def graph(self) -> Graph:
        order = self.old.operands_first()
        for node in order:
            if node.id in self.chosen:
                self.rewrite(node)
        for node in order:
            if node.id not in self.chosen:
                self.new.nodes[node.id] = self.reader(node)
        outputs = tuple(
            replace(output, edge=self.as_before(Tensors(self.new, output.location), output.edge))
            for output in self.old.outputs
        )
        return without_idle_dims(replace(self.old, nodes=self.new.nodes, outputs=outputs))

    def rewrite(self, node: Node) -> None:
        tensors, values = Tensors(self.new, node.location), []
        for edge in node.operands:
            frames = _frames(self.frames.reads[node.id, edge])
            values.append(Value(self.read(tensors, node, edge), self.old.seen_type(edge).shape, frames=frames))
        framed = _Framed(node, tuple(values), self.frames.hulls, self.new, self.frames)
        framed = framed.as_contraction() if node.op == "reduce_sum" else framed
        framed = framed.with_whole() if framed.node.op == "dot" else framed
        self.new.put(node, static(framed, _RULES).edge)

    def reader(self, node: Node) -> Node:
        """A node that is not rewritten, with what it reads as it was."""
        tensors = Tensors(self.new, node.location)
        return node.reading(lambda edge: self.as_before(tensors, edge))

    def as_before(self, tensors: Tensors, edge: Edge) -> Edge:
        """What the edge showed: of every axis in a frame only what means something."""
        if edge.node not in self.chosen:
            return edge
        producer = self.old.nodes[edge.node]
        shown = tensors.read(edge, producer.domain)
        at = {dim: index.index for dim, index in zip(producer.domain, edge.map) if not isinstance(index, Slice)}
        slices = len(edge.map) - len(at)
        for place, axis in enumerate(self.frames.axes[edge.node]):
            if axis is not None:
                start, length = (expr.substitute(at) for expr in (_frame(axis).shift, _frame(axis).length))
                shown = tensors.cut(shown, slices + place, start, length)
        return shown

    def read(self, tensors: Tensors, node: Node, edge: Edge) -> Edge:
        """What the edge shows in frames."""
        view = self.frames.reads[node.id, edge]
        if edge.node in self.chosen and any(self.frames.axes[edge.node]) and not self.frames.in_frames(edge, view):
            return self.as_before(tensors, edge)
        domain, varying = self.old.nodes[edge.node].domain, self.new.nodes[edge.node].domain
        slices = [place for place, index in enumerate(edge.map) if isinstance(index, Slice)]
        map, moved = list(edge.map), []
        for axis, place in enumerate(slices):
            seen = view[axis]
            if seen is None:
                continue
            index, frame, dim = map[place], _frame(seen), domain[place]
            assert isinstance(index, Slice)
            lo, hi = self.frames.interval(edge.node, dim)
            first = index.start - frame.shift
            if dim not in varying or self.is_inside(first, first + frame.extent, lo, hi):
                map[place] = Slice(first, frame.extent)
            else:
                map[place] = Slice(lo, hi - lo)
                moved.append((axis, first - lo, frame.extent))
        shown = tensors.read(replace(edge, map=tuple(map)), domain)
        for axis, first, extent in moved:
            shown = window(tensors, shown, axis, first, extent, self.sizes)
        return shown

    def is_inside(self, start: Expr, stop: Expr, lo: Expr, hi: Expr) -> bool:
        """Whether the same points are read for all along the dim, and they are all there."""
        if self.symbol in start.symbols() | stop.symbols():
            return False
        return self.sizes.implies(start.ge(lo) & stop.le(hi))


@dataclass(frozen=True)
class _Framed(Situation):
    """A node in its frames. Rules mask in them by a predicate, a vector at every point of the dim."""

    frames: Frames
    whole: WholeOperand | None = None

    @cached_property
    def result(self) -> tuple[Frame | None, ...]:
        return _frames(self.frames.axes[self.node.id])

    def extent(self, axis: int) -> Expr:
        frame = self.result[axis]
        return self.lengths[axis] if frame is None else frame.extent

    def varies(self, value: Value) -> bool:
        return self.frames.symbol in value.edge.dims()

    def validity(self, frame: Frame | None) -> Edge | None:
        """Which positions mean something, as a vector; None where all do."""
        if frame is None:
            return None
        position = Dim(_POSITION, frame.extent)
        valid_here = frame.valid(var(_POSITION))
        points = self.frames.context(symbol for symbol in valid_here.dims() if symbol != _POSITION)
        here = points.assume(var(_POSITION).ge(0), var(_POSITION).lt(position.size))
        condition = here.simplify_condition(valid_here)
        if condition == TRUE:
            return None
        valid = self.tensors.holds(condition, {_POSITION: self.tensors.iota((frame.extent,), 0)})
        return self.tensors.broadcast(valid, (frame.extent,))

    def masked(self, value: Value, axis: int, fill: bool | int | float) -> Value:
        return replace(value, edge=self.filled(value.edge, axis, value.frame(axis), fill))

    def filled(self, edge: Edge, axis: int, frame: Frame | None, fill: bool | int | float) -> Edge:
        """The same with `fill` where an axis in the frame means nothing."""
        valid, tensors = self.validity(frame), self.tensors
        if valid is None:
            return edge
        return where(tensors, tensors.with_ones(valid, 1, tensors.rank(edge) - axis - 1), edge, fill)

    def as_contraction(self) -> _Framed:
        """A sum of what is the same at all points along the dim is a contraction with the predicate."""
        (value,), tensors, axes = self.values, self.tensors, self.attrs["axes"]
        framed = [axis for axis in axes if value.is_dynamic(axis)]
        if len(framed) != 1 or self.varies(value) or (valid := self.validity(value.frame(framed[0]))) is None:
            return self
        rest = tuple(axis for axis in axes if axis not in framed)
        edge = tensors.apply("reduce_sum", value.edge, axes=rest) if rest else value.edge
        place, frame = framed[0] - sum(axis < framed[0] for axis in rest), value.frame(framed[0])
        ones = tensors.cast(valid, self.node.dtype)
        frames = ((frame,), tuple(frame if axis == place else None for axis in range(tensors.rank(edge))))
        values = (Value(each, tensors.shape(each), frames=of) for each, of in zip((ones, edge), frames))
        attrs = (("lhs_batch", ()), ("lhs_contract", (0,)), ("rhs_batch", ()), ("rhs_contract", (place,)))
        return replace(self, node=replace(self.node, op="dot", attrs=attrs), values=tuple(values))

    def with_whole(self) -> _Framed:
        """Of a contraction, one operand that is the same at all points along the dim, which is not masked for each."""
        tensors, open_ = self.tensors, []
        for pair in zip(self.attrs["lhs_contract"], self.attrs["rhs_contract"], strict=True):
            frame = next(filter(None, (value.frame(axis) for value, axis in zip(self.values, pair))), None)
            if frame is not None and self.validity(frame) is not None:
                open_.append((pair, frame))
        if len(open_) != 1:
            return self
        ((pair, frame),) = open_
        rest = [
            self.frames.elements(size for axis, size in enumerate(self.physical(value)) if axis != own)
            for value, own in zip(self.values, pair)
        ]
        same = [side for side in (0, 1) if not self.varies(self.values[side]) and rest[side] > 1]
        if not same:
            return self
        side = max(same, key=lambda side: rest[side])
        edge, contracted = self.values[side].edge, self.attrs[f"{_SIDES[side]}_contract"]
        values = list(self.values)
        values[side] = replace(values[side], frames=(None,) * tensors.rank(edge))
        whole = WholeOperand(tensors, edge, pair[side], frame, contracted, side)
        return replace(self, values=tuple(values), whole=whole)


def _frames(axes: Axes) -> tuple[Frame | None, ...]:
    return tuple(None if axis is None else _frame(axis) for axis in axes)


def _frame(axis: AxisClass) -> Frame:
    frame = axis.root().frame
    if frame is None:
        raise InternalError("an axis has no frame")
    return frame


def _contracted(situation: _Framed) -> Edge:
    """Over valid positions only."""
    tensors, whole, attrs = situation.tensors, situation.whole, situation.attrs
    if whole is None or not dtypes.is_float(tensors.dtype(whole.edge)):
        return situation.apply(situation.values)
    operands = [value.edge for value in situation.values]
    operands[whole.side] = whole.multiplied()
    product = tensors.apply("dot", *operands, **attrs)
    signs = [tensors.apply("cast", tensors.apply("sign", side), dtype=_EXACT) for side in operands]
    signs[whole.side] = whole.infinite_signs(_EXACT)
    ranks = [tensors.rank(side) for side in operands]
    counts = (_as_in_result(tensors, many, attrs, whole.side, ranks) for many in map(whole.counted, ("isinf", "isnan")))
    return with_infinities(tensors, product, tensors.apply("dot", *signs, **attrs), *counts)


def _as_in_result(
    tensors: Tensors, edge: Edge, attrs: Mapping[str, tuple[int, ...]], side: int, ranks: Sequence[int]
) -> Edge:
    """What has the axes of one operand of a `dot`, those contracted of size 1, so that it broadcasts to its result."""
    batch, contracted = (attrs[f"{_SIDES[side]}_{kind}"] for kind in ("batch", "contract"))
    free = tuple(axis for axis in range(ranks[side]) if axis not in (*batch, *contracted))
    shape = tensors.shape(moved := tensors.transpose(edge, (*batch, *free, *contracted)))
    ones = (const(1),) * (ranks[1 - side] - len(batch) - len(contracted))
    own = shape[len(batch) : len(batch) + len(free)]
    return tensors.reshape(moved, (*shape[: len(batch)], *((*own, *ones) if side == 0 else (*ones, *own))))


def _counting(situation: _Framed) -> Edge:
    """An iota counts elements, not positions."""
    tensors, frame = situation.tensors, situation.result[situation.attrs["axis"]]
    counted = situation.apply((), shape=tuple(map(situation.extent, range(len(situation.lengths)))))
    if frame is None or frame.shift == const(0):
        return counted
    shift = tensors.apply("cast", tensors.number(frame.shift), dtype=situation.node.dtype)
    return tensors.apply("sub", counted, shift)


def _padded(situation: _Framed) -> Edge:
    """Every axis that is padded is placed where its elements are to be, and filled elsewhere."""
    (value,), attrs, tensors = situation.values, situation.attrs, situation.tensors
    edge = value.edge
    for axis, (low, high) in enumerate(zip(attrs["low"], attrs["high"], strict=True)):
        if low == const(0) and high == const(0):
            continue
        length, after, size = value.lengths[axis], situation.result[axis], situation.extent(axis)
        before = value.frame(axis) or Frame(const(0), length, length)
        start = low + (const(0) if after is None else after.shift)
        if before.shift != start or tensors.shape(edge)[axis] != size:
            edge = window(tensors, edge, axis, before.shift - start, size, situation.hulls.sizes)
        edge = situation.filled(edge, axis, Frame(start, before.length, size), attrs.get("value", 0))
    return edge


_RULES: dict[str, Callable[[_Framed], Edge]] = {
    "conv": convolved,
    "dot": _contracted,
    "iota": _counting,
    "pad": _padded,
}


_COUNTS = "int32"


@dataclass(frozen=True)
class WholeOperand:
    """Operand `side`, contracted over the windows that `frame` gives along `axis`, and over all of the others."""

    tensors: Tensors
    edge: Edge
    axis: int
    frame: Frame
    contracted: Iterable[int]
    side: int

    def multiplied(self) -> Edge:
        """What stands for the operand in the product."""
        finite = self.tensors.apply("isfinite", self.edge)
        return self.tensors.apply("where", finite, self.edge, self.infinite_signs(self.tensors.dtype(self.edge)))

    def infinite_signs(self, dtype: str) -> Edge:
        """1 where it is infinite, -1 where it is so below zero, else 0."""
        infinite = self.tensors.apply("isinf", self.edge)
        signs = where(self.tensors, infinite, self.tensors.apply("sign", self.edge), 0)
        return self.tensors.cast(signs, dtype)

    def counted(self, test: str) -> Edge:
        """How many elements of each window pass a test; the contracted axes stay, of size 1."""
        tensors, axis, frame = self.tensors, self.axis, self.frame
        found = tensors.apply("cast", tensors.apply(test, self.edge), dtype=_COUNTS)
        shape, gone = tensors.shape(found), tuple(sorted(place for place in self.contracted if place != axis))
        if gone:
            kept = (const(1) if place in gone else size for place, size in enumerate(shape))
            found = tensors.reshape(tensors.apply("reduce_sum", found, axes=gone), kept)
        sums = tensors.surrounded(tensors.apply("cumsum", found, axis=axis), axis, const(1), const(0))
        count = tensors.cut(sums, axis, frame.shift + frame.length, const(1))
        if frame.shift == const(0):
            return count
        return tensors.apply("sub", count, tensors.cut(sums, axis, frame.shift, const(1)))


def with_infinities(tensors: Tensors, product: Edge, signs: Edge, infinite: Edge, undefined: Edge) -> Edge:
    """The product, and what the elements that are not finite add to it.

    `signs` is the sum of the signs of the products that are infinite; there are `infinite` elements of such, and
    `undefined` that are NaN.
    """
    dtype, exact = tensors.dtype(product), tensors.dtype(signs)
    many = tensors.cast(infinite, exact)
    added = tensors.constant(np.nan, dtype)
    for sign in (-1, 1):
        every = many if sign > 0 else tensors.apply("neg", many)
        added = tensors.apply("where", tensors.apply("eq", signs, every), tensors.constant(sign * np.inf, dtype), added)
    added = where(tensors, tensors.apply("eq", undefined, tensors.constant(0, _COUNTS)), added, np.nan)
    others = tensors.apply("gt", tensors.apply("add", infinite, undefined), tensors.constant(0, _COUNTS))
    return tensors.apply("where", others, tensors.apply("add", product, added), product)


def where(tensors: Tensors, mask: Edge, edge: Edge, fill: bool | int | float) -> Edge:
    """`edge` where the mask holds, else `fill`."""
    return tensors.apply("where", mask, edge, tensors.constant(fill, tensors.dtype(edge)))
