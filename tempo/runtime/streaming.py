"""`run.stream`: the outermost ordered dim, point by point or in chunks."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

from tempo.analysis.reports import tensor_name
from tempo.compiler.plan import Plan
from tempo.errors import SizeError, UnsupportedError, user_location
from tempo.loop_ir.passes import MOST_POINTS, Narrow
from tempo.loop_ir.transforms.circular_reads import is_chunked
from tempo.reference.calls import feeding
from tempo.runtime.arguments.binding import StreamEndError
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.compiled import Item
from tempo.runtime.dynamic.rows import RowChecks
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.memory import Memory, buffers_of, memory_of, told_what_is_large
from tempo.runtime.program_run import ProgramRun
from tempo.runtime.results.outputs import Outputs, Step, outputs_of
from tempo.runtime.results.salvage import Look, guarded, made_so_far, salvaged, whole_points
from tempo.sdg.graph import Output
from tempo.symbolic import Symbol


class Stream(Iterator[Step]):
    """Iterates over a run. After its end, `result` holds the outputs and the state; outputs over the dim only where
    they were to be kept.

    Nothing is computed before the first step; that the program can be run along the dim is checked at once.
    """

    def __init__(
        self,
        engine: CompiledEngine,
        arguments: Arguments,
        dim: Symbol,
        chunk: int,
        keep: bool,
        rows: RowChecks,
        endless: bool = False,
        look: Look | None = None,
        from_point: int = 0,
    ):
        """Along `dim`, `chunk` points at a time; `keep`: its outputs are kept whole for `result`.

        `rows` looks at lengths that the run computes. `endless`: the dim has no end; the size that it is given is the
        most points that there can be. `look` is shown what is watched after every step. The points before `from_point`
        are no steps.
        """
        rows.check_proven(f"is streamed along {dim.name}")
        if not (endless or engine.compiler.checks):
            engine.points_read(arguments)
        engine = engine.in_order()  # what was given is not taken back
        # Without an end it is proven already that there is no cycle: none is looked for at the most points.
        plan = engine.plan(dim) if endless else engine.plan_for(arguments.sizes, dim)
        engine.verify(plan, arguments.sizes)
        streamed = [each for each in plan.graph.outputs if each.role == "output" and dim in each.domain]
        ends = plan.graph.lengths
        lengths = [ends[along] for along in ends.keys() - plan.graph.stops.keys() if dim in ends[along].layout]
        top, self._delay, ahead = _loop_of(plan, [*streamed, *lengths], dim)
        width = chunk + self._delay + ahead
        self._size = int(plan.graph.dim(dim).size.evaluate(arguments.sizes))
        if from_point >= self._size:
            raise SizeError(
                f"from_point is {from_point}, and {dim.name} has the points 0 to {self._size - 1}",
                location=user_location(),
            )
        names = tuple(output.name for output in streamed)
        narrow = None if keep or not (endless or width < self._size) else Narrow(names, dim, width)
        plan = engine.narrowed(plan, narrow)
        if endless:
            _check_bounded(plan, dim)
        self._planned = partial(buffers_of, plan.loops, arguments.sizes)
        with told_what_is_large(self._planned):
            most = min(max(chunk, 0 if narrow else from_point), MOST_POINTS)
            self._made = engine.start(plan, arguments, in_parts=True, ahead=most)
        self._streamed = [(self._made.compiled.program.outputs[output.port], output) for output in streamed]
        self.result: Outputs | None = None
        self._failure: BaseException | None = None
        self._dim, self._chunk, self._endless = dim, chunk, endless
        self._arguments, self._graph, self._from_host = arguments, engine.graph, engine.from_host
        self._done, self._until = from_point, 0 if narrow else from_point
        self._without = () if keep else names
        self._look, self._rows = look, rows
        self._row_axes = {each.name: each.layout.index(dim) for each in lengths}
        self._steps = self._run(_items(plan, dim, self._made)[top])

    @property
    def memory(self) -> Memory:
        """What the stream holds."""
        return memory_of(self._made.ready)

    def so_far(self) -> Step:
        """The outputs over the dim at all points that steps have been, and those before the first.

        Raises `UnsupportedError` where they are not kept.
        """
        if self._without:
            raise UnsupportedError(
                "the stream keeps no points but those of the step at hand", hint="stream(..., keep=True) keeps all"
            )
        return self._step(0, self._done)

    def __next__(self) -> Step:
        """The next step. What failed once fails again: what was lost does not come back."""
        if self._failure is not None:
            raise self._failure
        made = partial(salvaged, self._made, self._arguments, self._graph)
        guarding = guarded(made, self._made.watched, self._look)
        try:
            with told_what_is_large(self._planned), feeding(self._arguments.feeds), guarding:
                return next(self._steps)
        except StopIteration:
            raise
        except BaseException as error:
            self._failure = error
            raise

    def _run(self, number: int) -> Iterator[Step]:
        run, items = self._made, self._made.compiled.items
        for item in items[:number]:
            run.whole(item)
        if (yield from self._along(items[number])):
            self.result, _ = made_so_far(run, self._arguments, self._graph)
            return
        for item in items[number + 1 :]:
            run.whole(item)
        results = run.results(self._without)
        if self._look is not None:
            self._look(results.watched, False)
        arguments = self._rows.made(self._arguments, results)
        self.result = outputs_of(results, self._graph, arguments, self._from_host)

    def _along(self, item: Item) -> Generator[Step, None, bool]:
        """Says at its end whether that is where a streamed input ended, in a stream without an end of its own."""
        try:
            for _, stop in self._made.chunks(item, self._chunk, self._until):
                if step := self._next(max(0, min(self._size, stop - self._delay))):
                    yield step
        except StreamEndError:
            if not self._endless:
                raise
            if step := self._next(whole_points(self._made)):
                yield step
            return True
        if self._endless and self._done >= self._size:
            raise SizeError(
                f"the stream over {self._dim.name!r} has reached {self._size} points, the most that a dim without an "
                "end can have",
                hint="what counts points has 32 bits; start another stream",
            )
        return False

    def _next(self, complete: int) -> Step | None:
        """The step up to where all is complete, if that is further than the last one."""
        start, self._done = self._done, max(self._done, complete)
        return self._step(start, complete) if complete > start else None

    def _step(self, start: int, stop: int) -> Step:
        if self._look is not None:
            self._look(self._made.watched(), True)
        parts = ((output, id, self._points(id, output, start, stop)) for id, output in self._streamed)
        arrays = {
            output.name: self._made.handed(id, part, output.layout.index(self._dim)) for output, id, part in parts
        }
        lengths = {**self._arguments.lengths, **self._made.lengths({self._dim.name: stop})}
        return Step(arrays, start, stop, lengths | self._computed_lengths(start, stop))

    def _computed_lengths(self, start: int, stop: int) -> dict[str, Any]:
        """Of rows at the points of a step. Raises `SizeError` for what is no length."""
        found, is_single = {}, self._chunk == 1 and stop - start == 1
        for name, array in self._made.computed_lengths().items():
            if name in self._row_axes:
                before = (slice(None),) * self._row_axes[name]
                self._rows.check_computed(self._arguments, {name: array[(*before, slice(stop))]})
                found[name] = array[(*before, start if is_single else slice(start, stop))]
        return found

    def _points(self, id: int, output: Output, start: int, stop: int) -> Any:
        run, axis = self._made, output.layout.index(self._dim)
        array, first, count = self._others_cut(id, axis), start, stop - start
        if is_chunked(run.compiled.program.buffers[id], self._dim):
            first = start % array.shape[axis]
            if first + count > array.shape[axis]:
                return run.compiled.backend.array_functions()["wrapped"](array, axis, start, count)
        is_single = self._chunk == 1 and count == 1
        return array[(*(slice(None),) * axis, first if is_single else slice(first, first + count))]

    def _others_cut(self, id: int, axis: int) -> Any:
        """What there is of an output, without the places for the rest of a bucket along the other axes."""
        array, held = self._made.shown(id), self._made.ready.held
        if held is None:
            return array
        return array[tuple(slice(None) if at == axis else slice(count) for at, count in enumerate(held[id]))]


def _loop_of(plan: Plan, streamed: list[Output], dim: Symbol) -> tuple[int, int, int]:
    """The loop over `dim` at the top that makes the outputs, how many iterations after its point one is complete, and
    how many points ahead of its iteration one is made (or less than none).
    """
    outer: dict[int, list[int]] = {}
    clusters = plan.program.cluster_of()
    for output in streamed:
        cluster = clusters[output.edge.node]
        for place in plan.places[cluster.name]:
            top, loop = place.loops[0] if place.loops else (-1, None)
            offset = place.offset(cluster.domain.index(dim))
            if loop is None or loop.var != dim or loop.direction != "forward" or offset is None:
                raise _not_outermost(dim, f"the output {output.name!r} is not made by a forward loop over it", output)
            outer.setdefault(top, []).append(offset[1].as_int())
    if len(outer) != 1 or not outer.keys() <= _tops(plan, dim):
        why = "no output has it" if not outer else "the schedule needs more than one loop over it"
        raise _not_outermost(dim, why, next(iter(streamed), None))
    ((chosen, offsets),) = outer.items()
    return chosen, max(0, -min(offsets)), max(offsets)


def _tops(plan: Plan, dim: Symbol) -> set[int]:
    """The loops over `dim` at the top of the schedule."""
    return {
        number
        for places in plan.places.values()
        for place in places
        for number, loop in place.loops[:1]
        if loop.var == dim and not any(guard < number for guard in place.guards)
    }


def _items(plan: Plan, dim: Symbol, run: ProgramRun) -> dict[int, int]:
    """The item of the driver for each loop over `dim` at the top: both are in the order of the run."""
    found = (at for at, item in enumerate(run.compiled.items) if item.loop is not None and item.loop.var == dim)
    return dict(zip(sorted(_tops(plan, dim)), found, strict=True))


def _not_outermost(dim: Symbol, why: str, output: Output | None) -> UnsupportedError:
    return UnsupportedError(
        f"the program cannot be streamed over {dim.name!r}: {why}",
        location=None if output is None else output.location,
        hint="stream over the outermost ordered dim (print(run.explain()) shows the schedule), or call run(...)",
    )


# -- without an end ------------------------------------------------------------------------------------------------


def _check_bounded(plan: Plan, dim: Symbol) -> None:
    """Raises `UnsupportedError` where something has a place for each point of a dim that has no end."""
    hint = "read a window of bounded length, or give the size of the dim"
    for node in map(plan.graph.nodes.__getitem__, plan.loops.tables.values()):
        if dim in node.domain:
            raise _unbounded(dim, f"at which points {tensor_name(node)} is needed is known only", node.location, hint)
    for buffer in plan.loops.buffers.values():
        if any(each.name == dim.name for extent in buffer.logical_shape for each in extent.sizes()):
            raise _unbounded(dim, f"{buffer.name} is kept", buffer.location, hint)


def _unbounded(dim: Symbol, what: str, location: Any, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} for every point of {dim.name}, and {dim.name} has no end", location=location, hint=hint
    )
