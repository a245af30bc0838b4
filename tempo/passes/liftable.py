"""When a dim of a node may become a leading axis of it: all its points along the dim can be computed at once.

A node is a candidate when the order leaves its points along the dim independent of one another, its operator and its
reads can take all of them together, and no point is computed by it that means nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tempo.analysis.demand import Demand
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, index_exprs
from tempo.sdg.operators import OPERATORS
from tempo.sdg.validate import attribute_exprs
from tempo.symbolic import Context, Dim, Expr, Symbol, const, var

_REWRITTEN = frozenset({"index_value", "condition_value", "random_bits", "slice"})
"""Operators whose attributes may vary along a lifted dim; the pass has a rule for each."""

_OUTSIDE = frozenset({"input", "host_call", "sink"})


@dataclass(frozen=True)
class Span:
    """The points `lo, ..., hi - 1` of a dim, in sizes, that a lifted node holds along its axis."""

    lo: Expr
    hi: Expr

    @property
    def size(self) -> Expr:
        return self.hi - self.lo


@dataclass(frozen=True)
class Candidates:
    """Which nodes of a graph could have `dim` as an axis, and over which span.

    `sequential` gives for each node the dims that the order of its points needs.
    """

    graph: Graph
    dim: Dim
    demands: Mapping[int, Demand]
    sequential: Mapping[int, frozenset[Symbol]]
    sizes: Context

    def spans(self) -> dict[int, Span]:
        symbol = self.dim.symbol
        varying = [node for node in self.graph.nodes.values() if symbol in node.domain and node.id in self.demands]
        kept = self.whole(varying) - self.widened()
        found = {node.id: self.span(node) for node in varying if node.id in kept and self.fits(node)}
        for node in self.graph.nodes.values():
            for _, edge in node.reads():
                if edge.node in found and not self.within(found[edge.node], edge):
                    del found[edge.node]
        return found

    def within(self, span: Span, edge: Edge) -> bool:
        """Whether a read at a fixed place lies in the span: one in a case that is never taken may not."""
        index = edge.map[self.graph.nodes[edge.node].domain.index(self.dim.symbol)]
        if isinstance(index, Point):
            start, stop = index.index, index.index + 1
        else:
            start, stop = index.start, index.start + index.length
        if (stop - start).is_const and self.sizes.excludes((stop - start).le(span.size)):
            return False
        return bool(start.dims() or stop.dims()) or self.sizes.implies(start.ge(span.lo) & stop.le(span.hi))

    def widened(self) -> set[int]:
        """What is read with a static extent already: such a read has no meaning but on what a loop keeps."""
        reads = (edge for node in self.graph.nodes.values() for _, edge in node.reads())
        return {edge.node for edge in reads if any(isinstance(i, Slice) and i.extent is not None for i in edge.map)}

    def span(self, node: Node) -> Span:
        lo, hi = self.demands[node.id].box.interval(self.dim.symbol)
        return Span(const(0), hi) if node.op == "random_bits" else Span(lo, hi)

    def fits(self, node: Node) -> bool:
        if node.op in _OUTSIDE or self.dim.symbol in self.sequential.get(node.id, ()):
            return False
        if not supported(node, self.dim.symbol) or not self.may_be_made(node):
            return False
        return all(readable(self.graph, edge, self.dim.symbol) for _, edge in node.reads())

    def may_be_made(self, node: Node) -> bool:
        """A lifted node is made even where its span is empty: then it may ask for nothing that is not there."""
        span = self.span(node)
        if self.sizes.implies(span.hi.gt(span.lo)):
            return True
        if not self.sizes.implies(span.hi.ge(span.lo)):
            return False
        return all(self.asks_for_nothing(edge) for _, edge in node.reads())

    def asks_for_nothing(self, edge: Edge) -> bool:
        """Whether the read of an empty span takes no point, or what is there before anything runs."""
        given = self.graph.nodes[edge.node].op in ("input", "constant")
        return given or any(_varies(index, self.dim.symbol) for index in edge.map)

    def whole(self, varying: list[Node]) -> set[int]:
        """The nodes of which all points of the span mean something wherever one does.

        Every point of the box is demanded; or all along the dim are or none (`even`); or they all do the same, on
        producers of which this is true. The last is assumed of all and dropped where it fails until nothing does.
        """
        found = {node.id for node in varying}
        even = self.even(found)
        pending = [node for node in varying if not self.demands[node.id].exact and node.id not in even]
        readers: dict[int, list[Node]] = {}
        for node in pending:
            for _, edge in node.reads():
                readers.setdefault(edge.node, []).append(node)
        while pending:
            node = pending.pop()
            if node.id not in found or self.does_the_same(node, found):
                continue
            found.remove(node.id)
            pending += readers.get(node.id, [])
        return found

    def even(self, varying: Collection[int]) -> set[int]:
        """The nodes that are demanded at all points along the dim or at none, whatever the other coordinates are.

        So it is where every reader takes all points, or each its own and is even itself.
        """
        found = set(varying)
        pending = [edge.node for output in self.graph.outputs for edge in self.uneven(output.domain, [output.edge])]
        for node in self.graph.nodes.values():
            guarded = [case.edge for case in node.cases] if _guards(node, self.dim.symbol) else []
            uneven = self.uneven(node.domain, [edge for _, edge in node.reads()])
            pending += [edge.node for edge in (*uneven, *guarded)]
        while pending:
            id = pending.pop()
            if id in found:
                found.remove(id)
                pending += [edge.node for _, edge in self.graph.nodes[id].reads()]
        return found

    def uneven(self, domain: tuple[Symbol, ...], edges: list[Edge]) -> list[Edge]:
        """The reads that take neither all points along the dim nor each its own."""
        symbol = self.dim.symbol
        taken = (Slice(const(0), self.dim.size), *([Point(var(symbol))] if symbol in domain else ()))
        found = []
        for edge in edges:
            places = zip(self.graph.nodes[edge.node].domain, edge.map, strict=True)
            if any(index not in taken if dim == symbol else _varies(index, symbol) for dim, index in places):
                found.append(edge)
        return found

    def does_the_same(self, node: Node, whole: set[int]) -> bool:
        symbol = self.dim.symbol
        if node.op in ("host_call", "sink") or node.attr("checked") or _guards(node, symbol):
            return False
        for _, edge in node.reads():
            producer = self.graph.nodes[edge.node]
            if any(symbol in expr.symbols() for expr in _moving(producer.domain, edge, symbol)):
                return False
            if symbol in producer.domain and edge.node not in whole:
                return False
        return True


def _varies(index: Point | Slice, symbol: Symbol) -> bool:
    return any(symbol in expr.symbols() for expr in index_exprs(index))


def _moving(domain: tuple[Symbol, ...], edge: Edge, symbol: Symbol) -> Iterator[Expr]:
    """The index expressions of a read, but for that of the dim at itself."""
    for dim, index in zip(domain, edge.map, strict=True):
        if not (dim == symbol and index == Point(var(symbol))):
            yield from index_exprs(index)


def supported(node: Node, symbol: Symbol) -> bool:
    """Whether the operator can do all points at once, and what it does varies along the dim only where a rule says."""
    if _guards(node, symbol) or any(symbol in size.symbols() for type in node.results for size in type.shape):
        return False
    if node.op == "merge":
        return True
    if node.op in _REWRITTEN and (node.op != "slice" or _mentions(node, symbol)):
        return _rewritable(node, symbol)
    return OPERATORS[node.op].lift is not None and not _mentions(node, symbol)


def _guards(node: Node, symbol: Symbol) -> bool:
    return any(symbol in case.condition.symbols() for case in node.cases)


def _mentions(node: Node, symbol: Symbol) -> bool:
    return any(symbol in expr.symbols() for expr in attribute_exprs(node))


def _rewritable(node: Node, symbol: Symbol) -> bool:
    if node.op == "slice":
        return not any(symbol in as_symbols(length) for length in node.attr("lengths"))
    if node.op == "random_bits":
        coordinates = [c for c in node.attr("coordinates") if isinstance(c, Expr) and symbol in c.symbols()]
        return coordinates == [var(symbol)]
    return True


def as_symbols(value: Expr | int) -> frozenset[Symbol]:
    return value.symbols() if isinstance(value, Expr) else frozenset()


def readable(graph: Graph, edge: Edge, symbol: Symbol) -> bool:
    """Whether what all points along the dim read is one read: of the same, or of points one after the other."""
    if any(symbol in size.symbols() for size in graph.seen_type(edge).shape):
        return False
    varying = [index for index in edge.map if _varies(index, symbol)]
    return not varying or (len(varying) == 1 and shift(varying[0], symbol) is not None)


def shift(index: Point | Slice, symbol: Symbol) -> Expr | None:
    """c where the index is the dim plus c, and c does not mention it."""
    if not isinstance(index, Point):
        return None
    offset = index.index - var(symbol)
    return None if symbol in offset.symbols() else offset
