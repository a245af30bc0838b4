"""Prefix and suffix reductions in O(T): a recurrence, or a scan where every step can be made at once.

    sum(x[0:t + 1])  =  s[t]    with s[0] = x[0], s[t] = s[t - 1] + x[t]
    max(x[t:T])      =  m[t]    with m[T - 1] = x[T - 1], m[t] = max(m[t + 1], x[t])

A window that moves at both ends stays a reduction: adding what comes and subtracting what goes loses all accuracy.
Halves are accumulated in float32.

The rule for a scan: where what is summed depends on nothing that goes step by step along the dim (every read on the way
to it is at the same point), lifting makes all of it at once, and a recurrence would be the only loop. Then the sum is
`cumsum` over the whole dim, read at the point. Else a loop runs anyway, and the recurrence keeps one value per step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tempo import dtypes
from tempo.analysis.demand.demand import Demand
from tempo.passes.manager import PassContext
from tempo.passes.recurrence.sliding import COMBINE, Sliding, element, leaves, sliding
from tempo.passes.rewrite.dce import without_dead_nodes
from tempo.sdg.call import ArrayValue
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, TensorType
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.sdg.stops import stops_of
from tempo.symbolic import Expr, Symbol, const, var

_NEUTRAL = {"reduce_sum": 0, "dot": 0, "reduce_prod": 1, "reduce_any": False, "reduce_all": True}


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


def _on_cycles(graph: Graph) -> frozenset[int]:
    """The reductions among them never stand alone: every cycle runs through a merge as well."""
    reads = {id: [edge.node for _, edge in node.reads()] for id, node in graph.nodes.items()}
    return frozenset(id for found in strongly_connected(list(reads), reads) if len(found) > 1 for id in found)


class _Making:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.graph = graph
        self.sizes = context.over(graph, ())
        self.demands: Mapping[int, Demand] = context.demand(graph)
        self.new = Rewriter(graph)
        self.cyclic = _on_cycles(graph)

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
            self._recurrence(tensors, node, found, first, base)

    def _base(self, tensors: Tensors, node: Node, found: Sliding, first: Expr) -> Edge | None:
        """The value at the first point."""
        length, at = found.length_at(first), {found.symbol: first}
        if length == const(1):
            return element(self.graph, tensors, node, found.index.substitute(at))
        if length == const(0) and node.op in _NEUTRAL:
            value = ArrayValue(np.asarray(_NEUTRAL[node.op], dtypes.to_numpy(node.dtype)))
            return tensors.broadcast(tensors.apply("constant", value=value), node.shape)
        if not self.sizes.implies(length.ge(1)):
            return None
        if node.id in self.cyclic:
            # At a fixed point it would have no place among the steps that it waits for and that wait for it.
            return self.new.numbered(node)
        return tensors.apply(node.op, *(edge.substitute(at) for edge in node.operands), **node.attributes)

    def _recurrence(self, tensors: Tensors, node: Node, found: Sliding, first: Expr, base: Edge) -> None:
        is_half = dtypes.is_float(node.dtype) and dtypes.itemsize(node.dtype) == 2
        wide = "float32" if is_half else node.dtype
        attrs = (("name", node.name or node.op), ("role", "recurrent"))
        merge = Node(node.id, "merge", node.domain, (TensorType(node.shape, wide),), (), attrs)
        whole = self.new.declare(replace(merge, name=node.name, location=node.location))
        here = var(found.symbol)
        last = whole.substitute({found.symbol: here - 1 if found.grows else here + 1})
        added = self._as(tensors, element(self.graph, tensors, node, found.index), wide)
        later = here.gt(first) if found.grows else here.lt(first)
        start = Case(here.eq(first), self._as(tensors, base, wide))
        cases = (start, Case(later, tensors.apply(COMBINE[node.op], last, added)))
        self.new.define(whole, cases)
        self.new.put(node, tensors.apply("cast", whole, dtype=node.dtype))

    def _as(self, tensors: Tensors, edge: Edge, dtype: str) -> Edge:
        same = self.new.seen_type(edge).dtype == dtype
        return edge if same else tensors.apply("cast", edge, dtype=dtype)

    # All steps at once -----------------------------------------------------------------------------------------------

    def _at_once(self, node: Node, found: Sliding, lo: Expr, hi: Expr) -> bool:
        """Whether the sum is over the whole dim up to (or from) the point, and nothing goes step by step before it."""
        if node.op != "reduce_sum" or found.symbol in stops_of(self.graph):
            return False
        edges = leaves(self.graph, node, found.symbol) or []
        start, stop = found.slice.start, found.slice.start + found.slice.length
        whole = start == const(0) if found.grows else stop == self.graph.dim(found.symbol).size
        never_empty = all(self.sizes.implies(found.length_at(point).ge(1)) for point in (lo, hi - 1))
        own = all(self._sliced(edge) == found.symbol for edge in edges)
        return whole and never_empty and own and self._is_parallel([edge.node for edge in edges], found.symbol)

    def _sliced(self, edge: Edge) -> Symbol:
        domain = self.graph.nodes[edge.node].domain
        return next(symbol for symbol, index in zip(domain, edge.map) if isinstance(index, Slice))

    def _is_parallel(self, ids: list[int], symbol: Symbol) -> bool:
        """Whether every node on the way to `ids` that varies along the dim is read there at the same point."""
        pending, seen = list(ids), set(ids)
        while pending:
            node = self.graph.nodes[pending.pop()]
            if symbol not in node.domain:
                continue
            if node.is_host_call or any(size.dims() for size in node.shape):
                return False
            for _, edge in node.reads():
                domain = self.graph.nodes[edge.node].domain
                if any(s == symbol and index != Point(var(symbol)) for s, index in zip(domain, edge.map)):
                    return False
                if edge.node not in seen:
                    seen.add(edge.node)
                    pending.append(edge.node)
        return True

    def _scan(self, tensors: Tensors, node: Node, found: Sliding) -> Edge:
        size = self.graph.dim(found.symbol).size
        here = Point(var(found.symbol))
        step = element(self.graph, tensors, node, here.index)
        summed = replace(step, map=tuple(Slice(const(0), size) if i == here else i for i in step.map))
        if found.grows:
            return tensors.at(tensors.apply("cumsum", summed, axis=0), 0, found.index)
        turned = tensors.apply("cumsum", tensors.apply("flip", summed, axes=(0,)), axis=0)
        return tensors.at(turned, 0, size - 1 - found.index)
