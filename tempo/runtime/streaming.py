"""`run.stream`: the outermost ordered dim, point by point or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from tempo.errors import UnsupportedError
from tempo.lowering.plan import Plan
from tempo.reference.streams import feeding
from tempo.runtime.call import Arguments
from tempo.runtime.compiled import Item, Run
from tempo.runtime.engine import CompiledEngine, Look, collect, looking_after, watched
from tempo.runtime.memory import memory_of, told_what_is_large
from tempo.runtime.outputs import Outputs, Step
from tempo.sdg.graph import Output
from tempo.symbolic import Symbol


class Stream(Iterator[Step]):
    """Iterates over a run. After its end, `result` holds all outputs and the state.

    Nothing is computed before the first step; that the program can be run along `dim` is checked at once.
    """

    def __init__(
        self,
        engine: CompiledEngine,
        arguments: Arguments,
        dim: Symbol,
        chunk: int,
        names: Mapping[str, int],
        look: Look | None = None,
    ):
        """`look` is shown what is watched after every step."""
        plan = engine.plan_for(arguments.sizes, dim)
        self._planned = partial(memory_of, plan.loops, arguments.sizes)
        with told_what_is_large(self._planned):
            run = engine.start(arguments, dim, in_parts=True)
        streamed = _streamed_outputs(plan, dim)
        number, delay = _loop_of(plan, streamed, dim, run)
        size = int(plan.graph.dim(dim).size.evaluate(arguments.sizes))
        self.result: Outputs | None = None
        self._made = run
        self._names, self._feeds, self._look = names, arguments.feeds, look
        self._steps = self._run(run, number, _steps(run, run.compiled.items[number], streamed, dim, delay, size, chunk))

    def __next__(self) -> Step:
        with (
            told_what_is_large(self._planned),
            feeding(self._feeds),
            looking_after(partial(watched, self._made), self._look),
        ):
            step = next(self._steps)
            if self._look is not None:
                self._look(watched(self._made), True)
            return step

    def _run(self, run: Run, number: int, steps: Iterator[Step]) -> Iterator[Step]:
        items = run.compiled.items
        for item in items[:number]:
            run.whole(item)
        yield from steps
        for item in items[number + 1 :]:
            run.whole(item)
        results = collect(run)
        if self._look is not None:
            self._look(results.watched, False)
        self.result = Outputs(results.outputs, results.state, {**self._names, **results.kept})


def _streamed_outputs(plan: Plan, dim: Symbol) -> list[Output]:
    return [output for output in plan.graph.outputs if output.role == "output" and dim in output.domain]


def _loop_of(plan: Plan, streamed: list[Output], dim: Symbol, run: Run) -> tuple[int, int]:
    """The item of the driver that loops over `dim`, and how many iterations after its point an output is complete."""
    outer: dict[int, int] = {}
    clusters = plan.program.cluster_of()
    for output in streamed:
        cluster = clusters[output.edge.node]
        for place in plan.places[cluster.name]:
            top, loop = place.loops[0] if place.loops else (-1, None)
            offset = place.offset(cluster.domain.index(dim))
            if loop is None or loop.var != dim or loop.direction != "forward" or offset is None:
                raise _not_outermost(dim, f"the output {output.name!r} is not made by a forward loop over it")
            outer[top] = max(outer.get(top, 0), -offset[1].as_int())
    items = _items(plan, dim, run)
    if len(outer) != 1 or not outer.keys() <= items.keys():
        why = "no output has it" if not outer else "the schedule needs more than one loop over it"
        raise _not_outermost(dim, why)
    ((chosen, delay),) = outer.items()
    return items[chosen], delay


def _items(plan: Plan, dim: Symbol, run: Run) -> dict[int, int]:
    """The item of the driver for each loop over `dim` at the top of the schedule: both are in the order of the run."""
    tops = {
        number
        for places in plan.places.values()
        for place in places
        for number, loop in place.loops[:1]
        if loop.var == dim and not any(guard < number for guard in place.guards)
    }
    found = (at for at, item in enumerate(run.compiled.items) if item.loop is not None and item.loop.var == dim)
    return dict(zip(sorted(tops), found, strict=True))


def _not_outermost(dim: Symbol, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the program cannot be streamed over {dim.name!r}: {why}",
        hint="stream over the outermost ordered dim (print(run.explain()) shows the schedule), or call run(...)",
    )


def _steps(
    run: Run, item: Item, streamed: list[Output], dim: Symbol, delay: int, size: int, chunk: int
) -> Iterator[Step]:
    done = 0
    for _, stop in run.chunks(item, chunk):
        complete = max(0, min(size, stop - delay))
        if complete > done:
            yield _step(run, streamed, dim, done, complete, drop=chunk == 1)
        done = max(done, complete)


def _step(run: Run, streamed: list[Output], dim: Symbol, start: int, stop: int, drop: bool) -> Step:
    arrays = {}
    for output in streamed:
        array = run.output(run.compiled.program.outputs[output.name])
        axis = output.layout.index(dim)
        index = (slice(None),) * axis
        single = drop and stop - start == 1
        arrays[output.name] = run.compiled.backend.owned(array[(*index, start if single else slice(start, stop))])
    return Step(arrays, start, stop)
