"""Lifting: a dim along which the points of some nodes are independent becomes a leading spatial axis of them.

What is lifted reads what is not through one slice over its span; what is not reads a lifted node at one position of its
axis. So a loop along the dim and one operation over all of it stand side by side in a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tempo.passes.splitting.stretches import Piece, pieces
from tempo.passes.vectorize.legality import Span, guards, readable
from tempo.sdg.graph import Case, Edge, Graph, IndexMap, Node, Output, Point, Slice, TensorType, index_symbols
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Context, Dim, Expr, Symbol, as_expr, const, maximum, minimum, var

Layout = tuple[Symbol | int, ...]
Read = tuple[Edge, bool]
"""What a node reads, and whether it has the lifted axis in front."""


def lifted(graph: Graph, dim: Dim, spans: Mapping[int, Span], sizes: Context) -> Graph:
    """`graph` with `dim` as axis 0 of the nodes in `spans`, which must be candidates (`vectorize.legality`)."""
    return _Lifting(graph, dim, {**spans, **_inputs(graph, dim, spans)}, sizes).graph()


def _inputs(graph: Graph, dim: Dim, spans: Mapping[int, Span]) -> dict[int, Span]:
    """The inputs that nothing reads point by point along the dim any more."""
    inputs = {id for id, node in graph.nodes.items() if node.is_input and dim.symbol in node.domain}
    for node in graph.nodes.values():
        if node.id in spans or dim.symbol not in node.domain:
            continue
        inputs -= {edge.node for _, edge in node.reads() if dim.symbol in edge.dims()}
    return dict.fromkeys(inputs, Span(const(0), dim.size))


class _Lifting:
    def __init__(self, graph: Graph, dim: Dim, spans: Mapping[int, Span], sizes: Context) -> None:
        self.old, self.sizes = graph, sizes
        self.symbol = dim.symbol
        self.whole = Span(const(0), dim.size)
        self.spans = spans
        self.new = Rewriter(graph)
        for id in spans:
            self.new.nodes[id] = self.signature(graph.nodes[id])

    def signature(self, node: Node) -> Node:
        domain = tuple(symbol for symbol in node.domain if symbol != self.symbol)
        size = self.spans[node.id].size
        return replace(node, domain=domain, results=tuple(_with_axis(type, size) for type in node.results))

    def graph(self) -> Graph:
        for node in self.old.nodes.values():
            self.rewrite(node)
        outputs = tuple(self.output(output) for output in self.old.outputs)
        return replace(self.old, nodes=self.new.nodes, outputs=outputs)

    def rewrite(self, node: Node) -> None:
        tensors, span = Tensors(self.new, node.location), self.spans.get(node.id)
        if span is not None and guards(node, self.symbol):
            self.new.nodes[node.id] = self.in_pieces(tensors, node, span)
        elif span is None or node.is_merge:
            self.new.nodes[node.id] = self.with_reads(tensors, node, span)
        elif node.is_input:
            layout = self.layout(node.attr("layout", default_layout(node.domain, node.type)))
            self.new.nodes[node.id] = self.signature(node).with_attrs(layout=layout)
        elif node.is_draw:
            self.new.nodes[node.id] = self.random_bits(self.with_reads(tensors, node, span), span)
        else:
            rule = _RULES.get(node.op, _Lifting.by_table)
            self.new.put(node, rule(self, tensors, node, span))

    def with_reads(self, tensors: Tensors, node: Node, span: Span | None) -> Node:
        """The node with its reads adapted; a case of a merge is broadcast where it does not vary along the dim."""
        operands = tuple(self.read(tensors, edge, span)[0] for edge in node.operands)
        changed = self.signature(node) if span else node
        return replace(changed, operands=operands, cases=self.cases(tensors, node.cases, span))

    def cases(self, tensors: Tensors, cases: tuple[Case, ...], span: Span | None) -> tuple[Case, ...]:
        found = []
        for case in cases:
            edge, is_lifted = self.read(tensors, case.edge, span)
            found.append(replace(case, edge=self.spread(tensors, edge, span) if span and not is_lifted else edge))
        return tuple(found)

    def in_pieces(self, tensors: Tensors, node: Node, span: Span) -> Node:
        """A definition whose conditions vary along the dim: its pieces, one after the other."""
        found = pieces(node.cases, self.symbol, span.lo, span.hi, self.sizes)
        parts = [self.piece(tensors, node, piece) for piece in found]
        joined = parts[0] if len(parts) == 1 else tensors.apply("concat", *parts, axis=0)
        return replace(self.signature(node), cases=(Case(TRUE, joined, node.location),))

    def piece(self, tensors: Tensors, node: Node, piece: Piece) -> Edge:
        """What the cases of a piece say: a definition of its own where there are several."""
        cases = self.cases(tensors, piece.cases, Span(piece.lo, piece.hi))
        if cases[0].condition == TRUE:
            return cases[0].edge
        type = _with_axis(node.type, piece.hi - piece.lo)
        return self.new.cases(cases, type, node.name, locate=lambda: node.location)

    def read(self, tensors: Tensors, edge: Edge, span: Span | None) -> Read:
        """What the edge shows to a reader that is lifted over `span`, or to one that is not lifted."""
        domain = self.old.nodes[edge.node].domain
        place = domain.index(self.symbol) if edge.node in self.spans else None
        wide = self.widened(edge, place, span)
        lead = next((at for at in range(len(domain)) if wide.map[at] != edge.map[at]), None)
        shown = wide if place is None else self.along_axis(tensors, wide, place, span)
        if place is not None and span and self.symbol in index_symbols(wide.map[place]):
            return shown, True
        if lead is None:
            return shown, False
        return tensors.moved(shown, _slices(wide.map[:lead]), 0), True

    def along_axis(self, tensors: Tensors, edge: Edge, place: int, span: Span | None) -> Edge:
        """The part that a reader sees of a producer whose axis stands for position `place` of the read."""
        index, rest = edge.map[place], replace(edge, map=edge.map[:place] + edge.map[place + 1 :])
        start, axis = self.spans[edge.node].lo, _slices(rest.map)
        if isinstance(index, Slice):
            part = tensors.cut(rest, axis, index.start - start, index.length)
            return tensors.moved(part, axis, _slices(edge.map[:place]))
        if span and self.symbol in index.index.symbols():
            first = index.index.substitute({self.symbol: span.lo}) - start
            first = self.inside(first, span, self.spans[edge.node].size)
            return tensors.moved(tensors.cut(rest, axis, first, span.size), axis, 0)
        return tensors.at(rest, axis, index.index - start)

    def widened(self, edge: Edge, place: int | None, span: Span | None) -> Edge:
        """With a slice for the index that varies along the dim, but for the one that the producer has as an axis."""
        if span is None:
            return edge
        map = list(edge.map)
        for position, index in enumerate(map):
            if position != place and isinstance(index, Point) and self.symbol in index.index.symbols():
                size = self.old.dim(self.old.nodes[edge.node].domain[position]).size
                first = self.inside(index.index.substitute({self.symbol: span.lo}), span, size)
                map[position] = Slice(first, span.size)
        return replace(edge, map=tuple(map))

    def inside(self, first: Expr, span: Span, size: Expr) -> Expr:
        """Where the read of a span starts; what an empty one reads from nowhere lies within the axis all the same."""
        if self.sizes.implies(span.hi.gt(span.lo)):
            return first
        first = self.sizes.assume(span.hi.gt(span.lo)).simplify(first)
        return self.sizes.simplify(maximum(minimum(first, size - span.size), 0))

    @staticmethod
    def spread(tensors: Tensors, edge: Edge, span: Span) -> Edge:
        return tensors.broadcast(edge, (span.size, *tensors.shape(edge)))

    def by_table(self, tensors: Tensors, node: Node, span: Span) -> Edge:
        """By the operator's own rule."""
        operator = OPERATORS[node.op]
        reads = [self.read(tensors, edge, span) for edge in node.operands]
        ranks = tuple(len(self.old.seen_type(edge).shape) for edge in node.operands)
        result = operator.lift(node.attributes, tuple(flag for _, flag in reads), ranks, span.size)
        operands = []
        for place, ((edge, is_lifted), rank) in enumerate(zip(reads, ranks)):
            if is_lifted and operator.kind == "elementwise":
                edge = tensors.with_ones(edge, 1, max(ranks) - rank)
            if is_lifted:
                edge = tensors.moved(edge, 0, result.at)
            elif place in result.repeats:
                edge = tensors.with_ones(edge, 0, 1)
            elif result.broadcast:
                edge = self.spread(tensors, edge, span)
            operands.append(edge)
        attrs = dict(result.attrs)
        if attrs.get("checked") and (reads[1][1] or result.broadcast):
            attrs["layout"] = self.layout_of_indices(node, ranks[1], result.at, span)
        return tensors.moved(tensors.apply(node.op, *result.ordered(operands), **attrs), result.axis, 0)

    def layout_of_indices(self, node: Node, rank: int, at: int, span: Span) -> tuple[Expr | int, ...]:
        """What the axes of checked indices are, for whom an error tells: where a point lies along them, or a number of
        an axis that was there before."""
        layout = node.attr("layout") or tuple(range(rank))
        return (*layout[:at], var(self.symbol) - span.lo, *layout[at:])

    def along(self, tensors: Tensors, span: Span) -> dict[Symbol, Edge]:
        """The values of the lifted dim along its axis."""
        points = tensors.iota((span.size,), 0)
        return {self.symbol: points if span.lo == const(0) else tensors.add(points, tensors.number(span.lo))}

    def index_value(self, tensors: Tensors, node: Node, span: Span) -> Edge:
        return tensors.values(node.attr("expr"), self.along(tensors, span))

    def condition_value(self, tensors: Tensors, node: Node, span: Span) -> Edge:
        return tensors.holds(node.attr("condition"), self.along(tensors, span))

    def random_bits(self, node: Node, span: Span) -> Node:
        """The dim's coordinate becomes axis 0: the same draws. The span starts at 0. `dims` says what became axes."""
        shape, coordinates = node.attr("shape"), []
        for coordinate in node.attr("coordinates"):
            moved = coordinate + 1 if isinstance(coordinate, int) else coordinate
            coordinates.append(0 if moved == var(self.symbol) else moved)
        dims = (self.symbol.name, *node.attr("dims", ()))
        return node.with_attrs(shape=(span.size, *shape), coordinates=tuple(coordinates), dims=dims)

    def slice(self, tensors: Tensors, node: Node, span: Span) -> Edge:
        """Starts that vary along the dim: one that is its point, or so many before or behind, is a transposition of a
        part, others are gathers along each axis."""
        places = list(zip(*(node.attr(key) for key in ("starts", "lengths", "steps")), strict=True))
        moving = [axis for axis, (start, _, _) in enumerate(places) if self.symbol in as_expr(start).symbols()]
        if not moving:
            return self.by_table(tensors, node, span)
        data, is_lifted = self.read(tensors, node.operands[0], span)
        whole = [(const(0), size, 1) for size in tensors.shape(data)]
        own = zip(whole[is_lifted:], places, strict=True)
        fixed = [*whole[:is_lifted], *(each if axis in moving else place for axis, (each, place) in enumerate(own))]
        if fixed != whole:
            starts, lengths, steps = zip(*fixed)
            data = tensors.apply("slice", data, starts=starts, lengths=lengths, steps=steps)
        for axis in moving:
            data = self.moving_part(tensors, data, is_lifted, axis, places[axis], span)
            is_lifted = True
        return data

    def moving_part(
        self, tensors: Tensors, data: Edge, is_lifted: bool, axis: int, place: tuple[Expr, Expr, int], span: Span
    ) -> Edge:
        start, length, step = place
        if length == const(1) and not is_lifted and (start - var(self.symbol)).dims() == frozenset():
            first, size = start.substitute({self.symbol: span.lo}), tensors.shape(data)[axis]
            if self.sizes.implies(first.ge(0) & (first + span.size).le(size)):
                row = data if size == span.size else tensors.cut(data, axis, first, span.size)
                return tensors.with_ones(tensors.moved(row, axis, 0), axis + 1, 1)
        starts = tensors.reshape(tensors.values(start, self.along(tensors, span)), (span.size, 1))
        indices = tensors.add(starts, tensors.times(tensors.iota((length,), 0), step))
        data = tensors.never_empty(data, axis + is_lifted, self.sizes)
        if is_lifted:
            return tensors.gather(data, indices, axis + 1, batch=1)
        return tensors.moved(tensors.gather(data, indices, axis), axis, 0)

    def layout(self, layout: Layout) -> Layout:
        return tuple(0 if axis == self.symbol else axis + 1 if isinstance(axis, int) else axis for axis in layout)

    def output(self, output: Output) -> Output:
        """An output is lifted where what it reads is."""
        tensors = Tensors(self.new, output.location)
        if self.symbol not in output.domain:
            return replace(output, edge=self.read(tensors, output.edge, None)[0])
        fits = output.edge.node in self.spans and readable(self.old, output.edge, self.symbol)
        edge, is_lifted = self.read(tensors, output.edge, self.whole if fits else None)
        if not is_lifted:
            return replace(output, edge=edge)
        domain = tuple(symbol for symbol in output.domain if symbol != self.symbol)
        type = _with_axis(output.type, self.whole.size)
        return replace(output, edge=edge, domain=domain, type=type, layout=self.layout(output.layout))


def _slices(map: IndexMap) -> int:
    return sum(isinstance(index, Slice) for index in map)


def _with_axis(type: TensorType, size: Expr) -> TensorType:
    return replace(type, shape=(size, *type.shape))


def default_layout(domain: tuple[Symbol, ...], type: TensorType) -> Layout:
    return (*domain, *range(len(type.shape)))


_Rule = Callable[[_Lifting, Tensors, Node, Span], Edge]
_RULES: dict[str, _Rule] = {
    "index_value": _Lifting.index_value,
    "condition_value": _Lifting.condition_value,
    "slice": _Lifting.slice,
}
