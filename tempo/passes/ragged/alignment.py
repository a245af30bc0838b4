"""Axes whose positions move with a dim, and the one frame in which all points along the dim can hold them at once.

`k[0:t + 1]`, `r[t:min(t + n, T)]` and `q[t:T]` are axes of other elements at every t. In a *frame* such an axis has
an extent made of sizes alone: position p of it holds element p - shift, and means something where
0 <= p - shift < length. With the shift that makes position p the same point of what is read whatever t is, the read
is one hull for all t, which no axis for t repeats: `k[0:T]`, valid for t where p <= t.

Axes that one operator takes together, by its axis rule, hold the same elements at the same positions: they are one
class and get one frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from tempo.analysis.demand.demand import Demand
from tempo.costs import LikelySizes
from tempo.errors import UnsupportedError
from tempo.passes.ragged.values import Frame, Hulls
from tempo.sdg.builder import expressions
from tempo.sdg.components import connected, greatest_fixed_point
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, index_exprs
from tempo.sdg.operators import OPERATORS, Operator, Role, factors_of
from tempo.sdg.operators.axes import Factor
from tempo.symbolic import Context, Dim, Expr, Symbol, const, maximum, var

MOST_WIDENING = 2
"""A hull for all points may be so many times as long as the longest single read, or each point gets its own copy."""


class Frames:
    """The nodes with axes that move with `symbol` for which frames were found: `nodes`.

    `meaningful` tells whether every point within the box of a node's demand may be read along a dim; nodes that are not
    in `allowed` get no frames.
    """

    def __init__(
        self,
        graph: Graph,
        symbol: Symbol,
        demands: Mapping[int, Demand],
        hulls: Hulls,
        allowed: Collection[int],
        meaningful: Callable[[int, Symbol], bool],
        sizes: LikelySizes,
    ) -> None:
        self.graph, self.symbol, self.demands, self.hulls = graph, symbol, demands, hulls
        self.meaningful, self.sizes = meaningful, sizes
        self._contexts: dict[tuple[Dim, ...], Context] = {}
        self.axes: dict[int, Axes] = {}
        self.reads: dict[tuple[int, Edge], Axes] = {}
        self.ragged = {node.id for node in graph.nodes.values() if node.id in demands and self.is_ragged(node)}
        self.nodes: set[int] = set()
        for node in graph.operands_first() if self.ragged else ():
            if node.id in self.ragged:
                self._visit(node, node.id in allowed)
        self._pin_what_others_read()
        self._resolve()

    def is_ragged(self, node: Node) -> bool:
        """Whether the node has an axis that moves, or sees one."""
        shapes = [type.shape for type in node.results] + [self.graph.seen_type(edge).shape for _, edge in node.reads()]
        moves = any(
            isinstance(index, Slice) and self.mentions(*index_exprs(index))
            for _, edge in node.reads()
            for index in edge.map
        )
        return moves or any(self.mentions(size) for shape in shapes for size in shape)

    def _visit(self, node: Node, allowed: bool) -> None:
        try:
            if not allowed or node.is_nominal or node.op not in OPERATORS or len(node.results) != 1:
                raise Refused
            views = [self._view(node, edge) for edge in node.operands]
            self.axes[node.id] = self.axes_of(node, views)
        except Refused:
            return
        self.nodes.add(node.id)
        for axis in (*self.axes[node.id], *(axis for view in views for axis in view)):
            if axis is not None:
                axis.root().members.append(node)

    def _view(self, node: Node, edge: Edge) -> Axes:
        """The axes that a node sees through an edge: the same where it reads it twice."""
        if (node.id, edge) in self.reads:
            return self.reads[node.id, edge]
        producer = self.graph.nodes[edge.node]
        slices = [
            self._sliced(node, producer, dim, i) for dim, i in zip(producer.domain, edge.map) if isinstance(i, Slice)
        ]
        own = self._own(producer, edge)
        view = (*slices, *own)
        self.reads[node.id, edge] = view
        return view

    def _sliced(self, node: Node, producer: Node, dim: Symbol, index: Point | Slice) -> AxisClass | None:
        if not isinstance(index, Slice) or not self.mentions(*index_exprs(index)):
            return None
        if index.extent is not None or not self.meaningful(producer.id, dim):
            raise Refused
        lo, hi = self.interval(producer.id, dim)
        return AxisClass(index.length, [Window(index.start, lo, hi)], [node])

    def interval(self, id: int, dim: Symbol) -> tuple[Expr, Expr]:
        """What of a node is there along a dim; nothing where the bounds are out of order, as they may be."""
        lo, hi = self.demands[id].box.interval(dim)
        return lo, hi if self.hulls.sizes.implies(hi.ge(lo)) else maximum(lo, hi)

    def _own(self, producer: Node, edge: Edge) -> Axes:
        """The producer's axes: in its frames at the same point; at another, as they were, where none there moves."""
        sizes = producer.results[edge.result].shape
        nowhere: Axes = (None,) * len(sizes)
        if producer.id not in self.nodes:
            if any(self.mentions(size) for size in self.graph.seen_type(edge).shape[-len(sizes) :] if sizes):
                raise Refused
            return nowhere
        own = self.axes[producer.id]
        if all(axis is None for axis in own):
            return nowhere
        needed = {symbol for size in sizes for symbol in size.dims()} | {self.symbol}
        here = all(
            index == Point(var(dim)) for dim, index in zip(producer.domain, edge.map, strict=True) if dim in needed
        )
        if here:
            return own
        slices = [index for index in edge.map if isinstance(index, Slice)]
        if self.mentions(*sizes) or any(self.mentions(*index_exprs(index)) for index in slices):
            raise Refused
        self._pin(own)
        return nowhere

    @staticmethod
    def _pin(axes: Axes) -> None:
        for axis in axes:
            if axis is not None:
                axis.root().rigid = True

    def _pin_what_others_read(self) -> None:
        """What is read by nodes without frames is read as it was: its first element is at position 0."""
        edges: list[tuple[int | None, Edge]] = [(None, output.edge) for output in self.graph.outputs]
        edges += [(node.id, edge) for node in self.graph.nodes.values() for _, edge in node.reads()]
        for reader, edge in edges:
            if edge.node in self.nodes and reader not in self.nodes:
                self._pin(self.axes[edge.node])

    def closed(self, chosen: Collection[int]) -> set[int]:
        """Those of `chosen` with frames that read no moving axes of others."""

        def reads_others(id: int, inside: set[int]) -> bool:
            outside = (edge for edge in self.graph.nodes[id].operands if edge.node not in inside)
            return any(self.in_frames(edge, self.reads[id, edge]) for edge in outside)

        return self._left({id for id in chosen if id in self.nodes}, reads_others)

    def _left(self, nodes: set[int], loses: Callable[[int, set[int]], bool]) -> set[int]:
        """Without those that lose their frames, given those that have them."""
        consumers = self.graph.consumers
        return greatest_fixed_point(
            nodes, lambda id, left: not loses(id, left), lambda id: (reader for reader, _ in consumers[id])
        )

    def in_frames(self, edge: Edge, view: Axes) -> bool:
        """Whether the axes of the producer itself are seen in its frames, not as they were."""
        slices = sum(isinstance(index, Slice) for index in edge.map)
        return any(axis is not None for axis in view[slices:])

    def context(self, symbols: Iterable[Symbol]) -> Context:
        """What holds at every point of the dims. Of others there may be none, which would say something of sizes."""
        dims = tuple(map(self.graph.dim, self.graph.canonical(symbols)))
        if dims not in self._contexts:
            self._contexts[dims] = Context.of(dims, self.hulls.facts)
        return self._contexts[dims]

    def groups(self) -> list[tuple[int, ...]]:
        """The nodes with frames, by what hangs together through axes that move."""
        reads = ((id, edge) for id in self.nodes for edge in self.graph.nodes[id].operands if edge.node in self.nodes)
        framed = ((id, edge.node) for id, edge in reads if self.in_frames(edge, self.reads[id, edge]))
        return connected(self.nodes, framed)

    def held(self, node: Node, looped: Collection[Symbol]) -> list[tuple[Expr, ...]]:
        """The shapes of what is there for all points at once, of the result and of what is copied for every point.

        The node's dims are in front, but for those in `looped`.
        """
        dims = tuple(dim.size for dim in self.graph.domain_dims(node) if dim.symbol not in looped)
        shapes = [(*dims, *self.physical(node))]
        for edge in node.operands:
            axes = [(axis, axis.root().frame) for axis in self.reads[node.id, edge] if axis is not None]
            copied = any(
                frame and self.mentions(window.start - frame.shift) for a, frame in axes for window in a.windows
            )
            if copied:
                sizes = zip(self.graph.seen_type(edge).shape, self.reads[node.id, edge])
                shapes.append((*dims, *(self._physical(size, axis) for size, axis in sizes)))
        return shapes

    @staticmethod
    def _physical(size: Expr, axis: AxisClass | None) -> Expr:
        frame = None if axis is None else axis.root().frame
        return size if frame is None else frame.extent

    def elements(self, sizes: Iterable[Expr]) -> int:
        return math.prod(self.sizes.extent(size) for size in sizes)

    def physical(self, node: Node) -> tuple[Expr, ...]:
        """The shape of a node in its frames."""
        return tuple(self._physical(size, axis) for size, axis in zip(node.shape, self.axes[node.id]))

    # -- axes, by the rules of operators -----------------------------------------------------------------------------

    def mentions(self, *exprs: Expr) -> bool:
        return any(self.symbol in expr.symbols() for expr in exprs)

    def axes_of(self, node: Node, views: Sequence[Axes]) -> Axes:
        """The axes of the result, of what a node sees, by the axis rule of its operator; raises Refused."""
        operator = OPERATORS[node.op]
        if node.attr("checked") or self._is_told(node, operator):
            raise Refused
        factors = factors_of(node, self.graph.seen_type)
        moving = {(n, at) for n, view in enumerate(views) for at, axis in enumerate(view) if axis is not None}
        if not moving <= {place for factor in factors for place in factor.places}:
            raise Refused  # one that repeats
        found = {factor.result: self._followed(node, operator, factor, views) for factor in factors}
        return tuple(found.get(place) for place in range(len(node.shape)))

    def _is_told(self, node: Node, operator: Operator) -> bool:
        """Whether what varies along the dim is more than sizes and places, or the value of an expression."""
        plain = {key: value for key, value in node.attrs if key not in operator.entries}
        return operator.kind != "creation" and any(self.symbol in e.symbols() for e in expressions(node.op, plain))

    def _followed(self, node: Node, operator: Operator, factor: Factor, views: Sequence[Axes]) -> AxisClass | None:
        """What the result's axis is, if the factor has one."""
        seen = [views[number][axis] for number, axis in factor.places]
        size = None if factor.result is None else node.shape[factor.result]
        axis: AxisClass | None = reduce(self._joined, seen, None)
        if factor.role in (Role.MOVING, Role.MAJOR, Role.OPAQUE):
            if axis is not None or (size is not None and self.mentions(size)):
                raise Refused
            return None
        if not seen or (factor.role is Role.WINDOW and operator.kind == "movement"):
            # Any frame suits; padding goes where the axis that it makes begins.
            return AxisClass(size) if size is not None and self.mentions(size) else None
        if axis is None:
            return None
        counts = factor.ordered or factor.role in (Role.SCANNING, Role.WINDOW)
        axis.root().rigid = axis.root().rigid or counts or None in seen
        return AxisClass(size, rigid=True) if factor.role is Role.WINDOW and size is not None else axis

    @staticmethod
    def _joined(one: AxisClass | None, other: AxisClass | None) -> AxisClass | None:
        """One class for both, where both are given."""
        if one is None or other is None:
            return one or other
        left, right = one.root(), other.root()
        if left is right:
            return left
        if left.length != right.length:
            raise Refused
        left.windows += right.windows
        left.members += right.members
        left.rigid = left.rigid or right.rigid
        right.into = left
        return left

    # -- frames ------------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """A frame for every class, or none for its nodes nor for what reads them."""
        own = [self.axes[number] for number in self.nodes]
        own += [axes for (number, _), axes in self.reads.items() if number in self.nodes]
        roots = {id(axis.root()): axis.root() for axes in own for axis in axes if axis is not None}
        for axis in roots.values():
            try:
                axis.frame = self._frame(axis)
            except UnsupportedError:
                self.nodes -= {node.id for node in axis.members}
        self.nodes = self._left(self.nodes, self._is_stranded)

    def _is_stranded(self, id: int, framed: set[int]) -> bool:
        """Whether a node sees axes that move, of one that has no frames any more."""
        outside = (edge for edge in self.graph.nodes[id].operands if edge.node not in framed)
        shapes = (self.graph.nodes[edge.node].results[edge.result].shape for edge in outside)
        return any(self.mentions(size) for shape in shapes for size in shape)

    def _frame(self, axis: AxisClass) -> Frame:
        own = Frame(const(0), axis.length, self._extent(axis, axis.length))
        for window in [] if axis.rigid else axis.windows:
            if not self.mentions(window.start):
                return own
            shift = self.hulls.sizes.simplify(window.start - window.lo)
            hull = Frame(shift, axis.length, self._extent(axis, shift + axis.length))
            if self.sizes.extent(hull.extent) <= MOST_WIDENING * self.sizes.extent(own.extent):
                return hull
        return own

    def _extent(self, axis: AxisClass, expr: Expr) -> Expr:
        found = {self.hulls.hull(expr, node) for node in axis.members}
        extent = self.hulls.sizes.simplify(maximum(*found)) if len(found) > 1 else found.pop()
        wholes = (window.hi - window.lo for window in axis.windows)  # what is read is in range
        return next((whole for whole in wholes if self.hulls.sizes.implies(extent.ge(whole))), extent)


@dataclass(frozen=True)
class Window:
    """What one axis of a read shows: `start, ..., start + length - 1` of a dim of which `lo, ..., hi - 1` exist."""

    start: Expr
    lo: Expr
    hi: Expr


@dataclass
class AxisClass:
    """Axes that hold the elements of the same positions, as far as they are known to: a class of a union-find."""

    length: Expr
    windows: list[Window] = field(default_factory=list)
    members: list[Node] = field(default_factory=list)
    rigid: bool = False  # element 0 is at position 0
    into: AxisClass | None = None
    frame: Frame | None = None

    def root(self) -> AxisClass:
        return self if self.into is None else self.into.root()


Axes = tuple[AxisClass | None, ...]
"""For every axis of a value, what it is an axis of; None where its positions do not move."""


class Refused(Exception):
    """The operator cannot be made to work on axes in frames."""
