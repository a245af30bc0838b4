"""Index-set splitting: where a definition is known up to a point, what follows from it there leaves the cycle.

    tok[t < P] = given,  tok[t + 1] = f(k[0:t + 1], ...),  k[t] = g(tok)

k needs tok and tok needs k, so both go step by step along t; but up to P nothing of k needs anything later. The nodes
of the cycle that are needed all the way from 0 to P get a copy over a dim of their own with P points, which reads
copies: `k'[u] = g(given[u])`. In place of each node stands a merge, which everything goes on reading through one slice:

    k[t] = k'[t] where t < P, else g(tok[t])

So the cut goes to every node of the cycle, the copies are free of it, and lifting finds a dim like any other. What is
needed from P - 1 on alone (what the last known point yields) stays with the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.analysis.components import strongly_connected
from tempo.passes.canonicalize import canonical_merge
from tempo.passes.dce import without_dead_nodes
from tempo.passes.manager import PassContext
from tempo.passes.sweep import rewrite_graph
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, TensorType, identity_map
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import TRUE, Condition, Context, Dim, Expr, Ge, Symbol, minimum, var

_WORTH = frozenset({"contraction", "reduction"})
"""The operators of which many points at once are worth more than one after the other."""


@dataclass(frozen=True)
class Cut:
    """Below `stop` along `symbol`, a node of the cycle `members` is what something outside of it says."""

    symbol: Symbol
    stop: Expr
    members: frozenset[int]


@dataclass(frozen=True)
class Split:
    """Splits where a contraction or reduction of the cycle has no cycle left in its copy."""

    name: ClassVar[str] = "split"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        done: set[tuple[Symbol, Expr]] = set()
        while True:
            cut = next((found for found in cuts(graph) if (found.symbol, found.stop) not in done), None)
            if cut is None:
                return graph
            done.add((cut.symbol, cut.stop))
            graph = _split(graph, cut, context) or graph


def cuts(graph: Graph) -> Iterator[Cut]:
    """Conditions `t < P` of merges on cycles under which the value comes from outside the cycle."""
    reads = {id: [edge.node for _, edge in node.reads()] for id, node in graph.nodes.items()}
    for component in strongly_connected(list(graph.nodes), reads):
        members = frozenset(component)
        for node in (graph.nodes[id] for id in component if graph.nodes[id].op == "merge"):
            if len(members) == 1 and node.id not in reads[node.id]:
                continue
            for case in node.cases:
                found = _below(case.condition)
                if found is not None and case.edge.node not in members:
                    yield Cut(*found, members)


def _below(condition: Condition) -> tuple[Symbol, Expr] | None:
    """t and P where the condition is `t < P` for a P without dims."""
    if not isinstance(condition, Ge) or len(condition.expr.dims()) != 1:
        return None
    (symbol,) = condition.expr.dims()
    stop = condition.expr + var(symbol) + 1
    return None if stop.dims() else (symbol, stop)


def _split(graph: Graph, cut: Cut, context: PassContext) -> Graph | None:
    """The graph after the cut; None where it cannot be made, or frees nothing."""
    sizes, whole = context.over(graph, ()), graph.dim(cut.symbol).size
    stop = sizes.simplify(minimum(cut.stop, whole))
    if not sizes.implies(stop.ge(1)) or sizes.implies(stop.ge(whole)):
        return None
    wide = _needed_below(graph, cut, stop, context)
    if not any(OPERATORS[graph.nodes[id].op].kind in _WORTH for id in wide):
        return None
    nodes = (graph.nodes[id] for id in wide)
    if any(node.op in ("host_call", "sink") or node.attr("role") == "parameter" for node in nodes):
        return None
    dim = Dim(_fresh(graph, cut.symbol), stop)
    after = rewrite_graph(_Cutting(graph, cut, dim, wide, context).graph(), context, merges=canonical_merge)
    return after if _frees(after, dim.symbol) else None


def _needed_below(graph: Graph, cut: Cut, stop: Expr, context: PassContext) -> list[int]:
    """The nodes of the cycle that are needed at more below the cut than at its last point."""
    demands, sizes = context.demand(graph), context.over(graph, ())
    varying = [id for id in sorted(cut.members) if cut.symbol in graph.nodes[id].domain and id in demands]
    return [id for id in varying if not sizes.implies(demands[id].box.lo(cut.symbol).ge(stop - 1))]


def _fresh(graph: Graph, symbol: Symbol) -> Symbol:
    taken, name = {dim.symbol.name for dim in graph.dims}, f"{symbol.name}_known"
    while name in taken:
        name += "_"
    return Symbol(name, "dim")


def _frees(graph: Graph, symbol: Symbol) -> bool:
    """Whether no cycle runs through both sides, and one worth it is on none but those that another dim carries."""
    every = [(node, edge) for node in graph.nodes.values() for _, edge in node.reads()]
    sides = _components(list(graph.nodes), every)
    if any(len({symbol in graph.nodes[id].domain for id in members}) > 1 for members in sides.values()):
        return False
    nodes = {id: node for id, node in graph.nodes.items() if symbol in node.domain}
    links = [(node, edge) for node in nodes.values() for _, edge in node.reads() if edge.node in nodes]
    for dim in graph.dims:
        if dim.symbol != symbol:
            links = _not_carried(graph, list(nodes), links, dim.symbol)
    cyclic = {id for id, members in _components(list(nodes), links).items() if len(members) > 1}
    cyclic |= {node.id for node, edge in links if edge.node == node.id}
    return any(OPERATORS[node.op].kind in _WORTH for id, node in nodes.items() if id not in cyclic)


Link = tuple[Node, Edge]


def _components(ids: list[int], links: list[Link]) -> dict[int, frozenset[int]]:
    reads: dict[int, list[int]] = {id: [] for id in ids}
    for node, edge in links:
        reads[node.id].append(edge.node)
    found = [frozenset(component) for component in strongly_connected(ids, reads)]
    return {id: members for members in found for id in members}


def _not_carried(graph: Graph, ids: list[int], links: list[Link], symbol: Symbol) -> list[Link]:
    """Without the reads that a loop over `symbol` carries, in components where every distance has one sign or is 0."""
    members = _components(ids, links)
    distances: dict[frozenset[int], set[int | None]] = {}
    inner = [(node, edge) for node, edge in links if edge.node in members[node.id]]
    for node, edge in inner:
        distances.setdefault(members[node.id], set()).add(_distance(graph, edge, symbol))
    one_way = {
        component
        for component, found in distances.items()
        if None not in found and len({value > 0 for value in found if value}) <= 1
    }
    return [
        (node, edge)
        for node, edge in links
        if members[node.id] not in one_way or not _distance(graph, edge, symbol) or (node, edge) not in inner
    ]


def _distance(graph: Graph, edge: Edge, symbol: Symbol) -> int | None:
    """By how much the reader's point is ahead of the one read; None where that is no constant."""
    domain = graph.nodes[edge.node].domain
    index = edge.map[domain.index(symbol)] if symbol in domain else None
    offset = var(symbol) - index.index if isinstance(index, Point) else None
    return offset.const if offset is not None and offset.is_const else None


class _Cutting:
    def __init__(self, graph: Graph, cut: Cut, dim: Dim, wide: list[int], context: PassContext) -> None:
        self.old = graph
        self.symbol, self.dim = cut.symbol, dim
        self.below = {cut.symbol: var(dim.symbol)}
        place = [known.symbol for known in graph.dims].index(cut.symbol) + 1
        self.dims = (*graph.dims[:place], dim, *graph.dims[place:])
        first = max(graph.nodes) + 1
        self.copies = {id: first + place for place, id in enumerate(wide)}
        pure = [id for id in wide if graph.nodes[id].op != "merge"]
        self.later = {id: first + len(wide) + place for place, id in enumerate(pure)}
        numbers = (node.declaration for node in graph.nodes.values() if node.declaration is not None)
        self.declaration = 1 + max(numbers, default=0)
        facts = () if context.facts == TRUE else (context.facts,)
        self.in_copy = Context.of(self.dims, *facts)
        self.after = Context.of(graph.dims, *facts, var(cut.symbol).ge(dim.size))

    def graph(self) -> Graph:
        nodes: dict[int, Node] = dict(self.old.nodes)
        for id, copy in self.copies.items():
            node = self.old.nodes[id]
            nodes[copy] = self.copied(node)
            if id in self.later:
                nodes[self.later[id]] = replace(self.continued(node), id=self.later[id])
            nodes[id] = self.joined(node)
        return Graph(self.dims, nodes, self.old.outputs, self.old.sinks)

    def declared(self) -> int:
        self.declaration += 1
        return self.declaration - 1

    # Up to the cut ---------------------------------------------------------------------------------------------------

    def copied(self, node: Node) -> Node:
        attrs = OPERATORS[node.op].with_exprs(node.attributes, lambda value: value.substitute(self.below))
        results = (TensorType(tuple(n.substitute(self.below) for n in type.shape), type.dtype) for type in node.results)
        cases = []
        for case in node.cases:
            condition = case.condition.substitute(self.below)
            edge = self.below_cut(case.edge, self.in_copy.assume(condition))
            cases.append(replace(case, condition=condition, edge=edge))
        return replace(
            node,
            id=self.copies[node.id],
            domain=tuple(self.dim.symbol if symbol == self.symbol else symbol for symbol in node.domain),
            results=tuple(results),
            operands=tuple(self.below_cut(edge, self.in_copy) for edge in node.operands),
            attrs=tuple(sorted(attrs.items())),
            cases=tuple(cases),
            declaration=None if node.declaration is None else self.declared(),
        )

    def below_cut(self, edge: Edge, context: Context) -> Edge:
        """The read of a copy: of another copy where it stays below the cut."""
        found = edge.substitute(self.below)
        if edge.node not in self.copies:
            return found
        index = found.map[self.old.nodes[edge.node].domain.index(self.symbol)]
        stop = index.index + 1 if isinstance(index, Point) else index.start + index.length
        # A read that is needed is in range, so it starts at 0 or later.
        return replace(found, node=self.copies[edge.node]) if context.implies(stop.le(self.dim.size)) else found

    # From the cut on -------------------------------------------------------------------------------------------------

    def continued(self, node: Node) -> Node:
        cases = tuple(replace(case, edge=self.above_cut(case.edge)) for case in node.cases)
        return replace(node, operands=tuple(map(self.above_cut, node.operands)), cases=cases)

    def above_cut(self, edge: Edge) -> Edge:
        """The read of a node that runs from the cut on: past the merge where it stays there."""
        if edge.node not in self.later:
            return edge
        index = edge.map[self.old.nodes[edge.node].domain.index(self.symbol)]
        stays = isinstance(index, Point) and self.after.implies(index.index.ge(self.dim.size))
        return replace(edge, node=self.later[edge.node]) if stays else edge

    # Both ------------------------------------------------------------------------------------------------------------

    def joined(self, node: Node) -> Node:
        """Under the number of the node: its copy below the cut, and from there on what it was."""
        known = Case(
            var(self.symbol).lt(self.dim.size), Edge(self.copies[node.id], identity_map(node.domain)), node.location
        )
        if node.op == "merge":
            return replace(node, cases=(known, *self.continued(node).cases))
        name = node.name or node.op
        merge = Node(node.id, "merge", node.domain, node.results, (), (("name", name), ("role", "cases")))
        rest = Case(TRUE, Edge(self.later[node.id], identity_map(node.domain)), node.location)
        return replace(merge, cases=(known, rest), declaration=self.declared(), name=node.name, location=node.location)
