"""Rows of which the lengths are given: checked before a run, with every read that may be of a point behind their end.

All that says so is known then, lengths, sizes, and the conditions of cases, so it is the same whatever executes a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from tempo.analysis.rows import OUTPUTS, Mask, Rows, is_ragged, row_masks
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
        self.program, self.graph, self._to_host = program, program.declared(), to_host

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
        asked = demand(self.program.graph())
        ids = asked.keys() & self.graph.nodes.keys()
        where = self._where({id: asked[id].box.condition() for id in ids})
        reads = (
            read
            for end in self.graph.ragged.values()
            for (id, number), masks in row_masks(self.graph, end).items()
            if id in ids or id == OUTPUTS
            for read in self._of(end, id, number, masks, where)
        )
        at_last = (self._at_last(id, where[id]) for id in ids & self.program.builder.last_reads.keys())
        return [read for read in (*reads, *at_last) if not self._is_sure(read)]

    def _at_last(self, id: int, where: Condition) -> _Read:
        """The read of a row at a point over its last one."""
        reader, index = self.graph.nodes[id], Point(self.program.builder.last_reads[id])
        edge = reader.operands[0]
        domain = self.graph.nodes[edge.node].domain
        (symbol,) = (symbol for symbol, at in zip(domain, edge.map) if isinstance(at, Slice))
        end = self.graph.ragged[symbol]
        map = tuple(index if each == symbol else Point(var(each)) for each in end.domain)
        return _Read(end, reader, edge, where, Mask(Rows(map, ()), 0))

    def _where(self, boxes: Mapping[int, Condition]) -> dict[int, Condition]:
        """Where each node is asked for, as far as conditions of cases and selections say."""
        order = [node for node in self.graph.operands_first() if node.id in boxes]
        merges, others = [node for node in order if node.is_merge], [node for node in order if not node.is_merge]
        asked: dict[int, list[Condition]] = {output.edge.node: [TRUE] for output in self.graph.outputs}
        found: dict[int, Condition] = {}
        for node in (*merges, *reversed(others)):  # behind who reads it, but for merges: they are asked for
            by_readers = TRUE if node.is_merge else disjunction(asked.get(node.id, [TRUE]))
            found[node.id] = where = boxes[node.id] & by_readers & self._in_rows(node)
            for number, (condition, edge) in enumerate(node.guarded_reads()):
                here = where & condition & self._selects(node, number)
                asked.setdefault(edge.node, []).append(self._seen_from(node, edge, here))
        return found

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
        ends = (end for end in self.graph.ragged.values() if is_ragged(end, reader.domain))
        has_points = (var(_last(end.along)).ge(0) for end in ends if known >= set(end.rows) and end.along not in within)
        return conjunction((*found, *has_points))

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
            shows_points = not mask.rows.axes and is_ragged(end, self.graph.nodes[edge.node].domain)
            fold = self._as_written(reader)
            if elements_needed(fold) > 0:
                yield _Read(end, fold, edge, condition, mask)
            elif shows_points and not reader.attr("checked"):
                yield _Read(end, reader, edge, condition, mask)

    def _as_written(self, node: Node) -> Node:
        """A fold with what was written of it: that it is part of a mean, or not, where it is part of something else."""
        builder = self.program.builder
        written = builder.nodes.get(node.id)
        if written is None or written.op != node.op:
            return replace(node, op="copy", attrs=())
        is_mean = any(total == node.id for total, _ in builder.means.values())
        return replace(node, attrs=tuple(sorted({**node.attributes, "nonempty": True}.items()))) if is_mean else node

    def _in_rows(self, node: Node) -> Condition:
        ends = (end.along for end in self.graph.ragged.values() if is_ragged(end, node.domain))
        return conjunction(var(symbol).le(var(_last(symbol))) for symbol in ends)

    def _is_sure(self, read: _Read) -> bool:
        """Whether a read of a point of the reader's own row is in it, whatever the lengths."""
        if read.mask.rows.axes:
            return False
        *rows, index = (each.index for each in read.mask.rows.map if isinstance(each, Point))
        is_own = rows == list(map(var, read.end.rows))
        context = Context.of(self.graph.dims).assume(over_counts(read.where))
        inside = (index.ge(0), index.le(var(_last(read.end.along))))
        return is_own and all(context.implies(over_counts(each)) for each in inside)

    # What is wrong, with some.

    def _check(self, read: _Read, sizes: Mapping[Symbol, int], lengths: Mapping[Symbol, Array]) -> None:
        dims = read.reader.domain
        extents = [int(self.graph.dim(symbol).size.evaluate(sizes)) for symbol in dims]
        env: dict[Symbol, Any] = {**sizes, **dict(zip(dims, np.ix_(*map(np.arange, extents))))}
        for symbol, end in self.graph.ragged.items():
            if set(end.rows) <= set(dims):
                env[_last(symbol)] = lengths[symbol][tuple(env[row] for row in end.rows)] - 1
        there, inside = self._there(read, env, lengths[read.end.along])
        folded = tuple(len(dims) + place for place, axis in enumerate(read.mask.rows.axes) if self._folds(read, axis))
        needed = elements_needed(read.reader) if read.mask.rows.axes else 1
        missing = inside.any(axis=folded) & (there.sum(axis=folded) < needed) if folded else inside & ~there
        asked = np.broadcast_to(read.where.evaluate(env), extents)
        for point in np.argwhere(missing.reshape(*missing.shape[: len(dims)], -1).any(axis=-1) & asked):
            raise self._error(read, tuple(map(int, point)), env, lengths)

    def _folds(self, read: _Read, axis: int) -> bool:
        return axis in reduced_axes(read.reader)

    def _there(self, read: _Read, env: Mapping[Symbol, Any], lengths: Array) -> tuple[Array, Array]:
        """Which points there are of what is read, and which positions: over the reader's dims, then those of slices."""
        count = sum(isinstance(index, Slice) for index in read.mask.rows.map)
        dims, inside, at = len(read.reader.domain), np.ones((1,) * (len(read.reader.domain) + count), np.bool_), {}
        seen: list[Symbol] = []

        def wide(value: Any) -> Array:
            array = np.asarray(value)
            return array.reshape(*array.shape, *(1,) * (dims + count - array.ndim)) if array.ndim else array

        for symbol, index in zip(read.end.domain, read.mask.rows.map):
            if isinstance(index, Point):
                at[symbol] = wide(index.index.evaluate(env))
                continue
            along = np.arange(int(self.graph.dim(symbol).size.evaluate(env)))
            place = dims + len(seen)
            along = along.reshape([-1 if axis == place else 1 for axis in range(dims + count)])
            seen.append(symbol)
            at[symbol] = wide(index.start.evaluate(env)) + along
            inside = inside & (along < wide(index.length.evaluate(env)))
        rows = (np.clip(at[row], 0, extent - 1) for row, extent in zip(read.end.rows, lengths.shape))
        point = at[read.end.along]
        return inside & (point >= 0) & (point < lengths[tuple(rows)]), inside

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


def _last(symbol: Symbol) -> Symbol:
    return Symbol(symbol.name, "last")
