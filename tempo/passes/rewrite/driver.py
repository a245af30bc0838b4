"""One sweep over a graph, producers first, that builds a new one: the engine under `canonicalize` and `simplify`.

Whatever the pass, a sweep keeps these invariants: equal pure nodes are one node (common subexpressions); a pure node
that does not vary along a dim has not got it; a read through a `copy` reads what the copy reads, where one index map
can say so; indices and conditions are simplified by what holds in the reader's domain. Lengths are not: a length
that is simpler in one domain would no longer be equal to the same length read from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tempo import dtypes
from tempo.errors import InternalError
from tempo.passes.manager import PassContext
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.call import ArrayValue
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.graph import (
    Case,
    Edge,
    Graph,
    IndexMap,
    Node,
    Point,
    Slice,
    TensorType,
    identity_map,
    seen_type,
)
from tempo.sdg.operators import OPERATORS
from tempo.sdg.read_composition import compose
from tempo.symbolic import TRUE, Condition, Context, Symbol, conjunction, const

_LIMIT = 100
ONE = const(1)

Attributes: TypeAlias = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Term:
    """A pure node to be built: what a rewrite puts in place of another."""

    op: str
    operands: tuple[Term | Edge, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


Rewrite: TypeAlias = "Callable[[Node, Sweep], Term | Edge | None]"
"""What a node may be replaced by: a term, or what an edge reads; None where the rewrite does not apply.

Its operands are edges of the new graph, and it may vary along fewer dims than it says.
"""

MergeRewrite: TypeAlias = Callable[[Node, Context], Node]


def rewrite_graph(
    graph: Graph, context: PassContext, rewrites: Iterable[Rewrite] = (), merges: MergeRewrite | None = None
) -> Graph:
    """Sweeps to a fixed point; dead nodes are left out.

    Raises InternalError when no fixed point is in sight: two rewrites undo each other.
    """
    chosen, graph = tuple(rewrites), without_dead_nodes(graph)
    for _ in range(_LIMIT):
        if context.is_fixed(graph, chosen, merges):
            return graph
        swept = without_dead_nodes(Sweep(graph, context, chosen, merges).run())
        if swept.nodes == graph.nodes and swept.outputs == graph.outputs:
            context.fixed[:] = [(graph, chosen, merges)]
            return graph
        graph = swept
    raise InternalError(f"rewriting does not end within {_LIMIT} sweeps\n{graph}")


class Sweep:
    """The new graph so far. `seen_as` says, for every node of the old graph, which read of the new graph shows it."""

    def __init__(
        self,
        graph: Graph,
        context: PassContext,
        rewrites: tuple[Rewrite, ...] = (),
        merges: MergeRewrite | None = None,
    ) -> None:
        self.graph = graph
        self.context = context
        self.rewrites = rewrites
        self.new = NodeBuilder(graph.dims, taken=graph.nodes.values())
        self.nodes = self.new.nodes
        self.seen_as: dict[int, Edge] = {}
        self._views: dict[Edge, Node | None] = {}
        self._old = dict(graph.nodes)
        if merges is not None:
            self._old |= {n.id: merges(n, self._over(n.domain)) for n in graph.nodes.values() if n.is_merge}

    @cached_property
    def _effects(self) -> set[int]:
        """Nodes that need a call of the host, or a check of an index: leaving out a read of one could be seen."""
        found = {id for id, node in self.graph.nodes.items() if node.is_host_call or node.attr("checked")}
        return reached(found, lambda id: (reader for reader, _ in self.graph.consumers[id]))

    def may_be_dropped(self, edge: Edge) -> bool:
        """Whether nobody sees it when what the edge reads is no longer needed."""
        if not self._effects:
            return True

        def reads(id: int) -> list[int]:
            """A node that this sweep has made is known by what it reads; merges keep their numbers."""
            return [] if id in self.graph.nodes else [edge.node for _, edge in self.nodes[id].reads()]

        needed = reached([edge.node], reads)
        return self._effects.isdisjoint(needed)

    def alone_reads(self, node: Node, op: str) -> bool:
        """Whether the first operand of a node of the old graph is an operator that nothing else reads."""
        edges = self.graph.nodes[node.id].operands[:1] if node.id in self.graph.nodes else ()
        return any(
            self.graph.nodes[edge.node].op == op
            and len(self.graph.consumers[edge.node]) == 1
            and edge.node not in self.graph.shown
            for edge in edges
        )

    def holds(self, condition: Condition) -> bool:
        """Whether a condition holds at every point of the dims that it mentions."""
        return self._over(self.graph.canonical(condition.dims())).implies(condition)

    def run(self) -> Graph:
        order, copies = self._order()
        for node in self._old.values():
            if node.is_merge and node.id not in copies:
                self.nodes[node.id] = node
                self.seen_as[node.id] = Edge(node.id, identity_map(node.domain))
        for id in order:
            self._visit(self._old[id], id in copies)
        for node in self._old.values():
            if node.is_merge and node.id not in copies:
                self.nodes[node.id] = self._merge(node)
        outputs = tuple(
            replace(output, edge=self.see(output.edge, self._over(output.domain))) for output in self.graph.outputs
        )
        return Graph(self.graph.dims, self.nodes, outputs, self.graph.sinks)

    def _order(self) -> tuple[list[int], frozenset[int]]:
        """Producers first; and the merges that only hand one edge on, so that they are seen through.

        A merge on a cycle of nodes and such merges stays one: every cycle runs through a merge.
        """
        copies = {id for id, node in self._old.items() if node.is_merge and self._hands_on(node)}
        while True:
            reads = {id: self._waits_for(node, copies) for id, node in self._old.items()}
            components = strongly_connected(self._old, reads)
            cyclic = {id for component in components for id in component if len(component) > 1 or id in reads[id]}
            if not cyclic:
                return [id for component in components for id in component], frozenset(copies)
            if not cyclic & copies:
                raise InternalError(f"a cycle runs through no merge\n{self.graph}")
            copies -= cyclic

    def _waits_for(self, node: Node, copies: set[int]) -> list[int]:
        if node.is_merge:
            return [node.cases[0].edge.node] if node.id in copies else []
        return [edge.node for edge in node.operands]

    def _hands_on(self, node: Node) -> bool:
        if len(node.cases) != 1 or node.cases[0].condition != TRUE:
            return False
        producer = self._old[node.cases[0].edge.node]
        edge = node.cases[0].edge
        return seen_type(producer.results[edge.result], producer.domain, edge.map) == node.type

    def _visit(self, node: Node, is_copy: bool) -> None:
        context = self._over(node.domain)
        if is_copy:
            self.seen_as[node.id] = self.see(node.cases[0].edge, context)
            self._name(self.seen_as[node.id], node)
        elif node.is_merge:
            return
        elif node.is_nominal:
            self.nodes[node.id] = self._seen(node, context)
            self.seen_as[node.id] = Edge(node.id, identity_map(node.domain))
        else:
            self.seen_as[node.id] = self._pure(node, context)

    def _name(self, shown: Edge, merge: Node) -> None:
        """A pure node without a name takes that of the tensor that it is the only definition of."""
        node = self.nodes[shown.node]
        if not node.is_nominal and not node.name and shown.map == identity_map(node.domain):
            self.nodes[node.id] = replace(node, name=merge.name, location=merge.location)

    # What a node becomes ---------------------------------------------------------------------------------------------

    def _pure(self, node: Node, context: Context) -> Edge:
        node = self._seen(node, context)
        for _ in range(_LIMIT):
            if node.op == "copy":
                return node.operands[0]
            found = next((new for new in (rewrite(node, self) for rewrite in self.rewrites) if new is not None), None)
            if found is None:
                return self.new.typed(node)
            if isinstance(found, Edge):
                return found
            operands = tuple(self.build(operand, node) for operand in found.operands)
            node = replace(node, op=found.op, operands=operands, attrs=tuple(sorted(found.attrs.items())))
        raise InternalError(f"rewriting does not end at %{node.id}\n{self.graph}", location=node.location)

    def _seen(self, node: Node, context: Context) -> Node:
        """The node with its operands of the new graph."""
        operands = tuple([self.see(edge, context) for edge in node.operands])
        attrs = self._attributes(node, context)
        is_same = attrs is node.attrs and operands == node.operands
        return node if is_same else replace(node, operands=operands, attrs=attrs)

    def _merge(self, node: Node) -> Node:
        context = self._over(node.domain)
        cases = tuple(self._case(case, context) for case in node.cases)
        return replace(node, cases=cases)

    def _case(self, case: Case, context: Context) -> Case:
        within = context if case.condition == TRUE else context.assume(case.condition)
        return replace(case, edge=self.see(case.edge, within))

    def _attributes(self, node: Node, context: Context) -> Attributes:
        """With what is passed at run time simplified. Lengths stay: shapes that follow from them must stay equal."""
        operator = OPERATORS[node.op]
        if not operator.scalar_attrs:
            return node.attrs
        new = operator.with_exprs(node.attributes, lambda expr: simplified(expr, context))
        return tuple((key, new[key] if key in operator.scalar_attrs else value) for key, value in node.attrs)

    # Reads -----------------------------------------------------------------------------------------------------------

    def see(self, edge: Edge, context: Context) -> Edge:
        """The read of the new graph that shows what `edge` shows of the old one, to a reader in `context`."""
        old, shown = self._old[edge.node], self.seen_as[edge.node]
        map = tuple([_simplified_index(index, context) for index in edge.map])
        if old.is_nominal and shown.node == old.id:
            found = Edge(edge.node, map, edge.result)
        else:
            found = self._read(shown, old, map, context)
            if found.map is not map:
                map = tuple([_simplified_index(index, context) for index in found.map])
                found = Edge(found.node, map, found.result)
        return edge if found == edge else found  # which remembers its hash and its dims

    def _read(self, shown: Edge, old: Node, map: IndexMap, context: Context) -> Edge:
        """What `map`, over the domain of `old`, sees of a node that shows what `shown` reads at each point."""
        if shown.map == identity_map(old.domain):
            return Edge(shown.node, map, shown.result)
        varying = shown.dims()
        kept = tuple(symbol for symbol in old.domain if symbol in varying)
        kept_map = tuple(index for symbol, index in zip(old.domain, map) if symbol in varying)
        found = compose(shown, kept, kept_map)
        if found is None:
            copy = Node(old.id, "copy", (), (self.seen_type(shown),), (shown,), name=old.name, location=old.location)
            copied = self.new.typed(copy)
            found = Edge(copied.node, kept_map)
        lost = [symbol not in varying for index, symbol in zip(map, old.domain) if isinstance(index, Slice)]
        if not any(lost):
            return found
        return self._widened(found, seen_type(old.type, old.domain, map), lost, old, context)

    def _widened(self, edge: Edge, wanted: TensorType, lost: list[bool], origin: Node, context: Context) -> Edge:
        """`edge` with the axes of slices over dims along which nothing varies; `lost` says which of the first axes."""
        if lost != sorted(lost, reverse=True):  # an axis that exists stands before one that does not
            sizes = iter(self.seen_type(edge).shape)
            shape = tuple(ONE if is_lost else next(sizes) for is_lost in lost) + tuple(sizes)
            edge = self.build(Term("reshape", (edge,), {"shape": shape}), origin)
        full = Term("broadcast", (edge,), {"shape": wanted.shape})
        some = conjunction(size.ge(1) for size, is_lost in zip(wanted.shape, lost) if is_lost)
        if context.implies(some):
            return self.build(full, origin)
        # An empty slice reads nothing, so nothing may be read for it now.
        zero = Term("constant", attrs={"value": ArrayValue(np.zeros((), dtypes.to_numpy(wanted.dtype)))})
        empty = Term("broadcast", (zero,), {"shape": wanted.shape})
        cases = (Case(some, self.build(full, origin)), Case(TRUE, self.build(empty, origin)))
        return self.new.cases(cases, wanted, origin.name, locate=lambda: origin.location)

    def seen_type(self, edge: Edge) -> TensorType:
        """What a reader sees through an edge of the new graph."""
        return self.new.seen_type(edge)

    def view(self, edge: Edge) -> Node | None:
        """The pure node that an edge reads, as it is at the point read; None for other nodes, and through slices."""
        if edge not in self._views:
            self._views[edge] = self._viewed(edge)
        return self._views[edge]

    def _viewed(self, edge: Edge) -> Node | None:
        node = self.nodes[edge.node]
        if node.is_nominal or not all(isinstance(index, Point) for index in edge.map):
            return None
        if edge.map == identity_map(node.domain):
            return node
        point = {symbol: index.index for symbol, index in zip(node.domain, edge.map) if isinstance(index, Point)}
        operands = tuple(operand.substitute(point) for operand in node.operands)
        attrs = OPERATORS[node.op].with_exprs(node.attributes, lambda expr: expr.substitute(point))
        results = (self.seen_type(edge),)
        return replace(node, operands=operands, attrs=tuple(sorted(attrs.items())), results=results)

    # New nodes -------------------------------------------------------------------------------------------------------

    def build(self, term: Term | Edge, origin: Node) -> Edge:
        """The read of a term, whose nodes are made; they take location from `origin`."""
        if isinstance(term, Edge):
            return term
        operands = tuple(self.build(operand, origin) for operand in term.operands)
        return self.new.pure(term.op, operands, term.attrs, lambda: origin.location)

    def _over(self, domain: tuple[Symbol, ...]) -> Context:
        return self.context.over(self.graph, domain)


def simplified(expr: Any, context: Context) -> Any:
    """An expression or condition by what holds in `context`. Sums of symbols are canonical already."""
    if isinstance(expr, Condition):
        return context.simplify_condition(expr)
    return expr if all(isinstance(atom, Symbol) for atom, _ in expr.terms) else context.simplify(expr)


def _simplified_index(index: Point | Slice, context: Context) -> Point | Slice:
    if isinstance(index, Point):
        found = simplified(index.index, context)
        return index if found is index.index else Point(found)
    return replace(index, start=simplified(index.start, context))


@dataclass(frozen=True)
class DeadCodeElimination:
    name: ClassVar[str] = "dce"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return without_dead_nodes(graph)


def without_dead_nodes(graph: Graph) -> Graph:
    """The graph with the nodes that an output or a sink reaches, and no others."""
    needed = graph.reachable()
    if len(needed) == len(graph.nodes):
        return graph
    return replace(graph, nodes={id: node for id, node in graph.nodes.items() if id in needed})
