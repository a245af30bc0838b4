"""What a run that failed in the middle has made: outputs and parameters up to the last whole point."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tempo.errors import BackendCallError, HostCallError, TempoError
from tempo.loop_ir.analysis.whole_points import Marks, marks, source_of, writers
from tempo.loop_ir.ir import CallSegment, LastValue, Loop, LoopProgram, Read, expressions, walk
from tempo.loop_ir.transforms.circular_reads import is_chunked
from tempo.reference.evaluator import Evaluator
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.program_run import ProgramRun
from tempo.runtime.results.outputs import Outputs
from tempo.sdg.graph import Graph, Port
from tempo.symbolic import Symbol

Array = Any
Made = tuple[Outputs, Collection[str]]
"""What there is of a run: outputs and parameters, and the names of parameters that are not known."""
Layout = tuple[Symbol | int, ...]
Look = Callable[[dict[str, Array], bool], None]
"""Raises where what is watched is not finite; told whether there is more to come."""


@contextmanager
def guarded(
    made: Callable[[], tuple[Outputs, Collection[str]] | None],
    so_far: Callable[[], dict[str, Array]],
    look: Look | None,
) -> Iterator[None]:
    """An error inside gets what the run has made.

    A call that fails may do so because of what it was given: `look` is shown what was watched so far, and what is not
    finite is raised in its place.
    """
    try:
        yield
    except TempoError as error:
        _note(error, None if error.outputs is not None else made())
        if look is not None and isinstance(error, HostCallError | BackendCallError):
            looked(partial(look, so_far(), False), error.outputs, error.state)
        raise


def _note(error: TempoError, made: Made | None) -> None:
    if made is None:
        return
    error.outputs, unknown = made
    error.state = None if unknown else error.outputs.state
    if unknown:
        names = ", ".join(map(repr, unknown))
        error.add_note(
            f"The error's state is None: at the last whole point nothing needed the value of {names}, or it is lost."
        )


def looked(look: Callable[[], None], outputs: Any, state: Any) -> None:
    """Raises what is found, with what there is of the run."""
    try:
        look()
    except TempoError as found:
        found.outputs, found.state = outputs, state
        raise


def salvaged(run: ProgramRun, arguments: Arguments, graph: Graph) -> Made | None:
    """What there is of a run that a call has ended, for `guarded`."""
    return made_so_far(run, arguments, graph) if run.compiled.program.hosts else None


def made_by_evaluator(evaluator: Evaluator) -> Made | None:
    """The same of the reference evaluator."""
    made = evaluator.made()
    if made is None:
        return None
    sizes = evaluator.graph.named_sizes(evaluator.sizes) | made.kept
    states = [each.name for each in evaluator.graph.outputs if each.role == "state"]
    found = Outputs(made.outputs, made.state, sizes, made.lengths)
    return found, [name for name in states if name not in made.state]


def made_so_far(run: ProgramRun, arguments: Arguments, graph: Graph) -> Made:
    """Outputs and parameters up to the last whole point; the names of parameters that are not known there.

    `graph` is what the user wrote.
    """
    sizes = graph.named_sizes(run.sizes)
    found = _Stand.of(run, sizes)
    sizes |= {} if found.dim is None else {found.dim.name: found.points}
    domains = {each.name: graph.nodes[each.edge.node].domain for each in graph.outputs if each.role == "state"}
    state = {
        name: found.value(Port("state", name), arguments.arrays, found.dim in domain)
        for name, domain in domains.items()
    }
    layouts = {output.name: output.layout for output in graph.outputs if output.role == "output"}
    known = {name: value for name, value in state.items() if value is not None}
    lengths = {**arguments.lengths, **run.lengths({} if found.dim is None else {found.dim.name: found.points})}
    made = Outputs(found.outputs(layouts), known, sizes, lengths)
    return made, tuple(name for name in state if name not in known)


def whole_points(run: ProgramRun) -> int:
    """How many points of the loop that it is in, which has no end, are whole."""
    return _Stand.of(run, {}).points


@dataclass(frozen=True)
class _Stand:
    """Where a run stands: in an item of the driver, `points` of whose dim are whole."""

    run: ProgramRun
    dim: Symbol | None
    points: int
    marks: Marks
    behind: frozenset[int] = frozenset()
    """Items after it that have been run up to the same point."""

    @staticmethod
    def of(run: ProgramRun, names: Mapping[str, int]) -> _Stand:
        item = run.compiled.program.items[run.item] if run.item >= 0 else None
        if not isinstance(item, Loop) or run.item not in run.compiled.program.offsets or not run.marks:
            return _Stand(run, None, 0, Marks())
        found = marks(run.compiled.program, run.item, item.var)
        points = max(0, run.marks[-1][0] + 1 - found.late)
        points = points if item.var.name not in names else min(points, names[item.var.name])
        return _Stand(run, item.var, points, found, _caught_up(run, item.var, points))

    def outputs(self, layouts: Mapping[str, Layout]) -> dict[str, Array]:
        """Those that are complete, up to the last whole point. `layouts`: what the axes are to the user."""
        program, made = self.run.compiled.program, writers(self.run.compiled.program)
        found: dict[str, Array] = {}
        for port, id in program.outputs.items():
            if port.role != "output" or self.run.is_gone(self.run.buffers[id]):
                continue
            last = max(made.get(id, {-1}))
            if last < self.run.item or last in self.behind or (last == self.run.item and self._has_points(id)):
                found[port.name] = self._cut(id, layouts[port.name])
        return found

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

    def value(self, key: Port, given: Mapping[Port, Array], varies: bool) -> Array | None:
        """That of a parameter at the last whole point, None where it is not known. `varies`: along the dim."""
        run, program = self.run, self.run.compiled.program
        made, found = writers(program), program.states.get(key)
        own, source = program.outputs[key], source_of(program, key)
        if not varies and max(made.get(own, {-1})) < run.item:
            return None if self.run.is_gone(run.buffers[own]) else run.output(own)
        if varies and self.points == 0:
            return run.compiled.backend.from_host(given[key])
        written = max(made.get(source, {-1}))
        if written > run.item and written not in self.behind:
            return None
        by_point = source in program.offsets.get(written, {})
        if (written == run.item or found is None) and not (varies and by_point):
            return None
        if found is not None and not self._has_last_point(found, varies):
            return None
        ahead = varies and written < run.item and not (self.dim and _is_whole(program, source, self.dim))
        buffers = self._again(source, written, given) if ahead else self._buffers(source)
        if buffers is None or self.run.is_gone(buffers[source]):
            return None
        if found is not None:
            return self._read(key, buffers)
        array = run.compiled.backend.transpose(buffers[source], program.buffers[source].to_user)
        return run.compiled.backend.owned(array)

    def _again(self, source: int, item: int, given: Mapping[Port, Array]) -> list[Array] | None:
        """The buffers after another run of what has gone ahead, as far as the points that are whole. None where that
        would call the host again."""
        run, program = self.run, self.run.compiled.program
        loop, offsets = run.compiled.items[item].loop, program.offsets.get(item, {})
        calls = any(not isinstance(each, CallSegment) for each in program.items[: item + 1])
        if calls or loop is None or loop.var != self.dim or source not in offsets:
            return None
        again = ProgramRun(run.ready, given, run.poison)
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

    def _read(self, key: Port, buffers: list[Array]) -> Array:
        compiled, found = self.run.compiled, self.run.compiled.program.states[key]
        read = compiled.last_value(key, self.run.sizes)
        array = read(*self.run.arguments, *self._last_point(found).values(), buffers)
        shape = tuple(int(extent.evaluate(self.run.sizes)) for extent in found.shape)
        return compiled.backend.owned(compiled.backend.transpose(array.reshape(shape), found.axes))

    def _last_point(self, found: LastValue) -> dict[Symbol, int]:
        """The last whole point along the dim, and that of the end along others."""
        sizes = self.run.sizes
        return {
            each.symbol: (self.points if each.symbol == self.dim else int(each.size.evaluate(sizes))) - 1
            for each in found.dims
        }

    def _has_last_point(self, found: LastValue, varies: bool) -> bool:
        """Whether the read knows which point is the last, and that is made."""
        outermost = next((dim.symbol for dim in found.dims), None)
        return (not varies or outermost == self.dim) and bool(
            found.made.evaluate({**self.run.sizes, **self._last_point(found)})
        )


def _caught_up(run: ProgramRun, dim: Symbol, points: int) -> frozenset[int]:
    """Runs what comes behind the item that failed up to the points that are whole, as far as it goes by point along the
    dim, calls nobody and reads nothing at the end of the dim. The rest is left out, and what needs that."""
    if points == 0:
        return frozenset()
    program, done, here = run.compiled.program, [], (run.item, tuple(run.marks))
    written = writers(program)
    made = [{id for id, items in written.items() if at in items} for at in range(len(program.items))]
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
    return not _reads_to_the_end(loop, dim)


def _reads_to_the_end(loop: Loop, dim: Symbol) -> bool:
    reads = (each for each in walk(loop.body) if isinstance(each, Read))
    return any(each.name == dim.name for read in reads for expr in expressions(read) for each in expr.sizes())
