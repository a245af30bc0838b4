"""Which points of each node a program needs, symbolically, for every size.

The demand is the least fixed point that starts at the outputs and sinks and follows every read under its condition.
What is kept of it is a box per node: the hull. It is never too small; it may be too large, then `exact` is False.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tempo.analysis.components import strongly_connected
from tempo.analysis.images import Memo, Region, covers, hull, images
from tempo.sdg.graph import Graph, Node, Output
from tempo.symbolic import TRUE, Box, Condition, Context, Dim, const

# A bound that still moves after this many visits of its component goes to the end of the domain.
_VISITS_BEFORE_WIDENING = 3
_NARROWINGS = 2


@dataclass(frozen=True)
class Demand:
    """The hull of the demanded points; `exact` when all its points and no others are, proven for all sizes."""

    box: Box
    exact: bool


def demand(graph: Graph, facts: Condition = TRUE) -> Mapping[int, Demand]:
    """The demand of every node that an output or a sink reaches. `facts` is what is known of the sizes."""
    return _Solver(graph, facts).solve()


class _Solver:
    """`boxes` holds an over-approximation of the demand of what has been solved so far."""

    def __init__(self, graph: Graph, facts: Condition) -> None:
        self.graph = graph
        self.facts = facts
        self.sizes = Context.of((), facts)
        self.boxes: dict[int, Box] = {}
        self.memo: Memo = {}
        # Regions by consumer: what the consumers that are solved demand.
        self.incoming: dict[int, dict[int, tuple[Region, ...]]] = defaultdict(dict)
        self.seeds: dict[int, tuple[Region, ...]] = defaultdict(tuple)
        for sink in graph.sinks:
            self.seeds[sink] = (Region(Box.full(graph.domain_dims(graph.nodes[sink])), True),)
        for output in graph.outputs:
            self.seeds[output.edge.node] += self.read_by(output)

    def read_by(self, output: Output) -> tuple[Region, ...]:
        reader = Node(-1, "copy", output.domain, (output.type,), (output.edge,))
        box = Box.full(self.graph.domain_dims(reader))
        return tuple(region for _, region in images(self.graph, reader, Region(box, True), self.facts, self.memo))

    def solve(self) -> Mapping[int, Demand]:
        reads = {id: [edge.node for _, edge in node.reads()] for id, node in self.graph.nodes.items()}
        components = strongly_connected(self.seeds, reads)
        components.reverse()  # consumers first
        for component in components:
            self.solve_component(component, cyclic=len(component) > 1 or component[0] in reads[component[0]])
        exact = self.proven(components)
        return {id: self.result(id, id in exact) for component in components for id in component}

    def result(self, id: int, exact: bool) -> Demand:
        """A node that is only reached through conditions that never hold has an empty box (none, without dims)."""
        if id in self.boxes:
            return Demand(self.boxes[id], exact)
        domain = self.graph.nodes[id].domain
        return Demand(Box(tuple((symbol, const(0), const(0)) for symbol in domain)), exact=bool(domain))

    def solve_component(self, component: tuple[int, ...], cyclic: bool) -> None:
        members = set(component)
        pending = [id for id in component if self.regions(id)]
        visits: dict[int, int] = defaultdict(int)
        while pending:
            id = pending.pop(0)
            visits[id] += 1
            box = self.demanded(id)
            previous = self.boxes.get(id)
            if previous is not None:
                box = self.grown(id, previous, box, widen=visits[id] > _VISITS_BEFORE_WIDENING)
            if box == previous:
                continue
            changed = self.send(id, box)
            if cyclic:
                pending += [target for target in changed if target in members and target not in pending]
        for id in component * _NARROWINGS if cyclic else ():
            if id in self.boxes and self.regions(id):
                self.send(id, self.demanded(id))

    def send(self, id: int, box: Box) -> list[int]:
        """Gives `id` a box and its producers what this box reads; says which producers there are."""
        self.boxes[id] = box
        read: dict[int, list[Region]] = defaultdict(list)
        for producer, region in images(self.graph, self.graph.nodes[id], Region(box, True), self.facts, self.memo):
            read[producer].append(region)
        for _, edge in self.graph.nodes[id].reads():
            self.incoming[edge.node][id] = tuple(read.get(edge.node, ()))
        return list(read)

    def regions(self, id: int) -> tuple[Region, ...]:
        return self.seeds.get(id, ()) + tuple(r for regions in self.incoming[id].values() for r in regions)

    def demanded(self, id: int) -> Box:
        node = self.graph.nodes[id]
        box = hull(self.regions(id), self.sizes)
        return closed(node, box, self.graph.domain_dims(node), self.sizes) if node.op == "host_call" else box

    def grown(self, id: int, previous: Box, box: Box, widen: bool) -> Box:
        """A box around both; when widening, a bound that moved goes to the end of the domain, so it moves once."""
        if not widen:
            return hull((Region(previous, True), Region(box, True)), self.sizes)
        bounds = []
        for dim, (symbol, lo, hi) in zip(self.graph.domain_dims(self.graph.nodes[id]), box.bounds, strict=True):
            lo = previous.lo(symbol) if self.sizes.implies(previous.lo(symbol).le(lo)) else const(0)
            hi = previous.hi(symbol) if self.sizes.implies(previous.hi(symbol).ge(hi)) else dim.size
            bounds.append((symbol, lo, hi))
        return Box(tuple(bounds))

    def proven(self, components: list[tuple[int, ...]]) -> frozenset[int]:
        """Nodes whose every point in the box is demanded.

        Assumes it of all and drops what fails until nothing does. An instance that is in an assumed box and not
        demanded is read by another such instance; as instances depend on one another without cycles, there is none.
        """
        exact = set(self.boxes)
        pending = [id for component in components for id in component if id in self.boxes]
        while pending:
            id = pending.pop(0)
            if id not in exact or self.is_exact(id, exact):
                continue
            exact.remove(id)
            pending += [edge.node for _, edge in self.graph.nodes[id].reads()]
        return frozenset(exact)

    def is_exact(self, id: int, exact: set[int]) -> bool:
        node = self.graph.nodes[id]
        regions = list(self.seeds.get(id, ()))
        for consumer, found in self.incoming[id].items():
            regions += found if consumer in exact else ()
        if node.op != "host_call":
            return covers(self.boxes[id], regions, self.sizes)
        if not regions or not covers(hull(regions, self.sizes), regions, self.sizes):
            return False
        needed = hull(regions, self.sizes)
        return needed == self.boxes[id] or closes_exactly(node, needed, self.boxes[id], self.sizes)


def closed(node: Node, box: Box, dims: tuple[Dim, ...], sizes: Context) -> Box:
    """The smallest box around the lexicographic prefixes, along the ordered dims, that contain `box`.

    An inner ordered dim runs over its whole range as soon as an outer one may pass its first point.
    """
    ordered = node.attr("ordered_by", ())
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
    """Whether the prefixes that contain the points of `needed` are all of `prefix`."""
    if not all(sizes.implies(hi.gt(lo)) for _, lo, hi in needed.bounds):
        return False
    ordered = [symbol for symbol, _, _ in needed.bounds if symbol in node.attr("ordered_by", ())]
    return all(needed.hi(symbol) == prefix.hi(symbol) for symbol in ordered[1:]) or all(
        sizes.implies(needed.hi(symbol).le(1)) for symbol in ordered[:-1]
    )
