"""What may not be read in a run that may end early: what is made later, and what may never be made.

Recurrent tensors, inputs, calls and outputs have points in time; what lies between them has none: in
`h[t + 1] = f(x[t + 1])` the operator `f` stands at t and is wanted at t + 1. So reads are followed through pure nodes
and cases, and what counts is how far ahead of the point where something is wanted the whole way leads.

A dim that has no end is one along which every point may be the last. So it has a stop that never holds, and what is
more: nothing may read the size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.reports import output_reader, slice_text, tensor_name
from tempo.analysis.rows import row_masks, shows_rows
from tempo.errors import Location, UnsupportedError
from tempo.sdg.builder import NodeBuilder, attribute_exprs
from tempo.sdg.call import ArrayValue
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice, TensorType, index_exprs
from tempo.symbolic import Box, Condition, Context, Expr, Symbol, const, var


@dataclass(frozen=True)
class _ReadAhead:
    """`reader` reads at `index`; the way through it leads at most `ahead` points on (None: nobody knows)."""

    ahead: int | None
    reader: Node
    edge: Edge
    index: Point | Slice

    @property
    def rank(self) -> tuple[bool, int]:
        return self.ahead is None, self.ahead or 0


def check_stops(graph: Graph) -> None:
    """Raises `UnsupportedError`, at the line of the reader, for a read along the dim of a stop that is not proven to
    be of the present or the past; where the reader does not vary along the dim, of its first point. Where rows end each
    by itself, also for what `row_masks` refuses.
    """
    for symbol, stop in graph.stops.items():
        check = _Check(graph, symbol, f"the run may end early along {symbol.name}")
        check.run()
        check.lasts(stop)
        if stop.rows:
            row_masks(graph, stop)
            check.folds(stop)


def check_along(graph: Graph, symbol: Symbol, why: str) -> None:
    """The same along one dim; `why` no later point may be read."""
    _Check(graph, symbol, why).run()


class _Check:
    def __init__(self, graph: Graph, symbol: Symbol, why: str) -> None:
        self.graph, self.symbol, self.why = graph, symbol, why
        self.demands: Mapping[int, Demand] = demand(graph)
        self.known: dict[int, _ReadAhead | None] = {}

    def run(self) -> None:
        nodes = [self.graph.nodes[id] for id in sorted(self.graph.reachable())]
        between = [node for node in nodes if self._passes_on(node)]
        inside = {node.id for node in between}
        reads = {node.id: [e.node for _, e in node.reads() if e.node in inside] for node in between}
        for component in strongly_connected(reads, reads):  # producers first
            for id in component:
                self.known[id] = self._farthest(self.graph.nodes[id])
        readers = [node for node in nodes if not self._passes_on(node)]
        readers += [output_reader(output) for output in self.graph.outputs if output.role != "stop"]
        for reader in readers:
            step = self._farthest(reader)
            if step is not None and (step.ahead is None or step.ahead > 0):
                raise self._later(step)

    def lasts(self, stop: Output) -> None:
        """What is read at the last point is known when the loop has ended: nothing in the loop may be made of it."""
        graph, dim = self.graph, self.symbol.name

        def readers(id: int) -> list[int]:
            return [reader for reader, _ in graph.consumers[id]]

        asked = graph.reachable()
        for last in (each for each in _lasts(graph, self.symbol) if each.id in asked):
            behind = reached([last.id], readers) & asked
            inside = [graph.nodes[id] for id in sorted(behind) if self.symbol in graph.nodes[id].domain]
            if not inside and stop.edge.node not in behind:
                continue
            reader = inside[0] if inside else graph.nodes[stop.edge.node]
            raise UnsupportedError(
                f"{last.name} is known when the loop over {dim} has ended, and {tensor_name(reader)} in it is made of"
                " it",
                location=reader.location or last.location,
                hint=f"in the loop the last point so far is {dim} itself; what does not vary along {dim} may read the"
                " last of all",
            )

    def folds(self, stop: Output) -> None:
        """Which rows count is known of points: what is folded at one must be of no later one."""
        for node in map(self.graph.nodes.__getitem__, self.graph.reachable()):
            for edge in (each for each in node.operands if shows_rows(self.graph, stop, each)):
                step = self.known.get(edge.node)
                if step is not None and (step.ahead is None or step.ahead > 0):
                    raise self._later(step)

    def _passes_on(self, node: Node) -> bool:
        """Whether the node has no time of its own along the dim."""
        if self.symbol not in node.domain:
            return False
        return not node.is_nominal or node.is_draw or node.is_backend_call or node.attr("role") == "cases"

    def _farthest(self, reader: Node) -> _ReadAhead | None:
        """The read that leads farthest on, through others; None where the reader reads nothing along the dim."""
        steps = [step for condition, edge in reader.guarded_reads() for step in self._steps(reader, condition, edge)]
        return max(steps, key=lambda step: step.rank, default=None)

    def _steps(self, reader: Node, condition: Condition, edge: Edge) -> Iterator[_ReadAhead]:
        producer = self.graph.nodes[edge.node]
        if self.symbol not in producer.domain or (reader.is_last and reader.attr("along") == self.symbol):
            return
        index = edge.map[producer.domain.index(self.symbol)]
        own = _ahead(_context(self.graph, self.demands, reader, condition), self.symbol, reader, index)
        behind = self.known.get(producer.id)
        if behind is None or (own is not None and own > 0):
            both = own if behind is None or own is None or behind.ahead is None else own + behind.ahead
            yield _ReadAhead(both, reader, edge, index)
        else:
            both = None if own is None or behind.ahead is None else own + behind.ahead
            yield _ReadAhead(both, behind.reader, behind.edge, behind.index)

    def _later(self, step: _ReadAhead) -> UnsupportedError:
        name, dim = tensor_name(self.graph.nodes[step.edge.node]), self.symbol.name
        at = step.index
        where = str(at.index) if isinstance(at, Point) else slice_text(at.start, at.length)
        late = "later than the point itself" if self.symbol in step.reader.domain else "after the first point"
        return UnsupportedError(
            f"{name}[{dim} = {where}] is read, which may be {late}, and {self.why}",
            location=step.reader.location or self.graph.nodes[step.edge.node].location,
            hint=f"read the present and the past of {dim} only; what is wanted at the end is x.at({dim}={dim}.last),"
            " written after the stop",
        )


def _lasts(graph: Graph, symbol: Symbol) -> list[Node]:
    """What reads at the last point along the dim."""
    return [node for node in graph.nodes.values() if node.is_last and node.attr("along") == symbol]


def first_asked(graph: Graph, demands: Mapping[int, Demand], symbol: Symbol) -> Mapping[int, int]:
    """By node along the dim of a stop: how many points after its own a point of it is asked for at the earliest.

    `h[t + 1] = f(x)` asks for `f` at t when h is asked for at t + 1. Outputs and calls are asked for at their own
    points. Left out are nodes of which nobody knows.
    """
    nodes = [graph.nodes[id] for id in sorted(graph.reachable())]
    delays = {node.id: list(_delays(graph, demands, symbol, node)) for node in nodes}
    roots = [each for output in graph.outputs for each in _delays(graph, demands, symbol, output_reader(output))]
    roots += [(node.id, 0.0) for node in nodes if node.has_effect]
    backwards = (delay for each in (*delays.values(), roots) for _, delay in each if -inf < delay < 0)
    least = sum(backwards)  # no way through the graph is shorter, unless it runs in circles
    found: dict[int, float] = {}
    pending = deque(roots)
    while pending:
        id, after = pending.popleft()
        after = after if after >= least else -inf
        if after < found.get(id, inf):
            found[id] = after
            own = after if symbol in graph.nodes[id].domain else 0.0
            pending.extend((producer, own + delay) for producer, delay in delays[id])
    return {id: int(after) for id, after in found.items() if after > -inf and symbol in graph.nodes[id].domain}


def _delays(graph: Graph, demands: Mapping[int, Demand], symbol: Symbol, reader: Node) -> Iterator[tuple[int, float]]:
    """What the reader reads, and by how many points at least it lies behind."""
    for condition, edge in reader.guarded_reads():
        producer = graph.nodes[edge.node]
        if symbol not in producer.domain:
            yield producer.id, 0.0
            continue
        context = _context(graph, demands, reader, condition)
        ahead = _ahead(context, symbol, reader, edge.map[producer.domain.index(symbol)])
        yield producer.id, -inf if ahead is None else float(-ahead)


def _ahead(context: Context, symbol: Symbol, reader: Node, index: Point | Slice) -> int | None:
    """How many points past the reader's own the last one lies that the index reads; an empty slice reads none."""
    here: Expr = var(symbol) if symbol in reader.domain else const(0)
    if isinstance(index, Point):
        return context.constant_bounds(index.index - here)[1]
    inside = context.assume(index.length.ge(1))
    return 0 if inside.infeasible() else inside.constant_bounds(index.start + index.length - 1 - here)[1]


def _context(graph: Graph, demands: Mapping[int, Demand], reader: Node, condition: Condition) -> Context:
    dims = graph.domain_dims(reader)
    box = demands[reader.id].box if reader.id in demands else Box.full(dims)
    return Context.of(dims, condition, box=box)


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
    if symbol not in graph.stops:
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
    """The state of a parameter at the last point of the dim becomes that at each (see `Graph.stops`)."""
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
        own = (*attribute_exprs(node), *(extent for type in node.results for extent in type.shape))
        if size in _symbols_of_reads(node.reads()) or any(size in expr.symbols() for expr in own):
            line = next((c.location for c in node.cases if size in _symbols_of_reads([(c.condition, c.edge)])), None)
            raise _reads_size(symbol, tensor_name(node), line or node.location)


def _symbols_of_reads(reads: Iterable[tuple[Condition | None, Edge]]) -> set[Symbol]:
    found: set[Symbol] = set()
    for condition, edge in reads:
        found |= condition.symbols() if condition is not None else frozenset()
        found |= {each for index in edge.map for expr in index_exprs(index) for each in expr.symbols()}
    return found


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
