"""Blocks along an axis that only folds remove: the examples of a batch, the points of a minibatch.

What is made of each position by itself and then folded (a loss, the gradients of weights) need not be there for all
positions: an axis is cut into blocks, a dim that is run one by one, all that lies between what is read and the folds is
made of one block, and what the folds give is added up across blocks.

    sum(f(x[:, ...]), 0)    =    s[n - 1],    s[0] = sum(f(x[0:Z])),    s[o] = s[o - 1] + sum(f(x[Z o:Z o + Z]))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tempo.costs import LikelySizes
from tempo.passes.manager import Decided, PassContext
from tempo.passes.recompute.folds import Part
from tempo.passes.recurrence.prefix import accumulator, put_last
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.builder import fresh_dim
from tempo.sdg.components import connected, greatest_fixed_point
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.operators import OPERATORS, factors_of
from tempo.sdg.operators.axes import Factor, Factors
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


def regions(graph: Graph) -> Iterator[Region]:
    """By axis, where there is something in between."""
    search = _Search(graph)
    held = search.held()
    places = sorted(held)
    names = {place: number for number, place in enumerate(places)}
    folds = [(id, factor) for id, of in search.folds.items() for factor in of]
    pairs = [(names[place], names[below]) for place in places for below in search.below[place] if below in held]
    for number, (id, factor) in enumerate(folds, start=len(places)):
        pairs += [(number, names[place]) for place in search.operands(graph.nodes[id], factor) if place in held]
    for group in connected(range(len(places) + len(folds)), pairs):
        inside = frozenset(places[number] for number in group if number < len(places))
        ending = tuple(folds[number - len(places)] for number in group if number >= len(places))
        if inside and ending and len(dict(inside)) == len(inside):
            yield Region(graph, inside, ending)


@dataclass
class _Search:
    """`folds`: the factors that each node folds; `below`: the places that others are made of, position by position."""

    graph: Graph
    folds: dict[int, list[Factor]] = field(default_factory=dict)
    below: dict[Place, tuple[Place, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pending: list[Place] = []
        for node in self.graph.nodes.values():
            if node.is_nominal or OPERATORS[node.op].combine is None:
                continue
            self.folds[node.id] = [factor for factor in self.factors(node) if factor.folds]
            pending += (place for factor in self.folds[node.id] for place in self.operands(node, factor))
        while pending:
            place = pending.pop()
            kept = None if place in self.below else self.kept(place)
            if kept is not None:
                self.below[place] = tuple(self.operands(self.graph.nodes[place[0]], kept))
                pending += self.below[place]

    def factors(self, node: Node) -> Factors:
        return factors_of(node, self.graph.seen_type)

    def kept(self, place: Place) -> Factor | None:
        """The factor of a node that makes each position of the axis by itself."""
        node = self.graph.nodes[place[0]]
        if node.is_nominal or node.is_given or not node.operands or len(node.results) > 1:
            return None
        found = next((factor for factor in self.factors(node) if factor.result == place[1]), None)
        return found if found is not None and found.keeps else None

    def operands(self, node: Node, factor: Factor) -> Iterator[Place]:
        """What is read along a factor, of operands that are read as they are."""
        for number, axis in factor.places:
            if self.graph.view(node.operands[number]) is not None:
                yield node.operands[number].node, axis

    def held(self) -> set[Place]:
        """The places that nobody reads but such places and folds."""
        return greatest_fixed_point(self.below, self.stays, self.below.__getitem__)

    def stays(self, place: Place, found: set[Place]) -> bool:
        if place[0] in self.graph.shown or place[0] in self.graph.sinks:
            return False
        readers = {id for id, _ in self.graph.consumers[place[0]]}
        return all(self.takes(self.graph.nodes[id], place, found) for id in readers)

    def takes(self, reader: Node, place: Place, found: set[Place]) -> bool:
        """Whether all that a node reads of a place goes into a fold of it, or into its own place."""
        if reader.is_nominal:
            return False
        ways = [factor for factor in self.factors(reader) if factor.folds or (reader.id, factor.result) in found]
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
        self.new = Rewriter(Graph(self.dims, self.old.nodes, self.old.outputs, self.old.sinks))

    def graph(self) -> Graph:
        for id, factor in self.region.folds:
            self.add_up(self.old.nodes[id], factor)
        return without_dead_nodes(Graph(self.dims, self.new.nodes, self.old.outputs, self.old.sinks))

    def add_up(self, node: Node, factor: Factor) -> None:
        tensors, last = Tensors(self.new, node.location), self.count - 1
        rest = self.positions - last * self.size
        whole = self.part(tensors, self.size).folded(node, factor)
        end = None if rest == self.size or not last else (const(last), self.part(tensors, rest).folded(node, factor))
        first = whole if last else self.part(tensors, rest).folded(node, factor)
        total = accumulator(tensors, node, self.symbol, True, const(0), first, whole, end)
        put_last(self.new, tensors, node, total, self.symbol, const(last))

    def part(self, tensors: Tensors, length: int) -> Part:
        """The positions of a block, `length` of them."""

        def cut(edge: Edge, axis: int) -> Edge:
            return tensors.cut(edge, axis, self.size * var(self.symbol), const(length))

        return Part(self.old, tensors, const(length), self.is_inside, cut)

    def is_inside(self, edge: Edge, axis: int) -> bool:
        return (edge.node, axis) in self.region.places and self.old.view(edge) is not None
