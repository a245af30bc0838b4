"""Rows that have lengths: these are checked, with every read that may be of a point behind a row's end.

It is done before a run where lengths are inputs, and behind it with those that it has computed. All that says so is
known then, lengths, sizes, and the conditions of cases, so it is the same whatever executes a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.analysis.asked import Asked, asked_by_outputs
from tempo.analysis.checks.stopping import first_asked
from tempo.analysis.demand.demand import demand
from tempo.analysis.reports import (
    elements_needed,
    empty_error,
    output_reader,
    point_text,
    reduced_axes,
    tensor_name,
)
from tempo.analysis.rows import (
    OUTPUTS,
    Mask,
    Rows,
    is_known,
    length_error,
    row_masks,
    says_lengths,
    with_losses,
)
from tempo.errors import DomainError, TempoError, UnsupportedError
from tempo.runtime.arguments.call import Arguments
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice
from tempo.symbolic import (
    Condition,
    Context,
    Symbol,
    over_counts,
    var,
)

if TYPE_CHECKING:
    from tempo.language.program import Program
    from tempo.reference.evaluator import Evaluated

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Read:
    """One that may show no point, or a fold that may be of none: `reader` reads `edge` where `where` holds of its point
    and the ends of its rows. `shown`: what it shows of rows, by what says their lengths; of a fold all of it."""

    reader: Node
    edge: Edge
    where: Condition
    shown: tuple[tuple[Output, Rows], ...]

    @property
    def is_fold(self) -> bool:
        return any(rows.axes for _, rows in self.shown)


class RowChecks:
    """Of one program. `to_host` gives the array of an input as NumPy's."""

    def __init__(self, program: Program, to_host: Callable[[Any], Array]) -> None:
        self.program, self._to_host = program, to_host
        self._first: dict[Symbol, Mapping[int, int]] = {}

    @cached_property
    def graph(self) -> Graph:
        return with_losses(self.program.declared())

    def lengths(self, arguments: Arguments, reads: bool = True) -> dict[str, Array]:
        """By dim, how many points each row has: int32, over the rows. `reads`: whether what reads rows is looked at.

        Raises `SizeError` for a length that is negative or larger than the dim, `DomainError` for a read behind the end
        of a row, and `ShapeError` for a fold of nothing that has no value.
        """
        found: dict[Symbol, Array] = {}
        for symbol, end in self.program.declared().ragged.items():
            if symbol not in self._known:
                continue
            given = self._to_host(arguments.arrays[says_lengths(self.graph, end).port])
            given = self._of_those_there(end, given, found)
            self._check_lengths(end, given, arguments.sizes)
            found[symbol] = given.astype(np.int32)
        for read in self._early if found and reads else ():
            self._check(read, arguments.sizes, found)
        return {symbol.name: each for symbol, each in found.items()}

    def made(self, arguments: Arguments, results: Evaluated) -> Arguments:
        """With all lengths of a run that has ended: what depends on those that it has computed is looked at now.

        Raises what `lengths` does.
        """
        lengths = {name: each for name, each in results.lengths.items() if Symbol(name, "dim") not in self._known}
        found = {Symbol(name, "dim"): each for name, each in {**arguments.lengths, **lengths}.items()}
        self.check_computed(arguments, lengths)
        for read in self._late if found.keys() - self._known else ():
            self._check(read, arguments.sizes, found, results.kept)
        return replace(arguments, lengths={symbol.name: each.astype(np.int32) for symbol, each in found.items()})

    def check_proven(self, how: str) -> None:
        """Raises `UnsupportedError` where it is known at the end of a whole run alone, with the lengths that it has
        computed, whether there is what is read. `how` it is run."""
        if self._late:
            read = self._late[0]
            what = tensor_name(self.graph.nodes[read.edge.node])
            raise UnsupportedError(
                f"the program {how}, and that there is what is read of {what} is known when all of it has run",
                location=read.reader.location,
                hint="guard the read with a case on the last point of its row, or run the whole program",
            )

    def check_computed(self, arguments: Arguments, lengths: Mapping[str, Array]) -> None:
        """Raises `SizeError` for a length that the run has computed and that is none."""
        for symbol, end in self.program.declared().ragged.items():
            if symbol not in self._known and end.name in lengths:
                self._check_lengths(end, lengths[end.name], arguments.sizes)

    @cached_property
    def _known(self) -> frozenset[Symbol]:
        """Along which rows have lengths that are known before a run."""
        graph = self.program.declared()
        return frozenset(symbol for symbol, end in graph.ragged.items() if is_known(graph, end))

    @cached_property
    def _early(self) -> list[_Read]:
        """What is looked at before a run."""
        return [read for read in self._reads if self._lengths_for(read) <= self._known]

    @cached_property
    def _late(self) -> list[_Read]:
        """What is looked at when a run has ended."""
        if self.program.declared().ragged.keys() <= self._known:
            return []
        return [read for read in self._reads if not self._lengths_for(read) <= self._known]

    def _lengths_for(self, read: _Read) -> set[Symbol]:
        """The dims of which it takes lengths to know whether there is what is read."""
        exprs = [index.index for _, rows in read.shown for index in rows.map if isinstance(index, Point)]
        symbols = read.where.symbols().union(*(expr.symbols() for expr in exprs))
        lasts = {symbol.of_kind("dim") for symbol in symbols if symbol.kind == "last"}
        return {end.along for end, _ in read.shown} | lasts

    def _of_those_there(self, end: Output, given: Array, found: Mapping[Symbol, Array]) -> Array:
        """0 for rows that are points of other rows, and not there."""
        at: dict[Symbol, Array] = dict(zip(end.rows, np.ix_(*map(np.arange, given.shape))))
        for symbol in end.rows:
            if symbol in found:
                lengths = found[symbol][tuple(at[row] for row in self.graph.ragged[symbol].rows)]
                given = np.where(at[symbol] < lengths, given, np.zeros((), given.dtype))
        return given

    def _check_lengths(self, end: Output, given: Array, sizes: Mapping[Symbol, int]) -> None:
        size = int(self.graph.dim(end.along).size.evaluate(sizes))
        bad = np.argwhere((given < 0) | (given > size))
        if len(bad):
            row = tuple(map(int, bad[0]))
            raise length_error(self.graph, end, row, int(given[row]), size)

    # What may be wrong, whatever the lengths.

    @cached_property
    def _asked(self) -> Asked:
        return asked_by_outputs(self.graph, self.graph.ragged.values())

    @cached_property
    def _reads(self) -> list[_Read]:
        where = self._asked.where
        masks = [(end, row_masks(self.graph, end)) for end in self.graph.ragged.values()]
        places = {place: None for _, each in masks for place in each}
        reads = (
            read
            for id, number in places
            for read in self._of([(end, each.get((id, number), ())) for end, each in masks], id, number, where)
        )
        at_last = (self._at_last(id, where[id]) for id in where.keys() & self.graph.last_reads.keys())
        return [read for read in (*reads, *at_last) if not self._is_sure(read)]

    def _at_last(self, id: int, where: Condition) -> _Read:
        """The read of a row at a point over its last one."""
        reader, index = self.graph.nodes[id], Point(self.graph.last_reads[id])
        edge = reader.operands[0]
        shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map))
        (end,) = (end for symbol, end in self.graph.ragged.items() if isinstance(shown.get(symbol), Slice))
        map = tuple(index if symbol == end.along else shown[symbol] for symbol in end.domain)
        return _Read(reader, edge, where, ((end, Rows(map, ())),))

    def _of(
        self, masks: Sequence[tuple[Output, tuple[Mask, ...]]], id: int, number: int, where: Mapping[int, Condition]
    ) -> Iterator[_Read]:
        if id == OUTPUTS:
            output = self.graph.outputs[number]
            reader, edge = output_reader(output), output.edge
            condition = self._asked.in_rows(reader)
        else:
            reader = self.graph.nodes[id]
            guard, edge = reader.guarded_reads()[number]
            condition = where[id] & guard & self._asked.selects(reader, number)
        shown = [(end, mask.rows) for end, each in masks for mask in each]
        yield from (_Read(reader, edge, condition, ((end, rows),)) for end, rows in shown if not rows.axes)
        folded = tuple((end, rows) for end, rows in shown if rows.axes)
        if folded and elements_needed(reader):
            yield _Read(reader, edge, condition, folded)

    def _is_sure(self, read: _Read) -> bool:
        """Whether it is of the reader's own row, and shows a point of it wherever it is asked for."""
        if len(read.shown) > 1 or (read.is_fold and elements_needed(read.reader) > 1):
            return False
        ((end, shown),) = read.shown
        *rows, index = shown.map
        context, last = Context.of(self.graph.dims).assume(over_counts(read.where)), var(end.along.of_kind("last"))
        if isinstance(index, Point):
            inside = (index.index.ge(0), index.index.le(last))
        else:
            inside = (index.start.le(last), index.length.ge(1))
        is_own = rows == [Point(var(row)) for row in end.rows]
        return is_own and all(context.implies(over_counts(each)) for each in inside)

    # What is wrong, with some.

    def _check(
        self,
        read: _Read,
        sizes: Mapping[Symbol, int],
        lengths: Mapping[Symbol, Array],
        kept: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        dims, whole = read.reader.domain, self.graph.named_sizes(sizes)
        extents = [kept.get(symbol.name, whole[symbol.name]) for symbol in dims]
        env: dict[Symbol, Any] = {**sizes, **dict(zip(dims, np.ix_(*map(np.arange, extents))))}
        env = self._with_lasts(read.reader, env, lengths)
        there = self._there(read, env, lengths)
        asked = np.broadcast_to(read.where.evaluate(env), extents)
        for count, at in self._ended(read.reader, env, lengths, kept):
            asked = asked & (at < count)
        for point in np.argwhere(np.broadcast_to(~there, extents) & asked):
            raise self._error(read, tuple(map(int, point)), env, lengths)

    def _ended(
        self, reader: Node, env: Mapping[Symbol, Any], lengths: Mapping[Symbol, Array], kept: Mapping[str, int]
    ) -> Iterator[tuple[Any, Any]]:
        """Of dims along which the run, or each row, has ended: how many points are kept, and at which one somebody
        asks for the reader first."""
        for symbol, stop in self.graph.stops.items():
            if symbol in reader.domain and stop.name in {*kept, *(each.name for each in lengths)}:
                of_rows = symbol in lengths and {*stop.rows} <= {*reader.domain}
                count = lengths[symbol][tuple(env[row] for row in stop.rows)] if of_rows else kept.get(stop.name)
                if count is not None:
                    yield count, env[symbol] + self._first_asked(symbol).get(reader.id, 0)

    def _first_asked(self, symbol: Symbol) -> Mapping[int, int]:
        if symbol not in self._first:
            self._first[symbol] = first_asked(self.graph, demand(self.graph), symbol)
        return self._first[symbol]

    def _with_lasts(
        self, reader: Node, env: Mapping[Symbol, Any], lengths: Mapping[Symbol, Array]
    ) -> dict[Symbol, Any]:
        """With the last points of the reader's rows."""
        known = (end for end in self.graph.ragged.values() if end.along in lengths)
        ends = [end for end in known if {*end.rows} <= {*reader.domain}]
        lasts = {end.along: lengths[end.along][tuple(env[row] for row in end.rows)] - 1 for end in ends}
        return {**env, **{symbol.of_kind("last"): at for symbol, at in lasts.items()}}

    def _there(self, read: _Read, env: Mapping[Symbol, Any], lengths: Mapping[Symbol, Array]) -> Array:
        """Over the reader's dims: whether there is what it needs, at every position that it does not fold."""
        folded = reduced_axes(read.reader) if read.is_fold else ()
        axes = sorted({axis for _, rows in read.shown for axis in rows.axes})
        dims, count = len(read.reader.domain), len(read.reader.domain) + len(axes)
        found, inside = np.ones((1,) * count, np.int64), np.ones((1,) * count, np.bool_)

        def wide(value: Any) -> Array:
            """Over the reader's dims, with axes of size 1 behind them."""
            array = np.asarray(value)
            return array.reshape(*array.shape, *(1,) * (count - array.ndim)) if array.ndim else array

        for end, rows in read.shown:
            at, places = [], iter(rows.axes)
            for symbol, index in zip(end.domain, rows.map):
                if isinstance(index, Point):
                    at.append(wide(index.index.evaluate(env)))
                    continue
                own = dims + axes.index(place := next(places))
                start, length = (wide(each.evaluate(env)) for each in (index.start, index.length))
                if symbol == end.along and place in folded and len(read.shown) == 1:
                    continue  # how many of them there are is known without a look at each
                positions = np.arange(int(self.graph.dim(symbol).size.evaluate(env)))
                positions = positions.reshape([-1 if each == own else 1 for each in range(count)])
                inside = inside & (positions < length)
                at.append(start + positions)
            whole = lengths[end.along]
            size = whole[tuple(np.clip(each, 0, extent - 1) for each, extent in zip(at, whole.shape))]
            if len(at) == len(rows.map):
                found = found * ((at[-1] >= 0) & (at[-1] < size))
            else:
                found = found * np.clip(np.minimum(start + length, size) - np.maximum(start, 0), 0, None)
        sums = tuple(dims + place for place, axis in enumerate(axes) if axis in folded)
        needed = elements_needed(read.reader) if read.is_fold else 1
        enough = np.where(inside, found, 0).sum(axis=sums, keepdims=True) >= needed
        enough = enough | ~inside.any(axis=sums, keepdims=True)
        return np.asarray(enough.all(axis=tuple(range(dims, count))))

    def _error(
        self, read: _Read, point: tuple[int, ...], env: Mapping[Symbol, Any], lengths: Mapping[Symbol, Array]
    ) -> TempoError:
        if read.is_fold:
            return empty_error(read.reader, point)
        ((end, rows),) = read.shown
        reader, producer = read.reader, self.graph.nodes[read.edge.node]
        here = {symbol: value for symbol, value in env.items() if symbol not in reader.domain}
        here |= dict(zip(reader.domain, point))
        here = self._with_lasts(reader, here, lengths)
        indices = [int(index.index.evaluate(here)) for index in rows.map if isinstance(index, Point)]
        row = indices[:-1]
        length = int(lengths[end.along][tuple(row)])
        by = f" by {tensor_name(reader)}" if reader.name else ""
        where = f" at {point_text(reader.domain, point)}" if reader.domain else ""
        whose = f"the row {point_text(end.rows, row)}" if row else "the row"
        written = next((case.location for case in reader.cases if case.edge == read.edge), None)
        return DomainError(
            f"{tensor_name(producer)}[{point_text(end.domain, indices)}] is read{by}{where}, and {whose} has "
            f"{length} points along {end.name}",
            location=written or reader.location or producer.location,
            hint=f"guard the read with a case on {end.name}.last: its points are 0 to {end.name}.last",
        )
