"""What a run that failed in the middle has made: outputs and parameters up to the last whole point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tempo.errors import TempoError
from tempo.lowering.chunked import is_chunked
from tempo.lowering.loop_ir import CallSegment, Loop, LoopProgram, Read, expressions, walk
from tempo.lowering.whole_points import Marks, marks, source_of, writers
from tempo.runtime.compiled import Run
from tempo.runtime.outputs import Outputs
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Array = Any
Layout = tuple[Symbol | int, ...]


@contextmanager
def salvaging(run: Run, given: Mapping[str, Array], names: Mapping[str, int], graph: Graph) -> Iterator[None]:
    """An error inside gets what the run has made.

    `given` are the arrays of the call, `names` the sizes of dims; `graph` is what the user wrote.
    """
    try:
        yield
    except TempoError as error:
        if error.outputs is None and run.compiled.program.hosts:
            found, is_known = made_so_far(run, given, names, graph)
            error.outputs, error.state = found, found.state if is_known else None
        raise


def made_so_far(run: Run, given: Mapping[str, Array], names: Mapping[str, int], graph: Graph) -> tuple[Outputs, bool]:
    """Outputs and parameters up to the last whole point; whether the parameters are known."""
    found = _Stand.of(run)
    sizes = dict(names) if found.dim is None else {**names, found.dim.name: found.points}
    state = found.state(given)
    layouts = {output.name: output.layout for output in graph.outputs if output.role == "output"}
    return Outputs(found.outputs(layouts), state or {}, sizes), state is not None


def whole_points(run: Run) -> int:
    """How many points of the loop that it is in are whole."""
    return _Stand.of(run).points


@dataclass(frozen=True)
class _Stand:
    """Where a run stands: in an item of the driver, `points` of whose dim are whole."""

    run: Run
    dim: Symbol | None
    points: int
    marks: Marks
    behind: frozenset[int] = frozenset()
    """Items after it that have been run up to the same point."""

    @staticmethod
    def of(run: Run) -> _Stand:
        item = run.compiled.program.items[run.item] if run.item >= 0 else None
        if not isinstance(item, Loop) or run.item not in run.compiled.program.offsets or not run.marks:
            return _Stand(run, None, 0, Marks())
        found = marks(run.compiled.program, run.item, item.var)
        size = run.sizes.get(Symbol(item.var.name, "size"))
        points = max(0, run.marks[-1][0] + 1 - found.late)
        points = points if size is None else min(points, size)
        return _Stand(run, item.var, points, found, _caught_up(run, item.var, points))

    def outputs(self, layouts: Mapping[str, Layout]) -> dict[str, Array]:
        """Those that are complete, up to the last whole point. `layouts`: what the axes are to the user."""
        program, made = self.run.compiled.program, writers(self.run.compiled.program)
        found: dict[str, Array] = {}
        for key, id in program.outputs.items():
            if key.startswith(("state:", "stop:", "watch:")) or self._is_gone(self.run.buffers[id]):
                continue
            last = max(made.get(id, {-1}))
            if last < self.run.item or last in self.behind or (last == self.run.item and self._has_points(id)):
                found[key] = self._cut(id, layouts[key])
        return found

    def _is_gone(self, array: Array | None) -> bool:
        """Whether it was never made, or the call that failed has taken it."""
        return array is None or self.run.compiled.backend.is_deleted(array)

    def _cut(self, id: int, layout: Layout) -> Array:
        array = self.run.output(id)
        if self.dim not in layout:
            return array
        cut = array[(*(slice(None),) * layout.index(self.dim), slice(self.points))]
        return self.run.compiled.backend.owned(cut)

    def _has_points(self, id: int) -> bool:
        """Whether the item that failed makes it point by point along its dim, and what it made is still there."""
        program, dim = self.run.compiled.program, self.dim
        if dim is None:
            return False
        is_known = id in program.offsets.get(self.run.item, {}) and dim in program.buffers[id].layout
        return is_known and not is_chunked(program.buffers[id], dim)

    def state(self, given: Mapping[str, Array]) -> dict[str, Array] | None:
        """None where that of a parameter is not known any more, or where reads of the dim's end are of a number: what
        is there is not of a run of as many points then."""
        if self.dim is not None and Symbol(self.dim.name, "size") not in self.run.sizes:
            return None
        keys = [key for key in self.run.compiled.program.outputs if key.startswith("state:")]
        found = {key: self._value(key, given) for key in keys}
        if any(value is None for value in found.values()):
            return None
        return {key.removeprefix("state:"): value for key, value in found.items()}

    def _value(self, key: str, given: Mapping[str, Array]) -> Array | None:
        run, program = self.run, self.run.compiled.program
        made, found = writers(program), program.states.get(key)
        own, source = program.outputs[key], source_of(program, key)
        varies = self.dim is not None and (found is None or self.dim in found.dims)
        if max(made.get(own, {-1})) < run.item and not (varies and found is not None):
            return None if self._is_gone(run.buffers[own]) else run.output(own)
        written = max(made.get(source, {-1}))
        if varies and self.points == 0:
            return run.compiled.backend.from_host(given[key])
        if (written > run.item and written not in self.behind) or (
            written == run.item and not (varies and source in program.offsets[run.item])
        ):
            return None
        ahead = varies and written < run.item and not (self.dim and _is_whole(program, source, self.dim))
        buffers = self._again(source, written, given) if ahead else self._buffers(source)
        if buffers is None or self._is_gone(buffers[source]):
            return None
        if found is not None:
            return self._read(key, buffers)
        array = run.compiled.backend.transpose(buffers[source], program.buffers[source].to_user)
        return run.compiled.backend.owned(array)

    def _again(self, source: int, item: int, given: Mapping[str, Array]) -> list[Array] | None:
        """The buffers after another run of what has gone ahead, as far as the points that are whole. None where that
        would call the host again."""
        run, program = self.run, self.run.compiled.program
        loop, offsets = run.compiled.items[item].loop, program.offsets.get(item, {})
        calls = any(not isinstance(each, CallSegment) for each in program.items[: item + 1])
        if calls or loop is None or loop.var != self.dim or source not in offsets:
            return None
        arrays = {id: given[key] for key, id in program.inputs.items()}
        again = Run(run.compiled, run.sizes, arrays, run.tables, run.poison)
        for before in run.compiled.items[:item]:
            again.whole(before)
        again.upto(run.compiled.items[item], self.points - offsets[source][1])
        return again.buffers

    def _buffers(self, source: int) -> list[Array]:
        """Those of the run, with the one that is asked for as it was at the last whole point."""
        buffers = list(self.run.buffers)
        if source in self.marks.held:
            wanted = self.points - 1 - self.run.compiled.program.offsets[self.run.item][source][1]
            mark = next((each for each in reversed(self.run.marks) if each[0] == wanted), None)
            buffers[source] = None if mark is None else mark[1 + self.marks.held.index(source)]
        return buffers

    def _read(self, key: str, buffers: list[Array]) -> Array:
        """With the points that are whole in place of the dim's size."""
        compiled = self.run.compiled
        size = None if self.dim is None else Symbol(self.dim.name, "size")
        arguments = [
            self.points if symbol == size else value
            for symbol, value in zip(compiled.parameters, self.run.arguments, strict=True)
        ]
        array = compiled.last_values[key](*arguments, buffers)
        return compiled.backend.owned(compiled.backend.transpose(array, compiled.program.states[key].axes))


def _caught_up(run: Run, dim: Symbol, points: int) -> frozenset[int]:
    """Runs what comes behind the item that failed up to the points that are whole, as far as it goes by point along the
    dim, calls nobody and reads nothing at the end of the dim. The rest is left out, and what needs that."""
    if points == 0:
        return frozenset()
    program, done, here = run.compiled.program, [], (run.item, tuple(run.marks))
    made = [{id for id, items in writers(program).items() if at in items} for at in range(len(program.items))]
    kept = set().union(*made[: here[0] + 1])
    partial = {id for id in made[here[0]] if not _is_whole(program, id, dim)}
    for at in range(here[0] + 1, len(program.items)):
        item, statement = run.compiled.items[at], program.items[at]
        used = set(program.segments[statement.segment].buffers) if isinstance(statement, CallSegment) else set()
        if used and not (used & partial or made[at] & kept) and _goes_by_point(program, at, item.loop, dim):
            run.item = at - 1
            run.upto(item, points)
            done.append(at)
        else:
            partial |= made[at] | set(item.makes)
    run.item = here[0]
    run.marks.clear()
    run.marks.extend(here[1])
    return frozenset(done)


def _is_whole(program: LoopProgram, id: int, dim: Symbol) -> bool:
    """Whether all points along the dim have a place."""
    return any(axis.dim == dim and axis.kind == "full" for axis in program.buffers[id].axes)


def _goes_by_point(program: LoopProgram, item: int, loop: Loop | None, dim: Symbol) -> bool:
    offsets = program.offsets.get(item)
    if loop is None or loop.var != dim or offsets is None or any(any(each) for each in offsets.values()):
        return False
    return not _reads_to_the_end(loop, Symbol(dim.name, "size"))


def _reads_to_the_end(loop: Loop, size: Symbol) -> bool:
    reads = (each for each in walk(loop.body) if isinstance(each, Read))
    return any(size in expr.symbols() for read in reads for expr in expressions(read))
