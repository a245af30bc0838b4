"""Which points of each node a program needs, symbolically, for every size.

The demand is the least fixed point that starts at the outputs and sinks and follows every read under its condition.
What is kept of it is a box per node: the hull. It is never too small; it may be too large, then `exact` is False.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from tempo.analysis.demand.images import Image, Images, Readers, covers, hull
from tempo.analysis.dependence.host_order import own_order
from tempo.analysis.reports import output_reader
from tempo.sdg.components import greatest_fixed_point, strongly_connected
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import TRUE, Box, Condition, Context, Dim, Symbol, const

# A bound that moves after so many moves goes to the end of the domain. Each counts its own: where one moves at every
# turn of a cycle (layers), another may move once and stay (the tokens that all layers but the last are needed at).
_MOVES_BEFORE_WIDENING = 2
_NARROWINGS = 2
# Of a node whose demand is no box so many boxes are told apart, and so often.
_MOST_BOXES, _MOST_VISITS = 4, 4


@dataclass(frozen=True)
class Demand:
    """The hull of the demanded points; `exact` when all its points and no others are, proven for all sizes."""

    box: Box
    exact: bool


def demand(
    graph: Graph, facts: Condition = TRUE, readers: Readers | None = None, thorough: bool = False
) -> Mapping[int, Demand]:
    """The demand of every node that an output or a sink reaches. `facts` is what is known of the sizes.

    `readers`: those of the facts, where several graphs share them. `thorough`: more is proven to be exact, and more
    slowly, by what is demanded for sure of nodes whose demand is no box.
    """
    solver = _FixedPoint(graph, readers or Readers(facts))
    found = solver.solve()
    if not thorough:
        return found
    certain = solver.surely([id for id in found if id in solver.boxes])
    return {id: solver.result(id, certain.get(id) == (solver.boxes.get(id),)) for id in found}


def certain_points(
    graph: Graph, facts: Condition = TRUE, readers: Readers | None = None, doubtful: Collection[int] = ()
) -> Mapping[int, tuple[Box, ...]]:
    """For every node that is reached, boxes whose points are demanded, all of them, proven for all sizes.

    They are all the points that are demanded where the demand is a box, or is read by such as boxes. Of nodes that are
    `doubtful`, since only a cycle may demand them, it is what others demand.
    """
    solver = _FixedPoint(graph, readers or Readers(facts))
    found = solver.solve()
    exact = {id: (box,) for id, box in solver.boxes.items() if found[id].exact and id not in doubtful}
    return {id: exact.get(id) or solver.apart(solver.certain(id, exact)) for id in found}


class _FixedPoint:
    """`boxes` holds an over-approximation of the demand of what has been solved so far."""

    def __init__(self, graph: Graph, readers: Readers) -> None:
        self.graph = graph
        self.images = Images(graph, readers)
        self.sizes = self.images.sizes
        self.boxes: dict[int, Box] = {}
        self._parts: dict[int, tuple[Box, ...]] = {}  # what is remembered until a consumer sends something else
        self._demanded: dict[int, Box] = {}
        # What sinks and outputs need, and by producer and consumer what the consumers that are solved read.
        self.wholes = {id: Box.full(graph.domain_dims(graph.nodes[id])) for id in graph.sinks}
        self.seeds: dict[int, list[Image]] = defaultdict(list)
        self.incoming: dict[int, dict[int, list[Image]]] = defaultdict(dict)
        for output in graph.outputs:
            reader = output_reader(output)
            self.seeds[output.edge.node] += self.images.of(reader, Box.full(graph.domain_dims(reader)))

    def solve(self) -> Mapping[int, Demand]:
        reads = {id: [edge.node for _, edge in node.reads()] for id, node in self.graph.nodes.items()}
        components = strongly_connected([*self.wholes, *self.seeds], reads)
        components.reverse()  # consumers first
        for component in components:
            self.solve_component(component, cyclic=len(component) > 1 or component[0] in reads[component[0]])
        exact = self.proven([id for component in components for id in component if id in self.boxes])
        return {id: self.result(id, id in exact) for component in components for id in component}

    def result(self, id: int, exact: bool) -> Demand:
        """A node that is only reached through conditions that never hold has an empty box (none, without dims)."""
        if id in self.boxes:
            return Demand(self.boxes[id], exact)
        domain = self.graph.nodes[id].domain
        return Demand(Box(tuple((symbol, const(0), const(0)) for symbol in domain)), exact=bool(domain))

    def solve_component(self, component: tuple[int, ...], cyclic: bool) -> None:
        place = {id: number for number, id in enumerate(component)}
        pending = [place[id] for id in component if self.parts(id)]  # a heap
        queued = set(pending)
        moves: dict[tuple[int, Symbol, str], int] = defaultdict(int)
        while pending:
            number = heappop(pending)
            queued.remove(number)
            id = component[number]
            box = self.grown(id, moves)
            if box == self.boxes.get(id):
                continue
            for producer in self.send(id, box) & place.keys():
                if place[producer] not in queued:
                    heappush(pending, place[producer])
                    queued.add(place[producer])
        for id in component * _NARROWINGS if cyclic else ():
            if id in self.boxes and self.parts(id) and self.demanded(id) != self.boxes[id]:
                self.send(id, self.demanded(id))

    def send(self, id: int, box: Box) -> set[int]:
        """Gives `id` a box and its producers what this box reads; says which producers there are."""
        self.boxes[id] = box
        node = self.graph.nodes[id]
        read: dict[int, list[Image]] = {edge.node: [] for _, edge in node.reads()}
        for image in self.images.of(node, box):
            read[image.producer].append(image)
        for producer, found in read.items():
            before = self.incoming[producer].get(id)
            self.incoming[producer][id] = found
            if before is None or [image.box for image in before] != [image.box for image in found]:
                self._parts.pop(producer, None)
                self._demanded.pop(producer, None)
        return {producer for producer, found in read.items() if found}

    def parts(self, id: int) -> tuple[Box, ...]:
        """The boxes whose union is demanded, as far as it is known."""
        if id not in self._parts:
            found = [self.wholes[id]] if id in self.wholes else []
            found += [image.box for image in self.seeds.get(id, ())]
            found += [image.box for read in self.incoming[id].values() for image in read]
            self._parts[id] = tuple(found if len(found) < 2 else dict.fromkeys(found))
        return self._parts[id]

    def demanded(self, id: int) -> Box:
        if id not in self._demanded:
            node = self.graph.nodes[id]
            box = hull(self.parts(id), self.sizes)
            is_call = node.is_host_call
            self._demanded[id] = closed(node, box, self.graph.domain_dims(node), self.sizes) if is_call else box
        return self._demanded[id]

    def grown(self, id: int, moves: dict[tuple[int, Symbol, str], int]) -> Box:
        """The demand together with what was known; a bound that has moved often goes to the end of the domain."""
        box, previous = self.demanded(id), self.boxes.get(id)
        if previous is None:
            return box
        both, bounds = hull((previous, box), self.sizes), []
        for dim in self.graph.domain_dims(self.graph.nodes[id]):
            symbol = dim.symbol
            (lo, hi), (low, high), (least, most) = (each.interval(symbol) for each in (previous, box, both))
            if not self.sizes.implies(lo.le(low)):
                moves[id, symbol, "lo"] += 1
                lo = least if moves[id, symbol, "lo"] <= _MOVES_BEFORE_WIDENING else const(0)
            if not self.sizes.implies(hi.ge(high)):
                moves[id, symbol, "hi"] += 1
                hi = most if moves[id, symbol, "hi"] <= _MOVES_BEFORE_WIDENING else dim.size
            bounds.append((symbol, lo, hi))
        return Box(tuple(bounds))

    def proven(self, order: list[int]) -> set[int]:
        """Nodes whose every point in the box is demanded.

        Assumes it of all and drops what fails until nothing does. An instance that is in an assumed box and not
        demanded is read by another such instance; as instances depend on one another without cycles, there is none.
        """
        return greatest_fixed_point(order, self.is_exact, self.graph.producers)

    def surely(self, order: list[int]) -> Mapping[int, tuple[Box, ...]]:
        """Boxes of nodes whose points are all demanded, by the argument of `proven`: where the whole box is not, what
        those read who are demanded for sure is assumed, until all that is assumed is so.
        """
        whole: dict[int, tuple[Box, ...]] = {id: (self.boxes[id],) for id in order}
        found, visits, pending = dict(whole), dict.fromkeys(order, 0), list(order)
        while pending:
            id = pending.pop(0)
            parts = self.apart(self.certain(id, found))
            if all(covers(box, parts, self.sizes) for box in found[id]):
                continue
            visits[id] += 1
            is_call = self.graph.nodes[id].is_host_call
            found[id] = () if is_call or visits[id] > _MOST_VISITS or len(parts) > _MOST_BOXES else parts
            pending += [edge.node for _, edge in self.graph.nodes[id].reads() if edge.node in found]
        return found

    def certain(self, id: int, demanded: Mapping[int, tuple[Box, ...]]) -> list[Box]:
        """What is surely demanded of a node, where all points in these boxes of its readers are demanded."""
        parts = [image.box for image in self.seeds.get(id, ()) if image.exact]
        for consumer, whole in self.incoming[id].items():
            boxes = demanded.get(consumer, ())
            read = whole
            if boxes != (self.boxes[consumer],):
                node = self.graph.nodes[consumer]
                read = [image for box in boxes for image in self.images.of(node, box) if image.producer == id]
            parts += [image.box for image in read if image.exact]
        return parts + ([self.wholes[id]] if id in self.wholes else [])

    def apart(self, boxes: list[Box]) -> tuple[Box, ...]:
        """The boxes without those that others cover."""
        kept = list(dict.fromkeys(boxes))
        for box in tuple(kept):
            others = [other for other in kept if other is not box]
            if others and covers(box, others, self.sizes):
                kept = others
        return tuple(kept)

    def is_exact(self, id: int, exact: set[int]) -> bool:
        node, box = self.graph.nodes[id], self.boxes[id]
        parts = self.certain(id, {consumer: (self.boxes[consumer],) for consumer in self.incoming[id].keys() & exact})
        if not node.is_host_call or not parts:
            return covers(box, parts, self.sizes)
        needed = hull(parts, self.sizes)
        if closed(node, needed, self.graph.domain_dims(node), self.sizes) != box:
            return False
        return covers(needed, parts, self.sizes) and closes_exactly(node, needed, box, self.sizes)


def closed(node: Node, box: Box, dims: tuple[Dim, ...], sizes: Context) -> Box:
    """The smallest box around the lexicographic prefixes, along the ordered dims, that contain `box`.

    An inner ordered dim runs over its whole range as soon as an outer one may pass its first point.
    """
    ordered = own_order(node).ordered
    bounds = []
    first_only = True
    for dim, (symbol, lo, hi) in zip(dims, box.bounds, strict=True):
        if symbol not in ordered:
            bounds.append((symbol, lo, hi))
            continue
        bounds.append((symbol, const(0), hi if first_only else dim.size))
        first_only = first_only and sizes.implies(hi.le(1))
    return Box(tuple(bounds))


def closes_exactly(node: Node, needed: Box, prefix: Box, sizes: Context) -> bool:
    """Whether the prefixes that contain the points of `needed` are all of `prefix`, which is `closed(needed)`."""
    if needed == prefix:
        return True
    if not all(sizes.implies(hi.gt(lo)) for _, lo, hi in needed.bounds):
        return False
    ordered = [symbol for symbol, _, _ in needed.bounds if symbol in own_order(node).ordered]
    return all(needed.hi(symbol) == prefix.hi(symbol) for symbol in ordered[1:]) or all(
        sizes.implies(needed.hi(symbol).le(1)) for symbol in ordered[:-1]
    )
