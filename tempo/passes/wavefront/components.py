"""Recurrences that only indices order: cycles whose links along a dim are reads at given indices, of points before, or
of points behind.

    h[n] = f(x[n], h.gather(n, child, within=slice(0, n)))        child known before h

All points whose children are there could be made at once; which these are, an inspector finds when it sees the indices
(Saltz, Mirchandaney, Crowley, "Run-time parallelization and scheduling of loops", IEEE Trans. Computers 40(5), 1991).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tempo.analysis.demand.demand import Demand, certain_points, demand
from tempo.analysis.rows import ends_of
from tempo.errors import UnsupportedError
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.components import reached
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice
from tempo.symbolic import Box, Context, Dim, Expr, Symbol, const, var

Interval = tuple[Expr, Expr]
"""From which point on, and up to which, which is no more of it."""


@dataclass(frozen=True)
class IndirectRead:
    """Node `node`, a gather, takes points of its operand, a tensor of its own cycle: of the `length` from `start` on
    those at `index`, which are known before the run. It is made at `points`, for sure, at all sizes."""

    node: int
    index: Edge
    start: Expr
    length: Expr
    points: tuple[Box, ...]

    @property
    def dims(self) -> frozenset[Symbol]:
        """Along which what is read varies."""
        return self.index.dims() | self.start.dims() | self.length.dims()


@dataclass(frozen=True)
class Wavefront:
    """A recurrence along `dim`: its nodes, with the points from which to which each is asked for, and its indirect
    reads, which are made at the points `reading`. The others are the first ones; the last, where it goes `backward`.

    `rows`: dims of which each point is a row, with a length of its own along `dim`; points read the one before in
    their row, or the one behind.
    """

    dim: Dim
    nodes: Mapping[int, Interval]
    reading: Interval
    backward: bool
    reads: tuple[IndirectRead, ...]
    rows: tuple[Symbol, ...] = ()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return (*self.rows, self.dim.symbol)

    @property
    def others(self) -> Interval:
        """The points that read none."""
        low, high = self.reading
        return (high, self.dim.size) if self.backward else (const(0), low)


def wavefronts(declared: Graph, graph: Graph) -> Iterator[tuple[Symbol, Wavefront | str]]:
    """By dim, the recurrences that indices order, or why they stay as they are. `graph` is what `declared` is with
    gradients expanded: it says what is asked for.

    Cycles along one dim are one recurrence, with what lies between them, where all of it may be.
    """
    cycles: dict[Symbol, list[frozenset[int]]] = {}
    for ids in map(frozenset, declared.components):
        for symbol in sorted({symbol for id in ids for symbol in _sliced(declared, declared.nodes[id], ids)})[:1]:
            cycles.setdefault(symbol, []).append(ids)
    asked = (demand(graph), certain_points(graph)) if cycles else ({}, {})
    for symbol, found in cycles.items():
        whole = _joined(declared, found)
        for ids in (whole, *found) if len(found) > 1 else found:
            try:
                yield symbol, _Recurrence(declared, *asked, declared.dim(symbol), ids).wavefront()
            except UnsupportedError as error:
                if len(found) == 1 or ids != whole:
                    yield symbol, error.message
            else:
                if ids == whole:
                    break


def promises(declared: Graph, graph: Graph) -> tuple[IndirectRead, ...]:
    """All indirect reads of which indices are known before the run, and so whether they are as promised."""
    reads = [
        (node, _sliced(declared, node, ids))
        for ids in map(frozenset, declared.components)
        for node in map(declared.nodes.__getitem__, sorted(ids))
    ]
    found = [node for node, along in reads if along and _why_unknown(declared, node, along) is None]
    known = [node for node in found if not declared.stops.keys() & set(node.domain)]
    to_the_end = [node for node in known if not ends_of(declared, node.domain)]
    certain = certain_points(graph) if to_the_end else {}
    return tuple(_indirect(declared, node, certain[node.id]) for node in to_the_end if certain.get(node.id))


def _why_unknown(graph: Graph, node: Node, along: Sequence[Symbol]) -> str | None:
    """Why it is not known before the run which points a gather takes of its own cycle."""
    index = node.operands[1]
    if node.attr("axis") >= len(along) or node.attr("batch", 0):
        return "elements of its points are taken at other indices for each"
    if any(size.dims() for size in graph.seen_type(index).shape):
        return "not every point reads as many others"
    sources = [graph.nodes[id] for id in reached([index.node], graph.producers)]
    if any(each.op == "gradient" or (each.is_nominal and not (each.is_input or each.is_draw)) for each in sources):
        return "the indices are made while it runs"
    return None


def _indirect(graph: Graph, node: Node, points: tuple[Box, ...]) -> IndirectRead:
    data, index = node.operands
    part = [each for each in data.map if isinstance(each, Slice)][node.attr("axis")]
    return IndirectRead(node.id, index, part.start, part.length, points)


def _joined(graph: Graph, cycles: Sequence[frozenset[int]]) -> frozenset[int]:
    """All cycles, and what is made of one of them for another."""
    ids = frozenset(id for each in cycles for id in each)

    def readers(id: int) -> list[int]:
        return [reader for reader, _ in graph.consumers[id]]

    above, below = reached(ids, readers), reached(ids, graph.producers)
    return frozenset(above & below)


def _sliced(graph: Graph, node: Node, ids: frozenset[int]) -> tuple[Symbol, ...]:
    """The dims along which a gather takes points of its own recurrence."""
    if node.op != "gather" or node.operands[0].node not in ids:
        return ()
    read = node.operands[0]
    pairs = zip(graph.nodes[read.node].domain, read.map, strict=True)
    return tuple(symbol for symbol, index in pairs if isinstance(index, Slice))


@dataclass(frozen=True)
class _Recurrence:
    graph: Graph
    demands: Mapping[int, Demand]
    certain: Mapping[int, tuple[Box, ...]]
    dim: Dim
    ids: frozenset[int]

    def wavefront(self) -> Wavefront:
        """Raises where there is none."""
        graph, symbol, size = self.graph, self.dim.symbol, self.dim.size
        if any(symbol in stop.domain for stop in graph.stops.values()):
            raise UnsupportedError("the run may end early along it")
        if any(node.is_stream and symbol in node.domain for node in graph.nodes.values()):
            raise UnsupportedError("what is streamed along it comes point by point")
        nodes = [graph.nodes[id] for id in sorted(self.ids)]
        if any(ends_of(graph, node.domain) for node in nodes):
            raise UnsupportedError("rows that it varies along have lengths of their own")
        if not all(id in self.demands and self.demands[id].exact for id in self.ids):
            raise UnsupportedError("it is not proven at which points it is asked for")
        for node in nodes:
            self.check(node)
        reads = tuple(self.read(node) for node in nodes if self.reads_points(node))
        asked = {tuple(box.interval(symbol) for box in each.points) for each in reads}
        reading = asked.pop() if len(asked) == 1 else ()
        if len(reading) != 1 or (reading[0][0] == const(0)) == (reading[0][1] == size):
            raise UnsupportedError("it is not proven that all but the first, or the last, points read others")
        ((low, high),), n = reading, var(symbol)
        here = Context.of(graph.dims, n.ge(low), n.lt(high))
        backward = low == const(0)
        sides = (each.start.gt(n) if backward else (each.start + each.length).le(n) for each in reads)
        if not all(map(here.implies, sides)):
            raise UnsupportedError("it is not proven that what is read lies before its reader, or all of it behind")
        points = {id: self.demands[id].box.interval(symbol) for id in sorted(self.ids)}
        return Wavefront(self.dim, points, (low, high), backward, reads)

    def reads_points(self, node: Node) -> bool:
        return bool(_sliced(self.graph, node, self.ids))

    def read(self, node: Node) -> IndirectRead:
        along = _sliced(self.graph, node, self.ids)
        if along != (self.dim.symbol,):
            raise UnsupportedError("its points read others along several dims")
        why = _why_unknown(self.graph, node, along)
        if why is not None:
            raise UnsupportedError(why)
        if others := node.operands[1].dims() - {self.dim.symbol}:
            raise UnsupportedError(f"the indices vary along {', '.join(sorted(each.name for each in others))}, too")
        return _indirect(self.graph, node, self.certain.get(node.id, ()))

    def check(self, node: Node) -> None:
        """Raises for what is not the same at every point, and for links along the dim that are no indirect reads."""
        symbol, here = self.dim.symbol, Point(var(self.dim.symbol))
        if node.is_call or node.op in ("gradient", "custom_gradient", "cotangent"):
            raise UnsupportedError(f"{node.name or node.op} is in it")
        varying = (*(size for type in node.results for size in type.shape), *attribute_exprs(node))
        if any(symbol in each.dims() for each in varying):
            raise UnsupportedError("shapes or attributes in it vary along the dim")
        if node.attr("checked") and not self.reads_points(node):
            raise UnsupportedError("it looks up what else may be out of range")
        rows = node.operands[0] if self.reads_points(node) else None
        for _, edge in node.reads():
            shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map, strict=True))
            if edge.node in self.ids and edge is not rows and shown.get(symbol) != here:
                raise UnsupportedError("its points read others in other ways, too")
