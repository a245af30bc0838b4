"""Rows that end each at a point of its own (`tp.stop_when(t, condition, each=b)`): who sees several of them.

A tensor over `t` and all rows has no points behind the end of a row. Whoever reads its own row sees none of them. A
slice over all rows shows what is there of each, and may only be folded: its axes are followed, by the axis rule,
through operators that keep positions apart, up to one that folds all of them. There the rows that have ended do not
count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.analysis.reports import tensor_name
from tempo.errors import Location, UnsupportedError
from tempo.sdg.graph import Edge, Graph, IndexMap, Node, Output, Point, Slice, substitute_index
from tempo.sdg.operators import OPERATORS, factors_of
from tempo.sdg.operators.axes import Factor, Role
from tempo.symbolic import Symbol, const, var


@dataclass(frozen=True)
class Rows:
    """Axes that show rows at points of theirs: a read through `map`, over the stop's domain, of which of them exist.

    `axes` has one for each `Slice` of the map, in order.
    """

    map: IndexMap
    axes: tuple[int, ...]

    def moved(self, more: int, at: Mapping[Symbol, Point]) -> Rows:
        """As whoever reads them at other points sees them, behind `more` axes."""
        within = {symbol: point.index for symbol, point in at.items()}
        return Rows(tuple(substitute_index(each, within) for each in self.map), tuple(a + more for a in self.axes))


@dataclass(frozen=True)
class Mask:
    """What an operand shows of rows that have ended is `fill`."""

    rows: Rows
    fill: bool | int | float


Masks = Mapping[tuple[int, int], tuple[Mask, ...]]
"""By node, and the number of an operand."""


def is_ragged(stop: Output, domain: tuple[Symbol, ...]) -> bool:
    """Whether what varies along these dims has no points behind the end of a row."""
    return bool(stop.rows) and set(stop.domain) <= set(domain)


def shows_rows(graph: Graph, stop: Output, edge: Edge) -> bool:
    """Whether the edge shows several rows, some of which may have ended."""
    domain = graph.nodes[edge.node].domain
    indices = dict(zip(domain, edge.map))
    return is_ragged(stop, domain) and any(isinstance(indices[symbol], Slice) for symbol in stop.rows)


def row_masks(graph: Graph, stop: Output) -> Masks:
    """Where rows that have ended must not count.

    Raises `UnsupportedError`, at the line of the reader, for another read of other rows than a fold of all of them, and
    for calls of the host that are made for each row.
    """
    return _Walk(graph, stop).masks()


class _Walk:
    def __init__(self, graph: Graph, stop: Output) -> None:
        self.graph, self.stop = graph, stop
        self.shown: dict[int, tuple[Rows, ...]] = {}  # by pure node, what its axes show of rows
        self.found: dict[tuple[int, int], tuple[Mask, ...]] = {}

    def masks(self) -> Masks:
        reachable = self.graph.reachable()
        nodes = [node for node in self.graph.operands_first() if node.id in reachable]
        for node in nodes:
            self._visit(node)
        for node in nodes:  # not before: a merge stands in front of what its cases read
            for case in node.cases:
                self._check_keeps(case.edge, case.location or node.location)
        for output in self.graph.outputs:
            self._check_keeps(output.edge, output.location)
        return self.found

    def _visit(self, node: Node) -> None:
        if node.has_effect and is_ragged(self.stop, node.domain):
            raise self._called(node)
        shown: list[Rows] = []
        for number, edge in enumerate(node.operands):
            for rows in self._seen(edge, node.location):
                shown.extend(self._through(node, number, rows))
        self.shown[node.id] = tuple(shown)

    def _check_keeps(self, edge: Edge, reader: Location | None) -> None:
        """What is kept of an edge must show no rows: nobody folds it."""
        if any(self._seen(edge, reader)):
            raise self._other_rows(edge, reader)

    def _seen(self, edge: Edge, reader: Location | None) -> Iterator[Rows]:
        producer = self.graph.nodes[edge.node]
        indices = dict(zip(producer.domain, edge.map))
        slices = [symbol for symbol, index in indices.items() if isinstance(index, Slice)]
        points = {symbol: index for symbol, index in indices.items() if isinstance(index, Point)}
        for rows in self.shown.get(producer.id, ()):
            if any(symbol in _dims(index) for index in rows.map for symbol in slices):
                raise self._other_rows(edge, reader)
            moved = rows.moved(len(slices), points)
            if not self._stays(dict(zip(self.stop.domain, moved.map))):
                yield moved
        if is_ragged(self.stop, producer.domain) and not self._stays(indices):
            read = tuple(indices[symbol] for symbol in self.stop.domain)
            if not all(self._is_whole(symbol, indices[symbol]) for symbol in self.stop.rows):
                raise self._other_rows(edge, reader)
            yield Rows(read, tuple(slices.index(symbol) for symbol in self.stop.domain if symbol in slices))

    def _stays(self, indices: Mapping[Symbol, Point | Slice]) -> bool:
        """In the reader's own row, or at the first point, which every row has."""
        dim = next(symbol for symbol in self.stop.domain if symbol not in self.stop.rows)
        own = all(indices[symbol] == Point(var(symbol)) for symbol in self.stop.rows)
        return own or indices[dim] == Point(const(0))

    def _is_whole(self, symbol: Symbol, index: Point | Slice) -> bool:
        return isinstance(index, Slice) and index == Slice(const(0), self.graph.dim(symbol).size)

    def _through(self, node: Node, number: int, rows: Rows) -> Iterator[Rows]:
        edge, operator = node.operands[number], OPERATORS[node.op]
        factors = () if node.is_nominal else factors_of(node, self.graph.seen_type)
        places = {each.operands[number]: each for each in factors}
        sliced = [symbol for symbol, index in zip(self.stop.domain, rows.map) if isinstance(index, Slice)]
        if not places.keys() >= set(rows.axes):
            raise self._other_rows(edge, node.location)
        own = [places[axis] for axis, symbol in zip(rows.axes, sliced) if symbol in self.stop.rows]
        every = [places[axis] for axis in rows.axes]
        neutral = operator.padding(self.graph.seen_type(edge).dtype)
        if all(map(_is_folded, own)) and all(_is_folded(each) or _is_kept(each) for each in every):
            if neutral is None:
                raise self._other_rows(edge, node.location)
            key = node.id, number
            self.found[key] = (*self.found.get(key, ()), Mask(rows, neutral))
            return
        if not all(map(_is_kept, every)):
            raise self._other_rows(edge, node.location)
        yield Rows(rows.map, tuple(each.result for each in every if each.result is not None))

    def _other_rows(self, edge: Edge, reader: Location | None) -> UnsupportedError:
        producer, names = self.graph.nodes[edge.node], ", ".join(symbol.name for symbol in self.stop.rows)
        return UnsupportedError(
            f"{tensor_name(producer)} is read at other points of {names} than the reader's own, and each of them ends "
            f"by itself along {self.stop.name}",
            location=reader or producer.location,
            hint="fold all of them, by a sum, a maximum, any or all; or leave each= out of the stop",
        )

    def _called(self, node: Node) -> UnsupportedError:
        names = ", ".join(symbol.name for symbol in self.stop.rows)
        return UnsupportedError(
            f"{tensor_name(node)} calls the host at each point of {names}, each of which ends by itself along "
            f"{self.stop.name}",
            location=node.location,
            hint="leave each= out of the stop, which then ends the run when all have ended",
        )


def _dims(index: Point | Slice) -> frozenset[Symbol]:
    exprs = (index.index,) if isinstance(index, Point) else (index.start, index.length)
    return frozenset(symbol for expr in exprs for symbol in expr.dims())


def _is_folded(factor: Factor) -> bool:
    return factor.role is Role.REDUCING and not factor.ordered


def _is_kept(factor: Factor) -> bool:
    return factor.role is Role.PARALLEL and factor.result is not None


def check_means(graph: Graph, means: Mapping[int, int]) -> None:
    """Raises `UnsupportedError` where rows are summed and divided by how many there are; `means`: sums by quotient.

    The sum alone says nothing: who divides by something else reads the same node.
    """
    reachable = graph.reachable()
    for stop in graph.stops.values():
        folds = {id for id, _ in row_masks(graph, stop)} if stop.rows else set()
        for quotient, total in means.items():
            if quotient in reachable and total in folds:
                raise UnsupportedError(
                    f"a mean over rows, each of which ends by itself along {stop.name}, divides by all of them",
                    location=graph.nodes[quotient].location,
                    hint="divide a sum by how many there are: x[:, t].sum(axis=0) / (x == x)[:, t].sum(axis=0)",
                )
