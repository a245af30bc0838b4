"""Runs of rows that end each by itself: those that go on are moved together, and fewer are computed.

A loop along which rows end is left as soon as few of them go on; what it has of these is taken out, the same loop
compiled for so many rows goes on from there, and at its end everything is put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.autodiff import expand_gradients
from tempo.backends.by_point import ByPoint
from tempo.compiler.driver import Compiler
from tempo.compiler.once import Once
from tempo.costs import RUNS, LikelySizes, work_at_points
from tempo.errors import UnsupportedError
from tempo.loop_ir.ir import Buffer, Segment, stop_in
from tempo.passes.compaction import Compacted, compacted
from tempo.passes.manager import forced
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.compiled import Array, Compiled, Ready, Sizes
from tempo.runtime.program_run import ProgramRun
from tempo.sdg.graph import Edge, Graph, Slice
from tempo.symbolic import Symbol, var

_LESS = 0.85
"""What a step of fewer rows may take, of one of more, so that it is worth to have code for both."""
_SHARE = 1 / 8
"""Of all points, those that are made at one number of rows before it is the next one's turn."""
_LEFT = 1e-3
"""Seconds that it takes to leave a loop and to go on."""


@dataclass(frozen=True)
class Compaction:
    """`compiler` is that of the program as it was declared, `graph` the program before rows are masked."""

    compiler: Compiler
    graph: Graph
    program: Compacted
    _widths: Once[frozenset[tuple[Symbol, int]], Sequence[int]] = field(default_factory=Once)
    _loops: Once[tuple[Compiled, int], RowsOfLoop | None] = field(default_factory=Once)
    _alike: Once[tuple[Compiled, Compiled, int], bool] = field(default_factory=Once)

    @property
    def along(self) -> Symbol:
        return self.program.stop.along

    @property
    def count(self) -> Symbol:
        """The size that is the number of rows."""
        return self.program.rows.of_kind("size")

    def compiled(self) -> Compiler:
        """Of the program of which a run may be left."""
        options = self.compiler.options
        if isinstance(options.mapping, Mapping):
            given = {name: way for name, way in options.mapping.items() if name != self.along.name}
            options = replace(options, mapping=given)
        return replace(self.compiler, graph=self.program.graph, options=options, likely={})

    def told(self, sizes: Sizes) -> str:
        widths = self.widths(sizes) if sizes else ()
        if len(widths) < 2:
            return f"{self.along.name}: all rows until the last has ended"
        return f"{self.along.name}: {', '.join(map(str, widths))} rows at a time"

    def widths(self, sizes: Sizes) -> Sequence[int]:
        """How many rows there may be in a step, from all of them downwards."""
        return self._widths.get(frozenset(sizes.items()), lambda: tuple(self._made(sizes)))

    def loop(self, code: Compiled, number: int) -> RowsOfLoop | None:
        """The loop that an item is, if rows end along it."""
        return self._loops.get((code, number), lambda: RowsOfLoop.of(code, number, self.program))

    def narrowed(self, code: Compiled, fewer: Compiled, number: int) -> RowsOfLoop | None:
        """The loop that an item is at another number of rows, if it has the same in the same buffers."""
        one, other = self.loop(code, number), self.loop(fewer, number)
        if one is None or other is None:
            return None
        return other if self._alike.get((code, fewer, number), lambda: one.is_like(other, code, fewer)) else None

    def _made(self, sizes: Sizes) -> Iterator[int]:
        count = sizes[self.count]
        yield count
        way = forced(self.compiler.options.mapping, self.along.name)
        if way == "sequential":
            return
        if isinstance(way, int):
            yield from range((count - 1) // way * way, 0, -way)
            return
        if self.program.grows and self.compiler.backend.allocates_inside:
            return  # a loop that is gone on with has arrays of full length, of which it would copy a part at each point
        rates, likely = self.compiler.backend.costs, LikelySizes(sizes)
        points, moved = likely.extent(self.graph.dim(self.along).size), self._bytes(likely)
        own = (id for id in sorted(self.program.nodes) if self.program.rows in self.graph.nodes[id].domain)
        work = work_at_points(self.graph, tuple(own), self.program.rows, likely)
        once, before = _LEFT + work.launches * rates.compiling / RUNS, work.cost(count, rates).seconds
        for width in range(count - 1, 0, -1):
            seconds = work.cost(width, rates).seconds
            rows = count + width + (3 * count if self.compiler.backend.allocates_inside else 0)  # whose arrays are new
            saved = (before - seconds) * points * _SHARE - 2 * rows * moved * rates.byte
            if seconds <= _LESS * before and saved > once:
                before = seconds
                yield width

    def _bytes(self, sizes: LikelySizes) -> int:
        """Of a row, all that is given of it, returned, and read of its past, which is moved with it and put back."""
        nodes = [self.graph.nodes[id] for id in sorted(self.graph.reachable())]
        kept = {node.id for node in nodes if node.is_input}
        kept |= {edge.node for node in nodes for edge in node.operands if self._is_past(edge)}
        held = [(self.graph.nodes[id].domain, self.graph.nodes[id].type) for id in sorted(kept)]
        held += [(each.domain, each.type) for each in self.graph.outputs]
        found = 0
        for domain, type in held:
            if self.program.rows not in domain:
                continue
            dims = (self.graph.dim(symbol).size for symbol in domain if symbol != self.program.rows)
            found += math.prod(map(sizes.extent, (*dims, *type.shape))) * dtypes.itemsize(type.dtype)
        return found

    def _is_past(self, edge: Edge) -> bool:
        places = zip(self.graph.nodes[edge.node].domain, edge.map, strict=True)
        return any(symbol == self.along and isinstance(index, Slice) for symbol, index in places)

    def given(self, arguments: Arguments) -> Arguments:
        """What the program is given beside what is given anyway."""
        count = arguments.sizes[self.count]
        arrays = {**arguments.arrays, self.program.row: np.arange(count, dtype=np.int32)}
        arrays[self.program.most] = np.zeros((), np.int32)
        return replace(arguments, arrays=arrays, sizes={**arguments.sizes, self.program.all: count})


def compaction(compiler: Compiler, declared: Graph) -> tuple[Compaction | None, list[str]]:
    """How rows may be run apart, and why they are not."""
    stops = [stop for stop in declared.stops.values() if stop.rows]
    if not stops or compiler.memory_limit is not None or compiler.offload is not None or compiler.rivals:
        return None, []
    whole = f"{stops[0].along.name}: all rows until the last has ended"
    graph = expand_gradients(declared)
    try:
        found = compacted(graph)
    except UnsupportedError as error:
        return None, [f"{whole}: {error.message}"]
    if graph.dim(found.rows).size != var(found.rows.of_kind("size")) or found.rows in compiler.buckets.of:
        return None, [f"{whole}: no size of a call says how many there are"]
    return Compaction(compiler, graph, found), []


@dataclass(frozen=True)
class RowsOfLoop:
    """A loop along which rows end, as a run has it. `axes` are those of rows, as arrays lie, by buffer."""

    item: int
    segment: Segment
    stop: int
    ended: int
    most: int
    axes: Mapping[int, int]

    @staticmethod
    def of(code: Compiled, number: int, program: Compacted) -> RowsOfLoop | None:
        """None where an item of a program is no such loop, or holds rows in another way than along an axis."""
        item, loops = code.items[number], code.program
        if item.segment is None or item.loop is None or item.loop.direction != "forward":
            return None
        stop, segment = stop_in(item.loop), loops.segments[item.segment]
        named = {(port.role, port.name): id for port, id in loops.outputs.items()}
        if stop is None or stop != named.get(("stop", program.stop.name)) or program.most not in loops.inputs:
            return None
        count, axes = var(program.rows.of_kind("size")), dict[int, int]()
        for buffer in (loops.buffers[id] for id in segment.buffers):
            found = [axis for axis, extent in enumerate(buffer.logical_shape) if count.symbols() & extent.symbols()]
            if len(found) > 1 or any(buffer.logical_shape[axis] != count for axis in found):
                return None
            axes.update((buffer.id, _lies(code, buffer, axis)) for axis in found)
        ended, most = named[("lengths", program.stop.name)], loops.inputs[program.most]
        return RowsOfLoop(number, segment, stop, ended, most, axes) if most in segment.buffers else None

    def is_like(self, other: RowsOfLoop, code: Compiled, others: Compiled) -> bool:
        """Whether the loop at another number of rows has the same in the same buffers."""
        if (self.item, self.stop, self.ended, self.most) != (other.item, other.stop, other.ended, other.most):
            return False
        mine, theirs = code.program.buffers, others.program.buffers
        return self.axes == other.axes and all(mine.get(id) == theirs[id] for id in other.segment.buffers)


def _lies(code: Compiled, buffer: Buffer, axis: int) -> int:
    """Where an axis of a buffer is in its array."""
    order = code.layouts.get(buffer.id)
    seen_as_it_is = code.backend.shares_memory and not buffer.is_given
    return axis if order is None or seen_as_it_is else order.index(axis)


class RowRun:
    """One run: all rows at first, and fewer where few go on. `ready` is the program at a number of rows."""

    def __init__(self, plan: Compaction, sizes: Sizes, ready: Callable[[int], Ready]) -> None:
        self.plan, self.widths, self.ready = plan, plan.widths(sizes), ready

    def items(self, run: ProgramRun) -> None:
        items = run.compiled.items
        loops = [self._loop(run, number) for number in range(len(items))]
        for each in filter(None, loops):
            self._make(run, each)
        for item, loop in zip(items, loops, strict=True):
            if loop is None:
                run.whole(item)
                continue
            with run.around(item) as runs:
                if runs:
                    self._narrowing(run, loop)

    def _loop(self, run: ProgramRun, number: int) -> RowsOfLoop | None:
        """None also where rows are given in lists of arrays, and where the schedule has skewed a loop, of which an
        iteration is not the point whose stop it sees."""
        loop, along = self.plan.loop(run.compiled, number), self.plan.along
        points = int(self.plan.graph.dim(along).size.evaluate(run.sizes))
        if loop is None or run.bounds(run.compiled.items[number])[1] != points:
            return None
        return None if any(isinstance(run.buffers[id], ByPoint) for id in loop.axes) else loop

    def _make(self, run: ProgramRun, loop: RowsOfLoop) -> None:
        """A row's outputs are 0 behind its end, where it is no longer computed."""
        for buffer in (run.compiled.program.buffers[id] for id in loop.segment.results):
            if buffer.id in loop.axes and buffer.role == "output":
                run.buffers[buffer.id] = run.made(replace(buffer, zeroed=True))

    def _narrowing(self, run: ProgramRun, loop: RowsOfLoop) -> None:
        """The loop: of all rows, then of those, `rows`, that `some` has. Rows of what an item before has left by point
        stay."""
        some, its, start = run, loop, run.bounds(run.compiled.items[loop.item])[0]
        if any(isinstance(run.buffers[id], ByPoint) for id in loop.axes):
            self._part(run, loop, start, 0)
            return
        rows = np.arange(self.widths[0])
        try:
            while True:
                fewer = [each for each in self.widths if each < len(rows)]
                start = self._part(some, its, start, max(fewer, default=0))
                ended = some.compiled.backend.to_host(some.view(loop.ended))
                going = np.flatnonzero(ended == 0)
                if not start or not len(going):
                    return
                width = min(each for each in self.widths if each >= len(going))
                ready = self.ready(width)
                found = self.plan.narrowed(run.compiled, ready.compiled, loop.item)
                if found is None:
                    self._part(some, its, start, 0)
                    return
                order = np.concatenate([going, np.flatnonzero(ended)])
                kept, left = order[:width], order[width:]
                narrow = run.like(ready, _rows(some, loop, found.segment.buffers, kept))
                if some is run:
                    self._own(run, loop)
                else:
                    self._put_back(run, some, loop, rows, left)
                some, its, rows = narrow, found, rows[kept]
        finally:
            if some is not run:
                self._put_back(run, some, loop, rows, np.arange(len(rows)))
                for id in set(loop.segment.results) - loop.axes.keys():
                    run.buffers[id] = some.buffers[id]

    def _part(self, run: ProgramRun, loop: RowsOfLoop, start: int, most: int) -> int:
        """The loop from there to where no more than `most` rows go on; 0 if it ran to its end."""
        run.buffers[loop.stop] = run.made(run.compiled.program.buffers[loop.stop])
        run.buffers[loop.most] = run.given(loop.most, np.array(most, np.int32))
        run.part(run.compiled.items[loop.item], start)
        return run.kept(loop.stop)

    def _own(self, run: ProgramRun, loop: RowsOfLoop) -> None:
        """What is put back into later: a slot may hold what is another's."""
        backend = run.compiled.backend
        for id in _needed(run, loop) if backend.shares_memory else ():
            if run.compiled.program.buffers[id].is_slot:
                run.buffers[id] = backend.owned(run.buffers[id])

    def _put_back(
        self, run: ProgramRun, some: ProgramRun, loop: RowsOfLoop, rows: np.ndarray[Any, Any], at: np.ndarray[Any, Any]
    ) -> None:
        """What `some` has at some of its places, which are rows of the run, of what is needed behind the loop."""
        backend, there = run.compiled.backend, [id for id in _needed(run, loop) if not some.is_gone(some.buffers[id])]
        parts, axes = _rows(some, loop, there, at), [loop.axes[id] for id in there]
        made = backend.scattered([run.buffers[id] for id in there], axes, rows[at], [parts[id] for id in there])
        for id, array in zip(there, made, strict=True):
            run.buffers[id] = array


def _needed(run: ProgramRun, loop: RowsOfLoop) -> list[int]:
    """The buffers with rows that the loop writes and that something looks at behind it, of those that are there."""
    needed = (set(loop.segment.results) & loop.axes.keys()) - set(run.compiled.items[loop.item].drops)
    return [id for id in sorted(needed) if not run.is_gone(run.buffers[id])]


def _rows(run: ProgramRun, loop: RowsOfLoop, ids: Sequence[int], rows: np.ndarray[Any, Any]) -> dict[int, Array]:
    """Of these buffers; what has no rows is as it was."""
    arrays = {id: run.buffers[id] for id in ids}
    some = [id for id, array in arrays.items() if array is not None and id in loop.axes]
    axes = [loop.axes[id] for id in some]
    return arrays | dict(zip(some, run.compiled.backend.gathered([arrays[id] for id in some], axes, rows), strict=True))
