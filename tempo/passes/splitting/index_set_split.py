"""Index-set splitting: where a definition is known along a stretch, what follows from it there leaves the cycle.

    tok[t < P] = given,  tok[t + 1] = f(k[0:t + 1], ...),  k[t] = g(tok)

k needs tok and tok needs k, so both go step by step along t; but up to P nothing of k needs anything later. The nodes
of the cycle that are needed all the way from 0 to P get a copy over a dim of their own with P points, which reads
copies: `k'[u] = g(given[u])`. In place of each node stands a merge, which everything goes on reading through one slice:

    k[t] = k'[t] where t < P, else g(tok[t])

So the cut goes to every node of the cycle, the copies are free of it, and lifting finds a dim like any other. What is
needed from P - 1 on alone (what the last known point yields) stays with the steps. A known suffix (`t >= P`) and a
known stretch between two points are cut out in the same way: their copies have the points from its start on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.analysis.dependence.acyclic import bodies, points_read, sequential_dims
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import rewrite_graph, without_dead_nodes
from tempo.passes.simplify.simplify import canonical_merge
from tempo.sdg.builder import NodeBuilder, fresh_dim
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, identity_map
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.located import must_not_fail
from tempo.symbolic import TRUE, And, Condition, Context, Dim, Expr, Ge, Symbol, const, maximum, minimum, var

_WORTH = frozenset({"contraction", "reduction"})
"""The operators of which many points at once are worth more than one after the other."""


@dataclass(frozen=True)
class Cut:
    """Where start <= symbol < stop, a node of the cycle `members` is what something outside of it says."""

    symbol: Symbol
    start: Expr
    stop: Expr
    members: frozenset[int]

    @property
    def place(self) -> tuple[Symbol, Expr, Expr]:
        return self.symbol, self.start, self.stop


@dataclass(frozen=True)
class Split:
    """Splits where a contraction or reduction of the cycle has no cycle left in its copy."""

    name: ClassVar[str] = "split"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        done: dict[tuple[Symbol, Expr, Expr], frozenset[int]] = {}  # the members of cycles that were tried at a place
        while True:
            cut = next((found for found in cuts(graph) if found.members.isdisjoint(done.get(found.place, ()))), None)
            if cut is None:
                return _without_untaken_cases(graph, context) if done else graph
            done[cut.place] = done.get(cut.place, frozenset()) | cut.members
            graph = _split(graph, cut, context) or graph


def _without_untaken_cases(graph: Graph, context: PassContext) -> Graph:
    """Without cases that no demanded point takes: what is needed outside of a stretch alone reads no copy."""
    demands, nodes = context.demand(graph), dict(graph.nodes)
    for node in graph.nodes.values():
        if len(node.cases) < 2 or node.id not in demands:
            continue
        here = Context.of(graph.domain_dims(node), context.facts, box=demands[node.id].box)
        nodes[node.id] = canonical_merge(node, here)
    return without_dead_nodes(replace(graph, nodes=nodes))


def cuts(graph: Graph) -> Iterator[Cut]:
    """Conditions on one dim of merges on cycles, under which the value comes from outside the cycle."""
    for component in graph.components:
        members = frozenset(component)
        for node in (graph.nodes[id] for id in component if graph.nodes[id].is_merge):
            if len(members) == 1 and node.id not in graph.producers(node.id):
                continue
            for case in node.cases:
                found = _stretch(graph, case.condition)
                if found is not None and case.edge.node not in members:
                    yield Cut(*found, members)


def _stretch(graph: Graph, condition: Condition) -> tuple[Symbol, Expr, Expr] | None:
    """t, start and stop where the condition is start <= t < stop, of sizes; one of them may be an end of the dim."""
    parts = condition.args if isinstance(condition, And) else (condition,)
    if len(condition.dims()) != 1 or not all(isinstance(part, Ge) for part in parts):
        return None
    (symbol,) = condition.dims()
    start, stop = const(0), graph.dim(symbol).size
    for expr in (part.expr for part in parts if isinstance(part, Ge)):
        factor = expr.coefficient(symbol)
        bound = expr - factor * var(symbol)
        if abs(factor) != 1 or bound.dims():
            return None
        start, stop = (maximum(start, -bound), stop) if factor == 1 else (start, minimum(stop, bound + 1))
    return symbol, start, stop


def _split(graph: Graph, cut: Cut, context: PassContext) -> Graph | None:
    """The graph after the cut; None where it cannot be made, or frees nothing."""
    sizes, whole = context.over(graph, ()), graph.dim(cut.symbol).size
    cut = replace(cut, start=sizes.simplify(cut.start), stop=sizes.simplify(cut.stop))
    extent = sizes.simplify(maximum(cut.stop - cut.start, 0))
    if sizes.implies(extent.le(0)) or sizes.implies(extent.ge(whole)):
        return None
    wide = _needed_within(graph, cut, context)
    if not any(OPERATORS[graph.nodes[id].op].kind in _WORTH for id in wide):
        return None
    if not all(_may_go_ahead(graph, graph.nodes[id], cut.symbol) for id in wide):
        return None
    dim = Dim(fresh_dim(f"{cut.symbol.name}_known", (dim.symbol.name for dim in graph.dims)), extent)
    after = rewrite_graph(_Cutting(graph, cut, dim, wide, context).graph(), context, merges=canonical_merge)
    return after if _frees(after, dim.symbol, context) else None


def _may_go_ahead(graph: Graph, node: Node, symbol: Symbol) -> bool:
    """Whether points along the dim may be made before what comes first: nobody is called, and no index is checked that
    waits for a stop (`passes.instrument`)."""
    if node.has_effect or node.attr("role") == "parameter":
        return False
    return not (must_not_fail(node) and symbol in graph.stops)


def _needed_within(graph: Graph, cut: Cut, context: PassContext) -> list[int]:
    """The nodes of the cycle that are needed at more of the stretch than a point at its end."""
    demands, sizes = context.demand(graph), context.over(graph, ())
    found = []
    for id in sorted(cut.members):
        if cut.symbol not in graph.nodes[id].domain or id not in demands:
            continue
        lo, hi = demands[id].box.interval(cut.symbol)
        if not sizes.implies(lo.ge(cut.stop - 1)) and not sizes.implies(hi.le(cut.start + 1)):
            found.append(id)
    return found


def _frees(graph: Graph, symbol: Symbol, context: PassContext) -> bool:
    """Whether no cycle runs through both sides, and one worth it needs no loop over the dim."""
    if any(len({symbol in graph.nodes[id].domain for id in members}) > 1 for members in graph.components):
        return False
    sequential = sequential_dims(bodies(graph, context.demand(graph), context.facts))
    free = (graph.nodes[id] for id, looped in sequential.items() if symbol not in looped)
    return any(symbol in node.domain and OPERATORS[node.op].kind in _WORTH for node in free)


class _Cutting:
    def __init__(self, graph: Graph, cut: Cut, dim: Dim, wide: list[int], context: PassContext) -> None:
        self.old = graph
        self.symbol, self.dim, self.cut = cut.symbol, dim, cut
        self.within = {cut.symbol: var(dim.symbol) + cut.start}
        place = [known.symbol for known in graph.dims].index(cut.symbol) + 1
        self.dims = (*graph.dims[:place], dim, *graph.dims[place:])
        self.new = NodeBuilder(self.dims, graph.nodes)
        self.copies = {id: self.new.new_number() for id in wide}
        self.later = {id: self.new.new_number() for id in wide if not graph.nodes[id].is_merge}
        facts = () if context.facts == TRUE else (context.facts,)
        self.in_copy = Context.of(self.dims, *facts)
        self.outside = Context.of(graph.dims, *facts, ~self.in_stretch(var(cut.symbol)))

    def graph(self) -> Graph:
        nodes = self.new.nodes
        for id, copy in self.copies.items():
            node = self.old.nodes[id]
            nodes[copy] = self.copied(node)
            if id in self.later:
                nodes[self.later[id]] = replace(node.reading(self.read_outside), id=self.later[id])
            nodes[id] = self.joined(node)
        return Graph(self.dims, nodes, self.old.outputs, self.old.sinks)

    def in_stretch(self, index: Expr) -> Condition:
        return index.ge(self.cut.start) & index.lt(self.cut.stop)

    # Within the stretch -----------------------------------------------------------------------------------------------

    def copied(self, node: Node) -> Node:
        copy = self.new.copied(node, self.copies[node.id], self.symbol, (self.dim.symbol,), self.within[self.symbol])
        operands = (self.read_within(edge, self.in_copy) for edge in copy.operands)
        cases = (
            replace(case, edge=self.read_within(case.edge, self.in_copy.assume(case.condition))) for case in copy.cases
        )
        return replace(copy, operands=tuple(operands), cases=tuple(cases))

    def read_within(self, edge: Edge, context: Context) -> Edge:
        """The read of a copy: of another copy where it stays in the stretch, as far as a read that is needed does."""
        found = edge.substitute(self.within)
        if edge.node not in self.copies:
            return found
        place = self.old.nodes[edge.node].domain.index(self.symbol)
        index, size = found.map[place], self.old.dim(self.symbol).size
        first, stop = points_read(index)
        # A read that is needed is in range.
        stays = context.assume(first.ge(0), stop.le(size)).implies(first.ge(self.cut.start) & stop.le(self.cut.stop))
        return self.of_copy(replace(found, node=edge.node), place) if stays else found

    def of_copy(self, edge: Edge, place: int) -> Edge:
        """The same read, of the copy, whose point 0 is the start of the stretch."""
        index, start = edge.map[place], self.cut.start
        moved = Point(index.index - start) if isinstance(index, Point) else replace(index, start=index.start - start)
        return replace(edge, node=self.copies[edge.node], map=(*edge.map[:place], moved, *edge.map[place + 1 :]))

    # Outside of it ----------------------------------------------------------------------------------------------------

    def read_outside(self, edge: Edge) -> Edge:
        """The read of a node that runs outside of the stretch: past the merge where it stays there."""
        if edge.node not in self.later:
            return edge
        index = edge.map[self.old.nodes[edge.node].domain.index(self.symbol)]
        stays = isinstance(index, Point) and self.outside.implies(~self.in_stretch(index.index))
        return replace(edge, node=self.later[edge.node]) if stays else edge

    # Both ------------------------------------------------------------------------------------------------------------

    def joined(self, node: Node) -> Node:
        """Under the number of the node: its copy in the stretch, and elsewhere what it was."""
        place = node.domain.index(self.symbol)
        copy = self.of_copy(Edge(node.id, identity_map(node.domain)), place)
        known = Case(self.in_stretch(var(self.symbol)), copy, node.location)
        if node.is_merge:
            return replace(node, cases=(known, *node.reading(self.read_outside).cases))
        name = node.name or node.op
        merge = Node(node.id, "merge", node.domain, node.results, (), (("name", name), ("role", "cases")))
        rest = Case(TRUE, Edge(self.later[node.id], identity_map(node.domain)), node.location)
        return replace(
            merge, cases=(known, rest), declaration=self.new.new_declaration(), name=node.name, location=node.location
        )
