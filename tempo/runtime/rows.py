"""Rows of which the lengths are given: checked before a run, with every read that may be of a point behind their end.

All that says so is known then, lengths, sizes, and the conditions of cases, so it is the same whatever executes a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.analysis.demand.demand import demand
from tempo.analysis.reports import (
    elements_needed,
    empty_error,
    output_reader,
    point_text,
    reduced_axes,
    tensor_name,
)
from tempo.analysis.rows import OUTPUTS, Mask, Rows, ends_of, row_masks, with_losses
from tempo.errors import DomainError, SizeError, TempoError
from tempo.runtime.arguments.call import Arguments
from tempo.sdg.graph import Edge, Node, Output, Point, Slice
from tempo.symbolic import TRUE, And, Condition, Context, Expr, Symbol, conjunction, disjunction, over_counts, var

if TYPE_CHECKING:
    from tempo.language.program import Program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Read:
    """One that may show no point: `reader` reads `edge`, where `where` holds of its point and the ends of its rows."""

    end: Output
    reader: Node
    edge: Edge
    where: Condition
    mask: Mask


class RowChecks:
    """Of one program. `to_host` gives the array of an input as NumPy's."""

    def __init__(self, program: Program, to_host: Callable[[Any], Array]) -> None:
        self.program, self.graph, self._to_host = program, with_losses(program.declared()), to_host

    def lengths(self, arguments: Arguments) -> dict[str, Array]:
        """By dim, how many points each row has: int32, over the rows.

        Raises `SizeError` for a length that is negative or larger than the dim, `DomainError` for a read behind the end
        of a row, and `ShapeError` for a fold of nothing that has no value.
        """
        found: dict[Symbol, Array] = {}
        for symbol, end in self.graph.ragged.items():
            given = self._to_host(arguments.arrays[self.graph.nodes[end.edge.node].port])
            self._check_lengths(end, given, int(self.graph.dim(symbol).size.evaluate(arguments.sizes)))
            found[symbol] = given.astype(np.int32)
        for read in self._reads if found else ():
            self._check(read, arguments.sizes, found)
        return {symbol.name: each for symbol, each in found.items()}

    def _check_lengths(self, end: Output, given: Array, size: int) -> None:
        bad = np.argwhere((given < 0) | (given > size))
        if len(bad):
            row = tuple(map(int, bad[0]))
            at = f"[{point_text(end.rows, row)}]" if row else ""
            name = self.graph.nodes[end.edge.node].name
            raise SizeError(
                f"{name}{at} is {given[row]}, and a row has 0 to {size} points along {end.name}", location=end.location
            )

    # What may be wrong, whatever the lengths.

    @cached_property
    def _reads(self) -> list[_Read]:
        asked = {id: found.box.condition() for id, found in demand(self.graph).items()}
        where = self._where(asked)
        reads = (
            read
            for end in self.graph.ragged.values()
            for (id, number), masks in row_masks(self.graph, end).items()
            for read in self._of(end, id, number, masks, where)
        )
        at_last = (self._at_last(id, where[id]) for id in asked.keys() & self.program.builder.last_reads.keys())
        return [read for read in (*reads, *at_last) if not self._is_sure(read)]

    def _at_last(self, id: int, where: Condition) -> _Read:
        """The read of a row at a point over its last one."""
        reader, index = self.graph.nodes[id], Point(self.program.builder.last_reads[id])
        edge = reader.operands[0]
        shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map))
        (end,) = (end for symbol, end in self.graph.ragged.items() if isinstance(shown.get(symbol), Slice))
        map = tuple(index if symbol == end.along else shown[symbol] for symbol in end.domain)
        return _Read(end, reader, edge, where, Mask(Rows(map, ()), 0))

    def _where(self, boxes: Mapping[int, Condition]) -> dict[int, Condition]:
        """Where each node is asked for, as far as conditions of cases and selections say."""
        asked: dict[int, list[Condition]] = {output.edge.node: [TRUE] for output in self.graph.outputs}
        places = {node.id: place for place, node in enumerate(self.graph.operands_first())}
        found: dict[int, Condition] = {}
        for ids in reversed(
            self.graph.components
        ):  # readers come first; in a cycle all points of its merges are asked for
            cyclic = self._merges_of_cycle(ids)
            for id in sorted(ids, key=lambda id: (id not in cyclic, -places[id])):
                if id not in boxes:
                    continue
                node = self.graph.nodes[id]
                by_readers = TRUE if id in cyclic else disjunction(asked.get(id, [TRUE]))
                found[id] = where = boxes[id] & by_readers & self._in_rows(node)
                for number, (condition, edge) in enumerate(node.guarded_reads()):
                    here = where & condition & self._selects(node, number)
                    asked.setdefault(edge.node, []).append(self._seen_from(node, edge, here))
        return found

    def _merges_of_cycle(self, ids: Collection[int]) -> set[int]:
        merges = {id for id in ids if self.graph.nodes[id].is_merge}
        return merges if len(ids) > 1 else {id for id in merges if id in self.graph.producers(id)}

    def _seen_from(self, reader: Node, edge: Edge, where: Condition) -> Condition:
        """What holds at a point of the producer that is read from where this holds: as far as it says which that is."""
        within: dict[Symbol, Expr] = {}
        for symbol, index in zip(self.graph.nodes[edge.node].domain, edge.map):
            dims = index.index.dims() if isinstance(index, Point) else ()
            for dim in dims:
                shift = index.index - var(dim)  # type: ignore[union-attr]
                if shift.is_const and dim not in within:
                    within[dim] = var(symbol) - shift
        known = {symbol for symbol in within if within[symbol] == var(symbol)}
        parts = where.args if isinstance(where, And) else (where,)
        found = [
            part.substitute(within)
            for part in parts
            if part.dims() <= within.keys() and {row for each in self._ends_in(part) for row in each.rows} <= known
        ]
        ends = (end for end in ends_of(self.graph, reader.domain) if end.along not in within and known >= {*end.rows})
        return conjunction((*found, *(var(_last(end.along)).ge(0) for end in ends)))

    def _ends_in(self, condition: Condition) -> list[Output]:
        """The lengths of rows of which it has last points."""
        return [end for symbol, end in self.graph.ragged.items() if _last(symbol) in condition.symbols()]

    def _selects(self, node: Node, number: int) -> Condition:
        """Where an operand counts: the sides of a selection by the end of a row do in turn."""
        condition = self.program.builder.guards.get(node.id, TRUE)
        return TRUE if number == 0 or condition == TRUE else condition if number == 1 else ~condition

    def _of(
        self, end: Output, id: int, number: int, masks: tuple[Mask, ...], where: Mapping[int, Condition]
    ) -> Iterator[_Read]:
        if id == OUTPUTS:
            output = self.graph.outputs[number]
            reader, edge = output_reader(output), output.edge
            condition = self._in_rows(reader)
        else:
            reader = self.graph.nodes[id]
            guard, edge = reader.guarded_reads()[number]
            condition = where[id] & guard & self._selects(reader, number)
        for mask in masks:
            if not mask.rows.axes or self._needed(reader):
                yield _Read(end, reader, edge, condition, mask)

    def _needed(self, node: Node) -> int:
        """How many elements a fold that was written has no value without."""
        written = self.program.builder.nodes.get(node.id)
        return 0 if written is None or written.op != node.op else elements_needed(node)

    def _in_rows(self, node: Node) -> Condition:
        """That a point of the node is one of its rows."""
        ends = (end.along for end in ends_of(self.graph, node.domain))
        return conjunction(var(symbol).le(var(_last(symbol))) for symbol in ends)

    def _is_sure(self, read: _Read) -> bool:
        """Whether it is of the reader's own row, and shows a point of it wherever it is asked for."""
        *rows, index = read.mask.rows.map
        if rows != [Point(var(row)) for row in read.end.rows] or (
            read.mask.rows.axes and self._needed(read.reader) > 1
        ):
            return False
        context = Context.of(self.graph.dims).assume(over_counts(read.where))
        last = var(_last(read.end.along))
        if isinstance(index, Point):
            inside = (index.index.ge(0), index.index.le(last))
        else:
            inside = (index.start.le(last), index.length.ge(1))
        return all(context.implies(over_counts(each)) for each in inside)

    # What is wrong, with some.

    def _check(self, read: _Read, sizes: Mapping[Symbol, int], lengths: Mapping[Symbol, Array]) -> None:
        dims = read.reader.domain
        extents = [int(self.graph.dim(symbol).size.evaluate(sizes)) for symbol in dims]
        env: dict[Symbol, Any] = {**sizes, **dict(zip(dims, np.ix_(*map(np.arange, extents))))}
        for symbol, end in self.graph.ragged.items():
            if set(end.rows) <= set(dims):
                env[_last(symbol)] = lengths[symbol][tuple(env[row] for row in end.rows)] - 1
        there = self._there(read, env, lengths[read.end.along])
        asked = np.broadcast_to(read.where.evaluate(env), extents)
        for point in np.argwhere(np.broadcast_to(~there, extents) & asked):
            raise self._error(read, tuple(map(int, point)), env, lengths)

    def _there(self, read: _Read, env: Mapping[Symbol, Any], lengths: Array) -> Array:
        """Over the reader's dims: whether there is what it needs, at every position that it does not fold."""
        axes, folded = iter(read.mask.rows.axes), reduced_axes(read.reader) if read.mask.rows.axes else ()
        dims, count = len(read.reader.domain), len(read.mask.rows.axes)
        *rows, along = read.mask.rows.map
        at, inside, kept = [], np.ones((1,) * (dims + count), np.bool_), list[int | None]()
        for place, (symbol, index) in enumerate(zip(read.end.domain, read.mask.rows.map)):
            axis = next(axes) if isinstance(index, Slice) else None
            if isinstance(index, Point):
                at.append(_wide(index.index.evaluate(env), dims + count))
            elif place < len(rows) or axis not in folded:
                positions = np.arange(int(self.graph.dim(symbol).size.evaluate(env)))
                own = dims + len(kept)
                positions = positions.reshape([-1 if each == own else 1 for each in range(dims + count)])
                inside = inside & (positions < _wide(index.length.evaluate(env), dims + count))
                at.append(_wide(index.start.evaluate(env), dims + count) + positions)
                kept.append(axis)
        clipped = tuple(np.clip(each, 0, extent - 1) for each, extent in zip(at, lengths.shape))
        size = lengths[clipped]
        if len(at) == len(rows):  # the slice along the dim is folded: how many of its points there are
            assert isinstance(along, Slice)
            start, length = (_wide(each.evaluate(env), dims + count) for each in (along.start, along.length))
            found = np.where(inside, np.clip(np.minimum(start + length, size) - np.maximum(start, 0), 0, None), 0)
        else:
            found = inside & (at[-1] >= 0) & (at[-1] < size)
        sums = tuple(dims + place for place, axis in enumerate(kept) if axis in folded)
        needed = self._needed(read.reader) if read.mask.rows.axes else 1
        there = (found.sum(axis=sums, keepdims=True) >= needed) | ~inside.any(axis=sums, keepdims=True)
        return np.asarray(there.all(axis=tuple(range(dims, dims + count))))

    def _error(
        self, read: _Read, point: tuple[int, ...], env: Mapping[Symbol, Any], lengths: Mapping[Symbol, Array]
    ) -> TempoError:
        if read.mask.rows.axes:
            return empty_error(read.reader, point)
        end, reader, producer = read.end, read.reader, self.graph.nodes[read.edge.node]
        here = {symbol: value for symbol, value in env.items() if symbol not in reader.domain}
        here |= dict(zip(reader.domain, point))
        for symbol, other in self.graph.ragged.items():
            if set(other.rows) <= set(reader.domain):
                here[_last(symbol)] = int(lengths[symbol][tuple(here[row] for row in other.rows)]) - 1
        indices = [int(index.index.evaluate(here)) for index in read.mask.rows.map if isinstance(index, Point)]
        row = indices[:-1]
        length = int(lengths[end.along][tuple(row)])
        by = f" by {tensor_name(reader)}" if reader.name else ""
        where = f" at {point_text(reader.domain, point)}" if reader.domain else ""
        whose = f"the row {point_text(end.rows, row)}" if row else "the row"
        return DomainError(
            f"{tensor_name(producer)}[{point_text(end.domain, indices)}] is read{by}{where}, and {whose} has "
            f"{length} points along {end.name}",
            location=reader.location or producer.location,
            hint=f"guard the read with a case on {end.name}.last: its points are 0 to {end.name}.last",
        )


def _wide(value: Any, axes: int) -> Array:
    """Over the reader's dims, with axes of size 1 behind them."""
    array = np.asarray(value)
    return array.reshape(*array.shape, *(1,) * (axes - array.ndim)) if array.ndim else array


def _last(symbol: Symbol) -> Symbol:
    return Symbol(symbol.name, "last")
