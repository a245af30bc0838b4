"""Runs along a dim that has no end: what may not be in a program that goes on for as long as somebody asks.

Along such a dim every point may be the last, as in a run that `tp.stop_when` ends. So it has a stop that never holds,
and what is more: nothing may read the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tempo.analysis.checks.stopping import check_along
from tempo.analysis.reports import tensor_name
from tempo.errors import Location, UnsupportedError
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, TensorType, index_exprs
from tempo.sdg.operators import OPERATORS
from tempo.sdg.stops import stops_of
from tempo.symbolic import Condition, Expr, Symbol, var


def endless(graph: Graph, symbol: Symbol) -> Graph:
    """The graph, with a stop along `symbol` that never holds, and with the state of parameters at every point.

    Raises `UnsupportedError`, at the user's line, where the size of the dim is read, or a later point.
    """
    size = Symbol(symbol.name, "size")
    if graph.dim(symbol).size != var(size):
        raise _has_end(symbol, f"the program says that its size is {graph.dim(symbol).size}")
    for dim in graph.dims:
        if dim.symbol != symbol and size in dim.size.symbols():
            raise _has_end(symbol, f"the size of the dim {dim.symbol.name!r} is {dim.size}")
    outputs = tuple(_at_every_point(graph, output, symbol) for output in graph.outputs)
    found = replace(graph, outputs=outputs)
    _check_size_is_not_read(found, symbol, size)
    if symbol not in stops_of(graph):
        found = _with_stop(found, symbol)
    check_along(found, symbol, f"{symbol.name} has no end")
    return found


def _with_stop(graph: Graph, symbol: Symbol) -> Graph:
    type = TensorType((), "int32")
    new = NodeBuilder(graph.dims, graph.nodes)
    never = new.pure("constant", (), {"value": ArrayValue(np.zeros((), np.int32))})
    stop = Output(symbol.name, never, (symbol,), type, (), "stop")
    return replace(graph, nodes=new.nodes, outputs=(*graph.outputs, stop))


def _at_every_point(graph: Graph, output: Output, symbol: Symbol) -> Output:
    """The state of a parameter at the last point of the dim becomes that at each (see `tempo.sdg.stops`)."""
    node = graph.nodes[output.edge.node]
    if output.role != "state" or symbol not in node.domain or symbol in output.domain:
        return output
    map = tuple(Point(var(each)) if each == symbol else at for each, at in zip(node.domain, output.edge.map))
    domain = graph.canonical((*output.domain, symbol))
    return replace(output, edge=replace(output.edge, map=map), domain=domain)


def _check_size_is_not_read(graph: Graph, symbol: Symbol, size: Symbol) -> None:
    for output in graph.outputs:
        if size in _symbols_of_reads([(None, output.edge)]):
            raise _reads_size(symbol, f"the output {output.name!r}", output.location)
    for id in sorted(graph.reachable()):
        node = graph.nodes[id]
        exprs = _symbols_of_reads(node.reads()) | {each for expr in _exprs(node) for each in expr.symbols()}
        if size in exprs:
            line = next((c.location for c in node.cases if size in _symbols_of_reads([(c.condition, c.edge)])), None)
            raise _reads_size(symbol, tensor_name(node), line or node.location)


def _symbols_of_reads(reads: Iterable[tuple[Condition | None, Edge]]) -> set[Symbol]:
    found: set[Symbol] = set()
    for condition, edge in reads:
        found |= condition.symbols() if condition is not None else frozenset()
        found |= {each for index in edge.map for expr in index_exprs(index) for each in expr.symbols()}
    return found


def _exprs(node: Node) -> Iterator[Expr | Condition]:
    yield from (extent for type in node.results for extent in type.shape)
    operator = OPERATORS[node.op]
    yield from operator.scalars(node.attributes)
    yield from operator.static(node.attributes)


def _reads_size(symbol: Symbol, what: str, location: Location | None) -> UnsupportedError:
    name = symbol.name
    return UnsupportedError(
        f"{what} needs the size of {name}, or a point counted from its end, and {name} has no end",
        location=location,
        hint=f'give the size: sizes={{"{name}": ...}}, or read the present and the past of {name} only',
    )


def _has_end(symbol: Symbol, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{symbol.name} cannot be streamed without an end: {why}",
        hint=f"leave {symbol.name} out of sizes=, or give its size",
    )
