"""Blocks along an axis that only folds remove: the examples of a batch, the points of a minibatch.

What is made of each position by itself and then folded (a loss, the gradients of weights) need not be there for all
positions: an axis is cut into blocks, a dim that is run one by one, all that lies between what is read and the folds is
made of one block, and what the folds give is added up across blocks.

    sum(f(x[:, ...]), 0)    =    s[n - 1],    s[0] = sum(f(x[0:Z])),    s[o] = s[o - 1] + sum(f(x[Z o:Z o + Z]))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tempo.costs import LikelySizes
from tempo.passes.manager import Decided, PassContext
from tempo.passes.recurrence.prefix import accumulator
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.builder import fresh_dim
from tempo.sdg.components import connected
from tempo.sdg.graph import Edge, Graph, Node, Point
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.operators.axes import Factor
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Dim, Expr, Symbol, const, var

Place = tuple[int, int]
"""A node, and an axis of it."""


@dataclass(frozen=True)
class FoldBlocks:
    """`fold_blocks`: into how many blocks the axis is cut between whose folds the most bytes lie. None: no axis is."""

    fold_blocks: int | None = None
    name: ClassVar[str] = "fold_blocks"

    def apply(self, graph: Graph, context: PassContext) -> Graph | Decided[Graph]:
        if self.fold_blocks is None:
            return graph
        graph, sizes = without_dead_nodes(graph), LikelySizes(context.sizes)
        found = max(regions(graph), key=lambda region: region.bytes(sizes), default=None)
        extent = None if found is None else context.over(graph, ()).simplify(found.extent)
        if found is None or extent is None or not extent.is_const or extent.as_int() < 2:
            return Decided(graph, ("fold_blocks: no axis that only folds remove, of a number of positions",))
        positions = extent.as_int()
        size = -(-positions // min(self.fold_blocks, positions))
        said = f"fold_blocks: {positions} positions in blocks of {size}, {len(found.folds)} folds added up across them"
        return Decided(_Blocks(found, positions, size).graph(), (said,))


@dataclass(frozen=True)
class Region:
    """What lies between reads of an axis and the folds that remove it; nobody else reads it."""

    graph: Graph
    places: frozenset[Place]
    folds: tuple[tuple[int, Factor], ...]

    @property
    def extent(self) -> Expr:
        id, factor = self.folds[0]
        number, axis = factor.places[0]
        return self.graph.seen_type(self.graph.nodes[id].operands[number]).shape[axis]

    def bytes(self, sizes: LikelySizes) -> int:
        return sum(sizes.bytes(self.graph.nodes[id]) for id, _ in self.places)


def factors_of(graph: Graph, node: Node) -> Sequence[Factor]:
    shapes = [graph.seen_type(edge).shape for edge in node.operands]
    return OPERATORS[node.op].axes(node.attributes, shapes, node.shape)


def regions(graph: Graph) -> Iterator[Region]:
    """By axis, where there is something in between."""
    search = _Search(graph)
    places = sorted(search.held())
    folds = [(id, factor) for id, factor in search.folds if any(search.reads(id, factor, place) for place in places)]
    names = {place: number for number, place in enumerate(places)}
    ends = {fold: len(places) + number for number, fold in enumerate(folds)}
    pairs = [(names[place], names[below]) for place in places for below in search.below[place] if below in names]
    pairs += [(ends[fold], names[place]) for fold in folds for place in places if search.reads(*fold, place)]
    for group in connected(range(len(places) + len(folds)), pairs):
        inside = frozenset(places[number] for number in group if number < len(places))
        ending = tuple(folds[number - len(places)] for number in group if number >= len(places))
        if inside and ending and all(len([0 for id, _ in inside if id == each]) == 1 for each, _ in inside):
            yield Region(graph, inside, ending)


@dataclass
class _Search:
    graph: Graph
    folds: list[tuple[int, Factor]] = field(default_factory=list)
    below: dict[Place, tuple[Place, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.graph.nodes.values():
            if node.is_nominal or OPERATORS[node.op].combine is None:
                continue
            for factor in factors_of(self.graph, node):
                if factor.role is Role.REDUCING and factor.result is None and not factor.ordered:
                    self.folds.append((node.id, factor))
        pending = [place for id, factor in self.folds for place in self.operands(self.graph.nodes[id], factor)]
        while pending:
            place = pending.pop()
            if place in self.below:
                continue
            kept = self.kept(place)
            if kept is not None:
                self.below[place] = tuple(self.operands(self.graph.nodes[place[0]], kept))
                pending += self.below[place]

    def kept(self, place: Place) -> Factor | None:
        """The factor of a node that makes each position of the axis by itself."""
        node = self.graph.nodes[place[0]]
        if node.is_nominal or node.is_given or not node.operands or len(node.results) > 1:
            return None
        found = next((factor for factor in factors_of(self.graph, node) if factor.result == place[1]), None)
        return found if found is not None and found.role is Role.PARALLEL and not found.ordered else None

    def operands(self, node: Node, factor: Factor) -> Iterator[Place]:
        """What is read along a factor, of operands that are read as they are."""
        for number, axis in factor.places:
            if self.graph.view(node.operands[number]) is not None:
                yield node.operands[number].node, axis

    def reads(self, id: int, factor: Factor, place: Place) -> bool:
        return place in self.operands(self.graph.nodes[id], factor)

    def held(self) -> set[Place]:
        """The places that nobody reads but such places and folds."""
        found, folds = set(self.below), dict[int, list[Factor]]()
        for id, factor in self.folds:
            folds.setdefault(id, []).append(factor)
        while True:
            lost = {place for place in found if not self.stays(place, found, folds)}
            if not lost:
                return found
            found -= lost

    def stays(self, place: Place, found: set[Place], folds: dict[int, list[Factor]]) -> bool:
        if place[0] in self.graph.shown or place[0] in self.graph.sinks:
            return False
        readers = {id for id, _ in self.graph.consumers[place[0]]}
        return all(self.takes(self.graph.nodes[id], place, found, folds) for id in readers)

    def takes(self, reader: Node, place: Place, found: set[Place], folds: dict[int, list[Factor]]) -> bool:
        """Whether all that a node reads of a place goes into a fold of it, or into its own place."""
        if reader.is_nominal:
            return False
        axes = [axis for id, axis in found if id == reader.id]
        ways = [factor for factor in factors_of(self.graph, reader) if factor.result in axes]
        ways += folds.get(reader.id, [])
        for number, edge in enumerate(reader.operands):
            if edge.node != place[0]:
                continue
            if not self.graph.is_identity(edge) or not any(way.operands[number] == place[1] for way in ways):
                return False
        return True


class _Blocks:
    def __init__(self, region: Region, positions: int, size: int) -> None:
        self.region, self.old, self.positions, self.size = region, region.graph, positions, size
        self.count = -(-positions // size)
        self.symbol: Symbol = fresh_dim("block", (dim.symbol.name for dim in self.old.dims))
        self.dims = (*self.old.dims, Dim(self.symbol, const(self.count), sequential=True))
        self.axis_of = dict(region.places)
        self.new = Rewriter(Graph(self.dims, self.old.nodes, self.old.outputs, self.old.sinks))
        self.made: dict[tuple[Edge, int, int], Edge] = {}

    def graph(self) -> Graph:
        for id, factor in self.region.folds:
            self.add_up(self.old.nodes[id], factor)
        return without_dead_nodes(Graph(self.dims, self.new.nodes, self.old.outputs, self.old.sinks))

    def add_up(self, node: Node, factor: Factor) -> None:
        tensors, last = Tensors(self.new, node.location), self.count - 1
        rest = self.positions - last * self.size
        whole = self.folded(tensors, node, factor, self.size)
        end = None if rest == self.size or not last else (const(last), self.folded(tensors, node, factor, rest))
        first = whole if last else self.folded(tensors, node, factor, rest)
        total = accumulator(tensors, node, self.symbol, True, const(0), first, whole, end)
        map = tuple(Point(const(last)) if index == Point(var(self.symbol)) else index for index in total.map)
        self.new.put(node, tensors.cast(Edge(total.node, map), node.dtype))

    def folded(self, tensors: Tensors, node: Node, factor: Factor, length: int) -> Edge:
        operands = self.operands(tensors, node, factor, length)
        return tensors.apply(node.op, *operands, **node.attributes)

    def operands(self, tensors: Tensors, node: Node, factor: Factor, length: int) -> list[Edge]:
        return [
            edge if axis is None else self.block(tensors, edge, axis, length)
            for edge, axis in zip(node.operands, factor.operands, strict=True)
        ]

    def block(self, tensors: Tensors, edge: Edge, axis: int, length: int) -> Edge:
        """Of what an edge shows, the positions of a block, `length` of them."""
        key = edge, axis, length
        if key not in self.made:
            inside = self.axis_of.get(edge.node) == axis and self.old.view(edge) is not None
            make = self.again if inside else self.cut
            self.made[key] = make(tensors, edge, axis, length)
        return self.made[key]

    def cut(self, tensors: Tensors, edge: Edge, axis: int, length: int) -> Edge:
        return tensors.cut(edge, axis, self.size * var(self.symbol), const(length))

    def again(self, tensors: Tensors, edge: Edge, axis: int, length: int) -> Edge:
        node = self.old.nodes[edge.node]
        factor = next(each for each in factors_of(self.old, node) if each.result == axis)
        shape = (*node.shape[:axis], const(length), *node.shape[axis + 1 :])
        attrs = OPERATORS[node.op].resized(node.attributes, shape)
        return tensors.apply(node.op, *self.operands(tensors, node, factor, length), **attrs)
