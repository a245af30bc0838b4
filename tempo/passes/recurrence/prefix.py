"""Reductions over ranges of a dim as recurrences: prefixes and suffixes, and whole ranges of what is run step by step.

    sum(x[0:t + 1])  =  s[t]    with s[0] = x[0], s[t] = s[t - 1] + x[t]
    max(x[t:T])      =  m[t]    with m[T - 1] = x[T - 1], m[t] = max(m[t + 1], x[t])

These take O(T), by a recurrence, or by a scan where every step can be made at once. A window that moves at both ends
stays a reduction: adding what comes and subtracting what goes loses all accuracy. Halves are accumulated in float32.

The rule for a scan: where what is summed depends on nothing that goes step by step along the dim (every read on the way
to it is at the same point), lifting makes all of it at once, and a recurrence would be the only loop. Then the sum is
`cumsum` over the whole dim, read at the point. Else a loop runs anyway, and the recurrence keeps one value per step.

    sum(x[0:T])  =  s[T - 1]    with s[0] = x[0], s[t] = s[t - 1] + x[t]
                 =  s[0]        with s[T - 1] = x[T - 1], s[t] = s[t + 1] + x[t]

The second where the loop that x waits for runs backward, so that sum and loop are one. Read as a slice, x is kept for
all points until the last is there. This is for dims that the user has run sequentially, to have the memory of a few
points (`Options(mapping={"t": "sequential"})`): contracting all of them at once is faster where they are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo import dtypes
from tempo.analysis.demand.demand import Demand
from tempo.analysis.dependence.acyclic import Need, bodies
from tempo.analysis.dependence.levels import Direction, LoopBody
from tempo.analysis.reports import elements_needed
from tempo.passes.manager import Forced, PassContext, forced
from tempo.passes.recurrence.sliding import Sliding, element, leaves, sliding
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Expr, Symbol, const, var


@dataclass(frozen=True)
class Recurrences:
    """Only what is needed at more than one point along the dim changes: one point takes O(T) as it is."""

    name: ClassVar[str] = "recurrences"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        slides = {id: found for id, node in graph.nodes.items() if (found := sliding(graph, node)) is not None}
        wanted = _read_along(graph, slides)
        if not wanted:
            return graph
        making = _Making(graph, context)
        for id in wanted:
            making.make(graph.nodes[id], slides[id])
        return without_dead_nodes(replace(graph, nodes=making.new.nodes))


def _read_along(graph: Graph, slides: Mapping[int, Sliding]) -> list[int]:
    """The nodes that something reads at several points along the dim."""
    edges = [edge for node in graph.nodes.values() for _, edge in node.reads()]
    edges += [output.edge for output in graph.outputs]
    found = set()
    for edge in edges:
        if edge.node in slides:
            index = edge.map[graph.nodes[edge.node].domain.index(slides[edge.node].symbol)]
            found |= {edge.node} if isinstance(index, Slice) or index.index.dims() else set()
    return [id for id in slides if id in found]


class _Making:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.sizes = context.over(graph, ())
        self.demands: Mapping[int, Demand] = context.demand(graph)
        self.new = Rewriter(graph)
        # The reductions among them never stand alone: every cycle runs through a merge as well.
        self.cyclic = frozenset(id for found in graph.components if len(found) > 1 for id in found)

    def make(self, node: Node, found: Sliding) -> None:
        """Puts the recurrence or the scan in place of the reduction, where there is one."""
        tensors = Tensors(self.new, node.location)
        lo, hi = self.demands[node.id].box.interval(found.symbol)
        if self._at_once(node, found, lo, hi):
            self.new.put(node, self._scan(tensors, node, found))
            return
        first = lo if found.grows else hi - 1
        base = None if first.dims() else self._base(tensors, node, found, first)
        if base is not None:
            added = element(self.graph, tensors, node, found.index)
            whole = accumulator(tensors, node, found.symbol, found.grows, first, base, added)
            self.new.put(node, tensors.cast(whole, node.dtype))

    def _base(self, tensors: Tensors, node: Node, found: Sliding, first: Expr) -> Edge | None:
        """The value at the first point."""
        length, at = found.length_at(first), {found.symbol: first}
        if length == const(1):
            return element(self.graph, tensors, node, found.index.substitute(at))
        neutral = OPERATORS[node.op].padding(node.dtype)
        if length == const(0) and neutral is not None and not elements_needed(node):
            return tensors.broadcast(tensors.constant(neutral, node.dtype), node.shape)
        if not self.sizes.implies(length.ge(1)):
            return None
        if node.id in self.cyclic:
            # At a fixed point it would have no place among the steps that it waits for and that wait for it.
            return self.new.numbered(node)
        return tensors.apply(node.op, *(edge.substitute(at) for edge in node.operands), **node.attributes)

    # All steps at once -----------------------------------------------------------------------------------------------

    def _at_once(self, node: Node, found: Sliding, lo: Expr, hi: Expr) -> bool:
        """Whether the sum is over the whole dim up to (or from) the point, and nothing goes step by step before it."""
        if node.op != "reduce_sum" or found.symbol in self.graph.stops:
            return False
        edges = leaves(self.graph, node, found.symbol) or []
        start, stop = found.slice.start, found.slice.start + found.slice.length
        whole = start == const(0) if found.grows else stop == self.graph.dim(found.symbol).size
        never_empty = all(self.sizes.implies(found.length_at(point).ge(1)) for point in (lo, hi - 1))
        nodes, moving = self.graph.nodes, (found.symbol, found.slice)
        own = all(moving in zip(nodes[edge.node].domain, edge.map) for edge in edges)
        return whole and never_empty and own and self._is_parallel([edge.node for edge in edges], found.symbol)

    def _is_parallel(self, ids: list[int], symbol: Symbol) -> bool:
        """Whether every node on the way to `ids` that varies along the dim is read there at the same point."""
        nodes, here = self.graph.nodes, (symbol, Point(var(symbol)))
        way = reached(ids, lambda id: self.graph.producers(id) if symbol in nodes[id].domain else ())
        along = [nodes[id] for id in way if symbol in nodes[id].domain]
        if any(node.is_host_call or any(size.dims() for size in node.shape) for node in along):
            return False
        reads = ((nodes[edge.node].domain, edge) for node in along for _, edge in node.reads())
        return all(at == here for domain, edge in reads for at in zip(domain, edge.map) if at[0] == symbol)

    def _scan(self, tensors: Tensors, node: Node, found: Sliding) -> Edge:
        size = self.graph.dim(found.symbol).size
        here = Point(var(found.symbol))
        step = element(self.graph, tensors, node, here.index)
        summed = replace(step, map=tuple(Slice(const(0), size) if i == here else i for i in step.map))
        if found.grows:
            return tensors.at(tensors.apply("cumsum", summed, axis=0), 0, found.index)
        turned = tensors.apply("cumsum", tensors.apply("flip", summed, axes=(0,)), axis=0)
        return tensors.at(turned, 0, size - 1 - found.index)


@dataclass(frozen=True)
class Accumulate:
    """Changes nothing along a dim that is not forced to be sequential."""

    mapping: Forced = None
    name: ClassVar[str] = "accumulate"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        stopped = graph.stops  # how far these go is known when they have ended
        for dim in graph.dims:
            if forced(self.mapping, dim.symbol.name) == "sequential" and dim.symbol not in stopped:
                graph = _accumulated(graph, dim.symbol, context)
        return graph


def _accumulated(graph: Graph, symbol: Symbol, context: PassContext) -> Graph:
    sizes = context.over(graph, ())
    graph = without_dead_nodes(graph)
    new, order = Rewriter(graph), bodies(graph, context.demand(graph), context.facts)
    for node in tuple(graph.nodes.values()):
        edges = [] if symbol in node.domain else leaves(graph, node, symbol) or []
        index = _range(graph, edges, symbol)
        if index is not None and sizes.implies(index.length.ge(1)):
            _put(graph, new, node, symbol, index, _direction(order, symbol, {edge.node for edge in edges}))
    return without_dead_nodes(replace(graph, nodes=new.nodes))


def _direction(found: Sequence[LoopBody[int, Need]], symbol: Symbol, ids: Collection[int]) -> Direction:
    """That of the last loop over the dim, in the block that they are in, which any of them waits for."""
    for block in found:
        wanted = {id for id in ids if symbol in block.dims.get(id, ())}
        for unit in reversed(block.units) if wanted else ():
            if wanted.isdisjoint(unit.names):
                continue
            if unit.loop is not None and unit.loop.dim == symbol:
                return unit.loop.direction
            wanted |= {link.source for link in block.links if link.target in unit.names}
        if wanted:
            return "forward"
    return "forward"


def _range(graph: Graph, edges: Sequence[Edge], symbol: Symbol) -> Slice | None:
    """The range of the dim that is reduced, where it is computed step by step and does not move with any dim."""
    slices = {
        (at, index)
        for edge in edges
        for at, index in zip(graph.nodes[edge.node].domain, edge.map, strict=True)
        if isinstance(index, Slice)
    }
    if len(slices) != 1 or all(graph.nodes[edge.node].is_given for edge in edges):
        return None
    ((sliced, index),) = slices
    fixed = not index.start.dims() and not index.length.dims() and index.extent is None
    return index if sliced == symbol and fixed else None


def _put(graph: Graph, new: Rewriter, node: Node, symbol: Symbol, index: Slice, way: Direction) -> None:
    """The sum up to every point in place of the node, which reads the last."""
    tensors, here = Tensors(new, node.location), var(symbol)
    ends = index.start, index.start + index.length - const(1)
    first, last = ends if way == "forward" else reversed(ends)
    added = element(graph, tensors, node, here)
    total = accumulator(tensors, node, symbol, way == "forward", first, added, added)
    put_last(new, tensors, node, total, symbol, last)


def put_last(new: Rewriter, tensors: Tensors, node: Node, total: Edge, symbol: Symbol, last: Expr) -> None:
    """What an accumulator over the dim has at its last step in place of the node."""
    map = tuple(Point(last) if part == Point(var(symbol)) else part for part in total.map)
    new.put(node, tensors.cast(replace(total, map=map), node.dtype))


def accumulator(
    tensors: Tensors,
    node: Node,
    symbol: Symbol,
    forward: bool,
    first: Expr,
    start: Edge,
    added: Edge,
    last: tuple[Expr, Edge] | None = None,
) -> Edge:
    """`s[first] = start`, and what is added to that of the step before; halves are accumulated in float32.

    `last`: a step at which something else is added.
    """
    new, here = tensors.rewriter, var(symbol)
    is_half = dtypes.is_float(node.dtype) and dtypes.itemsize(node.dtype) == 2
    type = TensorType(node.shape, "float32" if is_half else node.dtype)
    attrs = (("name", node.name or node.op), ("role", "recurrent"))
    domain = new.canonical({*node.domain, symbol})
    merge = Node(node.id, "merge", domain, (type,), (), attrs, name=node.name, location=node.location)
    whole = new.declare(merge)
    start, added = (tensors.cast(edge, type.dtype) for edge in (start, added))
    ends = () if last is None else ((here.eq(last[0]), tensors.cast(last[1], type.dtype)),)
    before = whole.substitute({symbol: here - 1 if forward else here + 1})
    combine = OPERATORS[node.op].combine
    assert combine is not None, "it reduces"
    later = (*ends, (here.gt(first) if forward else here.lt(first), added))
    cases = (Case(condition, tensors.apply(combine, before, each)) for condition, each in later)
    new.define(whole, (Case(here.eq(first), start), *cases))
    return whole
