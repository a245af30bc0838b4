"""Nodes whose axes move with a dim, rewritten so that no shape mentions it: reads become hulls, valid by a predicate.

The meaning stays; what is read is more. So it is done to nodes that are about to be lifted along the dim, for which
all that they read is there anyway. Reductions mask with their neutral element. A contraction masks both operands, but
for one that is the same at all points along the dim: a mask of its own for every point would be as many copies of it
(`tempo.passes.ragged.nonfinite` says how that one keeps what is not finite inside of its windows).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tempo import dtypes
from tempo.errors import InternalError
from tempo.passes.ragged.alignment import Axes, AxisClass, Frame, Frames
from tempo.passes.ragged.nonfinite import WholeOperand, where, with_infinities
from tempo.sdg.graph import Edge, Graph, Node, Slice
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.rewriter import Rewriter, Tensors, without_idle_dims
from tempo.symbolic import TRUE, Dim, Expr, Symbol, const, var

_POSITION = Symbol("%position", "dim")  # no identifier, so no dim of the program
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
        tensors = Tensors(self.new, node.location)
        operands = [self.read(tensors, node, edge) for edge in node.operands]
        self.new.put(node, _RULES.get(node.op, _aligned)(self, tensors, node, operands))

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

    def through(self, tensors: Tensors, edge: Edge) -> Edge:
        """The same read of a producer that may have lost dims along which nothing varies any more."""
        domain, kept = self.old.nodes[edge.node].domain, self.new.nodes[edge.node].domain
        if any(isinstance(index, Slice) and symbol not in kept for symbol, index in zip(domain, edge.map, strict=True)):
            raise InternalError(f"%{edge.node} is sliced along a dim that it does not vary along")
        return tensors.read(edge, domain)

    def read(self, tensors: Tensors, node: Node, edge: Edge) -> Edge:
        """What the edge shows in frames."""
        view = self.frames.reads[node.id, edge]
        if edge.node in self.chosen and any(self.frames.axes[edge.node]) and not self.frames.in_frames(edge, view):
            return self.as_before(tensors, edge)
        shown = self.through(tensors, edge)
        slices = [place for place, index in enumerate(shown.map) if isinstance(index, Slice)]
        map, moved = list(shown.map), []
        for axis, place in enumerate(slices):
            window = view[axis]
            if window is None:
                continue
            index, frame = map[place], _frame(window)
            assert isinstance(index, Slice)
            dim = self.new.nodes[edge.node].domain[place]
            lo, hi = self.frames.interval(edge.node, dim)
            first = index.start - frame.shift
            if self.is_inside(first, first + frame.extent, lo, hi):
                map[place] = Slice(first, frame.extent)
            else:
                map[place] = Slice(lo, hi - lo)
                moved.append((axis, first - lo, frame.extent))
        shown = replace(shown, map=tuple(map))
        for axis, first, extent in moved:
            shown = self.placed(tensors, shown, axis, first, extent)
        return shown

    def placed(self, tensors: Tensors, edge: Edge, axis: int, first: Expr, extent: Expr) -> Edge:
        """An axis of `extent` positions, of which p shows position `first + p`, where that exists."""
        edge = tensors.never_empty(edge, axis, self.sizes)
        positions = tensors.iota((extent,), 0)
        indices = positions if first == const(0) else tensors.add(positions, tensors.number(first))
        return tensors.gather(edge, indices, axis)

    def is_inside(self, start: Expr, stop: Expr, lo: Expr, hi: Expr) -> bool:
        """Whether the same points are read for all along the dim, and they are all there."""
        if self.symbol in start.symbols() | stop.symbols():
            return False
        return self.sizes.implies(start.ge(lo) & stop.le(hi))

    # -- what rules do -----------------------------------------------------------------------------------------------

    def varies(self, edge: Edge) -> bool:
        return self.symbol in edge.dims()

    def validity(self, tensors: Tensors, frame: Frame) -> Edge | None:
        """Which positions mean something, as a vector; None where all do."""
        position = Dim(_POSITION, frame.extent)
        valid_here = frame.valid(var(_POSITION))
        points = self.frames.context(symbol for symbol in valid_here.dims() if symbol != _POSITION)
        here = points.assume(var(_POSITION).ge(0), var(_POSITION).lt(position.size))
        condition = here.simplify_condition(valid_here)
        if condition == TRUE:
            return None
        valid = tensors.holds(condition, {_POSITION: tensors.iota((frame.extent,), 0)})
        return tensors.broadcast(valid, (frame.extent,))

    def masked(
        self, tensors: Tensors, edge: Edge, place: int, axis: AxisClass | None, fill: bool | int | float
    ) -> Edge:
        """The same with `fill` where an axis means nothing."""
        valid = None if axis is None else self.validity(tensors, _frame(axis))
        if valid is None:
            return edge
        return where(tensors, tensors.with_ones(valid, 1, tensors.rank(edge) - place - 1), edge, fill)

    def neutralized(self, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> list[Edge]:
        """The operands with what changes nothing wherever an axis that is folded or scanned means nothing."""
        found, views = list(operands), [self.frames.reads[node.id, edge] for edge in node.operands]
        for factor in self.frames.rules.factors(node):
            for number, place in factor.places if factor.role in (Role.REDUCING, Role.SCANNING) else ():
                fill = OPERATORS[node.op].padding(self.new.seen_type(found[number]).dtype)
                if fill is not None:
                    found[number] = self.masked(tensors, found[number], place, views[number][place], fill)
        return found

    def contracted(self, tensors: Tensors, node: Node, sides: Sequence[Edge], axes: Sequence[Axes]) -> Edge:
        """`dot` with the attributes of `node`, over valid positions only."""
        attrs = node.attributes
        pairs = list(zip(attrs["lhs_contract"], attrs["rhs_contract"], strict=True))
        framed = [(pair, axis) for pair in pairs if (axis := axes[0][pair[0]] or axes[1][pair[1]]) is not None]
        open_ = [(pair, axis) for pair, axis in framed if self.validity(tensors, _frame(axis)) is not None]
        operands, plain = list(sides), self.unmasked(tensors, sides, [pair for pair, _ in open_])
        for pair, axis in open_:
            for side in (0, 1):
                if side != plain:
                    operands[side] = self.masked(tensors, operands[side], pair[side], axis, 0)
        if plain is None or not dtypes.is_float(self.new.seen_type(sides[0]).dtype):
            return tensors.apply("dot", *operands, **attrs)
        (pair, axis), name = open_[0], ("lhs", "rhs")[plain]
        whole = WholeOperand(tensors, sides[plain], pair[plain], _frame(axis), attrs[f"{name}_contract"])
        operands[plain] = whole.multiplied()
        product = tensors.apply("dot", *operands, **attrs)
        signs = [tensors.apply("cast", tensors.apply("sign", side), dtype=_EXACT) for side in operands]
        signs[plain] = whole.infinite_signs(_EXACT)
        ranks = [tensors.rank(side) for side in sides]
        counts = [_as_in_result(tensors, count, attrs, plain, ranks) for count in (whole.infinite(), whole.undefined())]
        return with_infinities(tensors, product, tensors.apply("dot", *signs, **attrs), *counts)

    def unmasked(self, tensors: Tensors, sides: Sequence[Edge], pairs: Sequence[tuple[int, int]]) -> int | None:
        """The operand that is not masked for every point along the dim, because it is the same at all of them."""
        if len(pairs) != 1:
            return None
        (pair,) = pairs
        rest = [
            self.frames.elements(size for place, size in enumerate(tensors.shape(side)) if place != pair[number])
            for number, side in enumerate(sides)
        ]
        same = [side for side in (0, 1) if not self.varies(sides[side]) and rest[side] > 1]
        return max(same, key=lambda side: rest[side], default=None)


def _frame(axis: AxisClass) -> Frame:
    frame = axis.root().frame
    if frame is None:
        raise InternalError("an axis has no frame")
    return frame


def _resized(shape: Sequence[Expr], axes: Axes) -> tuple[Expr, ...]:
    return tuple(size if axis is None else _frame(axis).extent for size, axis in zip(shape, axes, strict=True))


def _as_in_result(
    tensors: Tensors, edge: Edge, attrs: Mapping[str, tuple[int, ...]], side: int, ranks: Sequence[int]
) -> Edge:
    """What has the axes of one operand of a `dot`, those contracted of size 1, so that it broadcasts to its result."""
    batch, contracted = (attrs[f"{('lhs', 'rhs')[side]}_{kind}"] for kind in ("batch", "contract"))
    free = tuple(axis for axis in range(ranks[side]) if axis not in (*batch, *contracted))
    shape = tensors.shape(moved := tensors.transpose(edge, (*batch, *free, *contracted)))
    ones = (const(1),) * (ranks[1 - side] - len(batch) - len(contracted))
    own = shape[len(batch) : len(batch) + len(free)]
    return tensors.reshape(moved, (*shape[: len(batch)], *((*own, *ones) if side == 0 else (*ones, *own))))


def _counting(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    """An iota counts elements, not positions."""
    counted = _aligned(hulling, tensors, node, operands)
    framed = hulling.frames.axes[node.id][node.attr("axis")]
    if framed is None or _frame(framed).shift == const(0):
        return counted
    shift = tensors.apply("cast", tensors.number(_frame(framed).shift), dtype=node.dtype)
    return tensors.apply("sub", counted, shift)


def _aligned(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    shape = _resized(node.shape, hulling.frames.axes[node.id])
    attrs = OPERATORS[node.op].resized(node.attributes, shape)
    return tensors.apply(node.op, *hulling.neutralized(tensors, node, operands), **attrs)


def _summed(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    """What is the same at all points along the dim is summed by a contraction with the predicate."""
    (edge,), (view,) = operands, (hulling.frames.reads[node.id, read] for read in node.operands)
    framed = [place for place in node.attr("axes") if view[place] is not None]
    if len(framed) != 1 or hulling.varies(edge):
        return _aligned(hulling, tensors, node, operands)
    return _with_predicate(hulling, tensors, node, edge, view, framed[0])


def _with_predicate(hulling: _Hulling, tensors: Tensors, node: Node, edge: Edge, view: Axes, place: int) -> Edge:
    rest = tuple(axis for axis in node.attr("axes") if axis != place)
    axis = view[place]
    assert axis is not None
    valid = hulling.validity(tensors, _frame(axis))
    if valid is None:
        return tensors.apply("reduce_sum", edge, **node.attributes)
    if rest:
        edge = tensors.apply("reduce_sum", edge, axes=rest)
        place -= sum(other < place for other in rest)
    ones = tensors.apply("cast", valid, dtype=node.dtype)
    attrs = {"lhs_contract": (0,), "rhs_contract": (place,), "lhs_batch": (), "rhs_batch": ()}
    kept = tuple(None if at != place else axis for at in range(tensors.rank(edge)))
    dot = replace(node, op="dot", attrs=tuple(sorted(attrs.items())))
    return hulling.contracted(tensors, dot, (ones, edge), ((axis,), kept))


def _contracted(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    return hulling.contracted(tensors, node, operands, [hulling.frames.reads[node.id, e] for e in node.operands])


def _convolved(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    """Both operands are masked along the channels; padding is made where what means something ends."""
    (data, kernel) = hulling.neutralized(tensors, node, operands)
    views = [hulling.frames.reads[node.id, edge] for edge in node.operands]
    batch, padding = node.attr("batch", 0), list(node.attr("padding"))
    channel = tensors.rank(data) - len(padding) - 1
    for number, out in enumerate(hulling.frames.axes[node.id][channel + 1 :]):
        axis = channel + 1 + number
        if out is None:
            continue
        low, high = padding[number]
        if low or high:
            data = hulling.masked(tensors, data, axis, views[0][axis], 0)
        reach = (tensors.shape(kernel)[batch + 2 + number] - 1) * node.attr("dilation")[number] + 1
        size = (_frame(out).extent - 1) * node.attr("strides")[number] + reach
        data, padding[number] = tensors.resized(data, axis, size, hulling.sizes, const(low)), (0, 0)
    return tensors.apply("conv", data, kernel, **{**node.attributes, "padding": tuple(padding)})


def _padded(hulling: _Hulling, tensors: Tensors, node: Node, operands: Sequence[Edge]) -> Edge:
    """Every axis that is padded is placed where its elements are to be, and filled elsewhere."""
    (edge,), view = operands, hulling.frames.reads[node.id, node.operands[0]]
    given = hulling.old.seen_type(node.operands[0]).shape
    for place, (low, high) in enumerate(zip(node.attr("low"), node.attr("high"), strict=True)):
        if low == const(0) and high == const(0):
            continue
        before, after = view[place], hulling.frames.axes[node.id][place]
        old = Frame(const(0), given[place], given[place]) if before is None else _frame(before)
        size = node.shape[place] if after is None else _frame(after).extent
        start = low + (const(0) if after is None else _frame(after).shift)
        if old.shift != start or tensors.shape(edge)[place] != size:
            edge = hulling.placed(tensors, edge, place, old.shift - start, size)
        axis = AxisClass(old.length, frame=Frame(start, old.length, size))
        edge = hulling.masked(tensors, edge, place, axis, node.attr("value", 0))
    return edge


_Rule = Callable[[_Hulling, Tensors, Node, Sequence[Edge]], Edge]
_RULES: dict[str, _Rule] = {
    "conv": _convolved,
    "dot": _contracted,
    "iota": _counting,
    "pad": _padded,
    "reduce_sum": _summed,
}
