"""When a dim may become a spatial axis of the whole graph: every point along it does the same, independently."""

from __future__ import annotations

from collections.abc import Iterator

from tempo.analysis.demand import demand
from tempo.sdg.graph import Edge, Graph, Node, Point, index_exprs
from tempo.sdg.operators import OPERATORS
from tempo.sdg.validate import attribute_exprs
from tempo.symbolic import Condition, Context, Dim, Expr, Symbol, const, var

_FREE = frozenset({"input", "merge"})
_REWRITTEN = frozenset({"index_value", "condition_value", "random_bits", "slice"})
"""Operators whose attributes may vary along a lifted dim; the pass has a rule for each."""


def liftable(graph: Graph, dim: Dim, facts: Condition) -> bool:
    """Whether all nodes that vary along `dim` can have it as an axis instead, with the same meaning."""
    varying = [node for node in graph.nodes.values() if dim.symbol in node.domain]
    if all(node.op == "input" for node in varying):
        return False
    if not all(_supported(node, dim.symbol) for node in varying):
        return False
    if not all(_uniform(graph, edge, domain, dim) for edge, domain in _reads(graph)):
        return False
    return _wholly_demanded(graph, dim, varying, facts)


def _reads(graph: Graph) -> Iterator[tuple[Edge, tuple[Symbol, ...]]]:
    """Every read, with the domain of the reader."""
    for node in graph.nodes.values():
        yield from ((edge, node.domain) for _, edge in node.reads())
    yield from ((output.edge, output.domain) for output in graph.outputs)


def _supported(node: Node, symbol: Symbol) -> bool:
    """Whether the operator can do all points at once, and what it does varies along the dim only where a rule says."""
    if any(symbol in condition.symbols() for condition in _conditions(node)):
        return False
    if any(symbol in size.symbols() for type in node.results for size in type.shape):
        return False
    if node.op in _FREE:
        return True
    if node.op in _REWRITTEN and (node.op != "slice" or _mentions(node, symbol)):
        return _rewritable(node, symbol)
    return OPERATORS[node.op].lift is not None and not _mentions(node, symbol)


def _mentions(node: Node, symbol: Symbol) -> bool:
    return any(symbol in expr.symbols() for expr in attribute_exprs(node))


def _conditions(node: Node) -> Iterator[Condition]:
    return (case.condition for case in node.cases)


def _rewritable(node: Node, symbol: Symbol) -> bool:
    if node.op == "slice":
        return not any(symbol in as_symbols(length) for length in node.attr("lengths"))
    if node.op == "random_bits":
        coordinates = [c for c in node.attr("coordinates") if isinstance(c, Expr) and symbol in c.symbols()]
        return coordinates == [var(symbol)]
    return True


def as_symbols(value: Expr | int) -> frozenset[Symbol]:
    return value.symbols() if isinstance(value, Expr) else frozenset()


def _uniform(graph: Graph, edge: Edge, domain: tuple[Symbol, ...], dim: Dim) -> bool:
    """Whether the read of every point along the dim is that of any other: at the same point, of one, or of all."""
    for symbol, index in zip(graph.nodes[edge.node].domain, edge.map, strict=True):
        mentioned = any(dim.symbol in expr.symbols() for expr in index_exprs(index))
        if symbol != dim.symbol and mentioned:
            return False
        if symbol != dim.symbol:
            continue
        if dim.symbol in domain and index != Point(var(symbol)):
            return False
        if not isinstance(index, Point) and (index.start, index.length) != (const(0), dim.size):
            return False
    return True


def _wholly_demanded(graph: Graph, dim: Dim, varying: list[Node], facts: Condition) -> bool:
    """Whether each node that is demanded at one point along the dim is demanded at all of them.

    A reader without the dim that takes a single point may leave others out inside a box that is not exact. That they
    are computed shows only where one may raise.
    """
    demands, sizes = demand(graph, facts), Context.of((), facts)
    boxes = [demands[node.id].box.interval(dim.symbol) for node in varying]
    if not all(lo == const(0) and sizes.implies(hi.ge(dim.size)) for lo, hi in boxes):
        return False
    if not any(node.attr("checked") for node in varying):
        return True
    picked = any(_picks_one(graph, edge, domain, dim.symbol) for edge, domain in _reads(graph))
    return not picked or all(demands[node.id].exact for node in varying)


def _picks_one(graph: Graph, edge: Edge, domain: tuple[Symbol, ...], symbol: Symbol) -> bool:
    """Whether a reader without the dim reads a single point along it."""
    places = zip(graph.nodes[edge.node].domain, edge.map, strict=True)
    return symbol not in domain and any(s == symbol and isinstance(index, Point) for s, index in places)
