"""Where rows end, and runs early: the evaluator looks at no condition behind the point where one holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tempo.analysis.reports import output_reader
from tempo.analysis.rows import ends_of, is_known, is_ragged, length_error, row_ends, row_masks, shows_rows
from tempo.sdg.graph import Edge, Graph, IndexMap, Node, Output, Point, Slice
from tempo.symbolic import Symbol, const

Array = np.ndarray[Any, Any]
Environment = Mapping[Symbol, int]


class Ends:
    """`read` gives what an edge shows to a node at a point; `extents` are the sizes of the dims."""

    def __init__(
        self, graph: Graph, read: Callable[[Node, Edge, Environment], Array], extents: Mapping[Symbol, int]
    ) -> None:
        self.graph, self._read, self._extents = graph, read, extents
        self.rows = {end.along: end for end in row_ends(graph)}
        self._masks = {symbol: row_masks(graph, end) for symbol, end in self.rows.items()}
        self._around = {symbol: self._ends_around(end) for symbol, end in {**graph.stops, **self.rows}.items()}
        self._known = {symbol for symbol, end in graph.ragged.items() if is_known(graph, end)}

    def _ends_around(self, end: Output) -> list[Symbol]:
        """Along which its rows are points of other rows; what stops looks at nothing of a stop before."""
        others = ends_of(self.graph, end.rows) if end.role == "stop" else self.rows.values()
        return [each.along for each in others if each is not end and is_ragged(each, end.rows)]

    def lengths(self, symbol: Symbol, most: int, kept: Mapping[Symbol, int] | None = None) -> Array:
        """How many points there are along a dim that ends early, `most` at most; of each row, where it has some.

        `kept`: how many points there are of the rows' dims that end early.
        """
        rows = (self.rows.get(symbol) or self.graph.stops[symbol]).rows
        shape = [(kept or {}).get(row, self._extents[row]) for row in rows]
        found = [self._length(symbol, dict(zip(rows, at)), most) for at in np.ndindex(*shape)]
        return np.array(found, np.int32).reshape(shape)

    def given(self, kept: Mapping[Symbol, int]) -> dict[Symbol, Array]:
        """The lengths of rows that no stop says."""
        return {symbol: self.lengths(symbol, self._extents[symbol], kept) for symbol in self.graph.ragged}

    def _length(self, symbol: Symbol, at: Environment, most: int) -> int:
        if symbol in self.graph.ragged:
            return min(self._given_length(symbol, at), most)
        if not self.exists(self._around[symbol], at):
            return 0
        return self._end(symbol, at, most) or most

    def _given_length(self, symbol: Symbol, at: Environment) -> int:
        """Rows that are points of other rows, and not there, have no points, and nobody looks at their lengths."""
        end, size = self.graph.ragged[symbol], self._extents[symbol]
        if not self.exists(self._around[symbol], at):
            return 0
        length = int(self._read(output_reader(end), end.edge, {**at, symbol: 0}))
        if not 0 <= length <= size:
            raise length_error(self.graph, end, [at[row] for row in end.rows], length, size)
        return length

    def of_rows(self, lengths: Mapping[Symbol, Array]) -> dict[str, Array]:
        return {symbol.name: each for symbol, each in lengths.items() if symbol in self.rows}

    def _end(self, symbol: Symbol, at: Environment, most: int) -> int:
        """How many points are kept; 0 where none of the first `most` is the last."""
        stop = self.graph.stops[symbol]
        ends = (int(self._read(output_reader(stop), stop.edge, {**at, symbol: point})) for point in range(most))
        return next((count for count in ends if count), 0)

    def shown(self, edge: Edge) -> list[Symbol]:
        """The dims along which it may show points behind the end of a row."""
        return [symbol for symbol, end in self.rows.items() if shows_rows(self.graph, end, edge)]

    def last_read(self, node: Node, at: Environment) -> Edge:
        """Of a merge of role "last": what it reads at a point, when it is known where its row, or the run, ends."""
        symbol, edge = node.attr("along"), node.cases[0].edge
        rows = {row: at[row] for row in self.graph.stops[symbol].rows}
        last = Point(const(max(self._length(symbol, rows, self._extents[symbol]) - 1, 0)))
        places = zip(self.graph.nodes[edge.node].domain, edge.map)
        return replace(edge, map=tuple(last if each == symbol else index for each, index in places))

    def conditions_of(self, symbol: Symbol, at: Environment) -> Iterator[tuple[Output, Environment]]:
        """Where a stop is looked at to know where a row, or the run, ends."""
        rows = {row: at[row] for row in self.graph.stops[symbol].rows}
        return self._looked_at(self.graph.stops[symbol], {**rows, symbol: self._extents[symbol]})

    def conditions(self, symbol: Symbol, at: Environment) -> Iterator[tuple[Output, Environment]]:
        """What is looked at, and where, to know whether a row has the point `at`; each must be there for the next."""
        end = self.rows[symbol]
        if symbol in self.graph.stops:
            yield from self._looked_at(end, at)
        elif symbol not in self._known:
            for around in self._around[symbol]:
                yield from self.conditions(around, at)
            if self.exists(self._around[symbol], at):
                yield end, {**{row: at[row] for row in end.rows}, symbol: 0}

    def _looked_at(self, stop: Output, at: Environment) -> Iterator[tuple[Output, Environment]]:
        for point in range(at[stop.along]):
            here = {**at, stop.along: point}
            yield stop, here
            if self._read(output_reader(stop), stop.edge, here):
                return

    def exists(self, symbols: Sequence[Symbol], at: Environment) -> bool:
        return all(self._has(symbol, at) for symbol in symbols)

    def _has(self, symbol: Symbol, at: Environment) -> bool:
        if symbol in self.graph.ragged:
            return at[symbol] < self._given_length(symbol, at)
        return not self._end(symbol, at, at[symbol])

    def shown_at(self, output: Output, at: Environment, lengths: Mapping[Symbol, Array]) -> Environment | None:
        """Where an output is taken: of what has no axis for the dim, at the row's last point. None behind that."""
        for symbol, stop in self.rows.items():
            is_asked = symbol in lengths or symbol in self.graph.ragged
            if not is_asked or not is_ragged(stop, output.domain):
                continue
            here = tuple(at[row] for row in stop.rows)
            known = symbol in lengths
            length = int(lengths[symbol][here]) if known else self._given_length(symbol, dict(zip(stop.rows, here)))
            if symbol in output.layout and at[symbol] >= length:
                return None
            at = {**at, symbol: min(at[symbol], max(length - 1, 0))}
        return at

    def masked(self, node: Node, at: Environment, operands: list[Array]) -> list[Array]:
        """The operands, without the rows that have ended where these are folded."""
        found = list(operands)
        for symbol, masks in self._masks.items():
            for number in range(len(operands)):
                for mask in masks.get((node.id, number), ()):
                    found[number] = np.array(found[number])
                    rows = np.moveaxis(found[number], mask.rows.axes, range(len(mask.rows.axes)))
                    rows[~self._live(symbol, mask.rows.map, at)] = mask.fill
        return found

    def _live(self, symbol: Symbol, map: IndexMap, at: Environment) -> Array:
        """Which rows there are of what is read through a map."""
        ranges = [_indices(index, at) for index in map]
        points = (dict(zip(self.rows[symbol].domain, point)) for point in itertools.product(*ranges))
        shape = [len(each) for index, each in zip(map, ranges) if isinstance(index, Slice)]
        return np.array([self.exists([symbol], point) for point in points], np.bool_).reshape(shape)


def _indices(index: Point | Slice, at: Environment) -> range:
    start = int((index.index if isinstance(index, Point) else index.start).evaluate(at))
    return range(start, start + (1 if isinstance(index, Point) else int(index.length.evaluate(at))))
