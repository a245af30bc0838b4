"""What runs a program for an executable: the compiled engine, or the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tempo.analysis.checks.stopping import endless
from tempo.analysis.demand.instances import demanded, find_cycle
from tempo.analysis.reports import cycle_error
from tempo.backends.by_point import joined, placed
from tempo.compiler.driver import Compiler, Specialised, check_supported
from tempo.compiler.once import Once
from tempo.compiler.options import Options
from tempo.compiler.plan import Plan, Scheduler, verifies
from tempo.errors import IndexOutOfRangeError, InternalError, ScheduleError, UnsupportedError, user_location
from tempo.logs import say
from tempo.loop_ir.analysis.index_bits import NARROW, index_bits
from tempo.loop_ir.ir import Block, Compute, Loop, LoopProgram, Statement
from tempo.loop_ir.passes import MOST_POINTS, Narrow, Offload
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.passes.wavefront.components import promises
from tempo.placement.collectives import collectives
from tempo.reference.evaluator import Evaluated, Evaluator
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.checkpoints.driver import CheckpointedRun
from tempo.runtime.checkpoints.identity import identity
from tempo.runtime.compiled import Compiled, Ready, compile_program
from tempo.runtime.dynamic.compaction import Compaction, RowRun, compaction
from tempo.runtime.dynamic.promises import Promises
from tempo.runtime.dynamic.wavefront import InTiles, in_tiles
from tempo.runtime.limit import Chosen, chosen
from tempo.runtime.memory import memory_of
from tempo.runtime.profile.recorder import RECORDER
from tempo.runtime.program_run import ProgramRun
from tempo.runtime.results.salvage import Look, guarded, made_by_evaluator, salvaged
from tempo.runtime.trial import compile_ahead
from tempo.schedule.verify import verify
from tempo.sdg.graph import Graph, Port
from tempo.symbolic import TRUE, Condition, Symbol, conjunction, var
from tempo.waiting import waiting

Progress = Callable[[int, int], None]
AtSizes = frozenset[tuple[Symbol, int]]
LoopsKey = tuple[Plan, bool, int, tuple[int, ...]]
"""A plan, how it is run, and the values of the sizes that shapes are made of."""
Donated = frozenset[Port]
_CHUNKS = 100  # of the loops at the top, when progress is shown


class ReferenceEngine:
    """The meaning itself."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options

    def __repr__(self) -> str:
        return 'backend="reference"'

    def evaluator(self, arguments: Arguments) -> Evaluator:
        nodes = (node for node in self.graph.nodes.values() if node.is_input and node.port.role != "seed")
        arrays = {node.id: np.asarray(arguments.arrays[node.port]) for node in nodes if node.port in arguments.arrays}
        checks = self.options.checks is not False
        return Evaluator(self.graph, arrays, arguments.sizes, arguments.seed, checks)

    def native(self, value: Any) -> str | None:
        """Everything is NumPy's."""
        return None

    def on_host(self, value: Any) -> Any:
        return np.asarray(value)

    from_host = on_host

    def finds_order(self) -> bool:
        return False  # it follows the demand, whatever there is

    def sizes(self, sizes: Mapping[Symbol, int]) -> Mapping[Symbol, int]:
        return sizes

    def check_at(self, sizes: Mapping[Symbol, int]) -> None:
        """Every size will do."""

    def of(self, graph: Graph) -> ReferenceEngine:
        """The same for another program."""
        return ReferenceEngine(graph, self.options)

    def run(self, arguments: Arguments, progress: Progress | None, look: Look | None = None) -> Evaluated:
        """Run the program once. Where a call fails in the middle, `look` is shown what was watched until then."""
        evaluator = self.evaluator(arguments)
        with guarded(partial(made_by_evaluator, evaluator), evaluator.so_far, look):
            return evaluator.run()


_MOST_WALKED = 256
"""Points of a dim at which a schedule is verified."""


class CompiledEngine:
    """Plans per streamed dim (None: no streaming), executables per value of the static sizes."""

    def __init__(
        self,
        compiler: Compiler,
        scheduler_name: str,
        folder: Path | None = None,
        declared: Graph | None = None,
    ) -> None:
        """`folder`: that of the host pool, where it is no memory. `declared`: the program before its gradients were
        expanded; without it nothing is known of indices before a run."""
        self.folder, self._declared = folder, declared
        check_supported(compiler.graph, compiler.backend.info)  # what the user wrote, whatever passes may make of it
        self.compiler, self.graph, self.backend = compiler, compiler.graph, compiler.backend
        self.scheduler_name, self.native = scheduler_name, compiler.backend.native
        self._speculates = compiler.speculates  # raises where the backend cannot check what is to be checked
        self._takes_streams = any(node.is_stream for node in compiler.graph.nodes.values())
        self._missed = False  # an index was out of range that nobody asks for, and may be the next time
        self._plans: Once[tuple[Symbol | None, Condition], Plan] = Once()
        self._specialised: Once[LoopsKey, Specialised] = Once()
        self._ready: Once[tuple[Plan, AtSizes, bool, int, Donated], Ready] = Once()
        self._demanded: Once[tuple[int, AtSizes], Mapping[int, Any]] = Once()
        self._compiled: Once[tuple[LoopsKey, int, Donated], Compiled] = Once()
        self._others: Once[Symbol | None, CompiledEngine] = Once()
        self._narrowed: Once[tuple[Plan, Narrow], Plan] = Once()
        self._chosen: Once[AtSizes, Chosen] = Once()

    def __repr__(self) -> str:
        return f'backend="{self.backend.info.name}", scheduler="{self.scheduler_name}"'

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """What says whether a run may go on from a checkpoint."""
        return identity(self.graph, self.backend, self.compiler.options)

    def plan(self, outermost: Symbol | None = None, facts: Condition = TRUE) -> Plan:
        """For every size of which `facts` are true."""
        return self._plans.get((outermost, facts), partial(self.compiler.plan, outermost, facts))

    def finds_order(self) -> bool:
        if self.compiler.counted:
            options = replace(self.compiler.options, recompute=None)
            return self._like(options=options, offload=None, placement=None).finds_order()
        try:
            self.plan()
        except UnsupportedError:
            return any(self.varied(rival).finds_order() for rival in self.compiler.rivals.values())
        return True

    def plan_for(self, sizes: Mapping[Symbol, int], outermost: Symbol | None = None) -> Plan:
        """The plan, within the limit of memory for runs as a whole."""
        return self.chosen(sizes).plan if outermost is None else self.planned(sizes, outermost)

    def chosen(self, sizes: Mapping[Symbol, int]) -> Chosen:
        """The plan, and what was looked at beside it where memory is limited or several schedulers are asked."""
        if self.compiler.memory_limit is None and not self.compiler.rivals:
            return Chosen(self.planned(sizes))
        found = partial(chosen, self, sizes, self.compiler.memory_limit)
        return self._chosen.get(frozenset(sizes.items()), found)

    def varied(self, scheduler: Scheduler | None = None, offload: Offload = None, **changed: Any) -> CompiledEngine:
        """The same with other options, another scheduler or a host pool, without choices of its own."""
        made, chosen = replace(self.compiler.options, **changed), scheduler or self.compiler.scheduler
        return self._like(options=made, scheduler=chosen, offload=offload, memory_limit=None, rivals={})

    def planned(self, sizes: Mapping[Symbol, int], outermost: Symbol | None = None) -> Plan:
        """The plan; where none is for every size, one for these, at which a real cycle is the user's error.

        Strips are cut for the number of points that there are."""
        counted = self.compiler.counted
        try:
            return self.plan(outermost, conjunction(var(symbol).eq(sizes[symbol]) for symbol in counted))
        except UnsupportedError as error:
            is_ordered = outermost is not None and self.finds_order()  # what can be ordered has no cycle
            cycle = None if is_ordered else find_cycle(self.graph, sizes)
            if cycle is not None:
                raise cycle_error(self.graph, cycle) from None
            return self._plan_at(sizes, outermost, error)

    def _plan_at(self, sizes: Mapping[Symbol, int], outermost: Symbol | None, refused: UnsupportedError) -> Plan:
        """A plan for these sizes alone, at which cases may be left out that no point takes."""
        try:
            return self.plan(outermost, conjunction(var(symbol).eq(size) for symbol, size in sorted(sizes.items())))
        except UnsupportedError:
            raise refused from None

    def verify(self, plan: Plan, sizes: Mapping[Symbol, int]) -> None:
        """Where it was asked for: it walks all instances, of a long dim the first."""
        if not verifies():
            return
        few = {symbol: min(size, _MOST_WALKED) for symbol, size in sizes.items()}
        try:
            verify(plan.problem, plan.tree, few if plan.problem.facts.evaluate(few) else sizes)
        except ScheduleError as error:
            raise InternalError(f"the scheduler {self.scheduler_name!r} made a wrong schedule: {error}") from error

    def at(
        self,
        plan: Plan,
        sizes: Mapping[Symbol, int],
        in_parts: bool = False,
        ahead: int = MOST_POINTS,
        donated: Donated = frozenset(),
    ) -> Ready:
        """`in_parts`: so that loops can be run in chunks, also where the backend makes one executable of all of it.
        `ahead`: how many arrays of a streamed input may be taken at once. `donated`: what it is given for its own."""
        if not self._takes_streams:
            ahead = MOST_POINTS  # chunks of any length are parts of the same loops
        key = plan, frozenset(sizes.items()), in_parts, ahead, donated
        return self._ready.get(
            key, lambda: self._made_ready(plan, self._code(plan, sizes, in_parts, ahead, donated), sizes)
        )

    def _made_ready(self, plan: Plan, code: Compiled, sizes: Mapping[Symbol, int]) -> Ready:
        def masks() -> Mapping[int, Any]:
            key = id(plan.graph), frozenset(sizes.items())  # narrowed and in parts it demands the same
            return self._demanded.get(key, lambda: demanded(plan.graph, sizes))

        ready = Ready(plan, code, sizes, masks, self.graph.named_sizes(sizes), self._held(code, sizes), self.folder)
        say("memory", lambda: str(memory_of(ready)))
        return ready

    def _held(self, code: Compiled, sizes: Mapping[Symbol, int]) -> Mapping[int, tuple[int, ...]] | None:
        """By buffer, how much of it an output is, where shapes are made for buckets of sizes."""
        if not self.compiler.buckets.of:
            return None
        shown = ((code.program.outputs.get(each.port), self.graph.shape_of(each)) for each in self.graph.outputs)
        return {id: tuple(int(size.evaluate(sizes)) for size in shape) for id, shape in shown if id is not None}

    def sizes(self, sizes: Mapping[Symbol, int]) -> Mapping[Symbol, int]:
        """All that code is made for and told, given the sizes of a call."""
        return self.compiler.buckets.sizes(sizes)

    def _code(self, plan: Plan, sizes: Mapping[Symbol, int], in_parts: bool, ahead: int, donated: Donated) -> Compiled:
        self.verify(plan, sizes)
        static = self.compiler.static(plan, sizes)
        key = plan, in_parts, ahead, tuple(static.values())
        made = self.loops(plan, sizes, in_parts, ahead)
        name, bits = self.backend.info.name, NARROW
        if self.backend.fixed_integers:  # sizes that no shape is made of have a say in that
            bits = index_bits(made.loops, self.graph, sizes, name)

        def compiled() -> Compiled:
            at = ", ".join(f"{symbol.name}={size}" for symbol, size in sorted(static.items()))
            with waiting(f"making code for {name}" + (f" at {at}" if at else "")):
                own = replace(made, loops=_with_donated(made.loops, donated)) if donated else made
                return compile_program(own, self.backend, sizes, bits)

        return self._compiled.get((key, bits, donated), compiled)

    def loops(
        self, plan: Plan, sizes: Mapping[Symbol, int], in_parts: bool = False, ahead: int = MOST_POINTS
    ) -> Specialised:
        """The plan's loops at the sizes that shapes are made of."""
        static = self.compiler.static(plan, sizes)
        key = plan, in_parts, ahead, tuple(static.values())
        return self._specialised.get(key, lambda: self._specialise(plan, static, not in_parts, ahead))

    def _specialise(self, plan: Plan, static: Mapping[Symbol, int], whole: bool, ahead: int) -> Specialised:
        made = self.compiler.specialise(plan, static, whole, ahead)
        for collective in collectives(made.passes):
            collective.warn()
        return made

    def check_at(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises `SizeError` where devices of a mesh cannot have parts of one size."""
        if self.compiler.placement is not None:
            self.compiler.placement.check_at(sizes)

    def narrowed(self, plan: Plan, narrow: Narrow | None) -> Plan:
        """The plan with outputs kept as `narrow` says."""
        if narrow is None:
            return plan
        return self._narrowed.get((plan, narrow), lambda: self.compiler.narrowed(plan, narrow))

    def of(self, graph: Graph) -> CompiledEngine:
        """The same for another program, compiled in the same way."""
        return self._like(graph=graph)

    def endless(self, dim: Symbol) -> CompiledEngine:
        """The same program along a dim that has no end."""
        return self._others.get(dim, lambda: self._like(graph=endless(self.graph, dim)))

    @property
    def executables(self) -> int:
        """For how many values of static sizes executables were made so far."""
        own = len({(id(plan.tree), sizes, bits) for (plan, _, _, sizes), bits, _ in self._compiled})
        return own + sum(each.executables for each in (self.tiles, self.rows) if each is not None)

    @property
    def _moved(self) -> Graph | None:
        """The program of which points and rows may be moved together; on a mesh that is an exchange."""
        return None if self.compiler.placement is not None else self._declared

    @cached_property
    def _in_tiles(self) -> tuple[InTiles | None, Sequence[str]]:
        return (None, ()) if self._moved is None else in_tiles(self.compiler, self._moved)

    @property
    def notes(self) -> Sequence[str]:
        """Which recurrences that only indices order are never run in tiles, and which rows never apart, and why."""
        return *self._in_tiles[1], *self._compaction[1]

    @cached_property
    def _compaction(self) -> tuple[Compaction | None, Sequence[str]]:
        return (None, ()) if self._moved is None else compaction(self.compiler, self._moved)

    @cached_property
    def rows(self) -> RowRuns | None:
        """Runs in which rows that go on are moved together, of a program of which rows end each by itself."""
        found, _ = self._compaction
        return None if found is None else RowRuns(found, self.scheduler_name)

    @cached_property
    def tiles(self) -> TiledRuns | None:
        """Runs in tiles, of a program that has a recurrence that only indices order."""
        found, _ = self._in_tiles
        return None if found is None else TiledRuns(found, self.scheduler_name)

    @cached_property
    def _promises(self) -> tuple[Promises, CompiledEngine] | None:
        """The indices of points that a run looks at before it begins, and what computes them: those of recurrences in
        tiles, and all that are known then where gathers do not raise by themselves."""
        found, _ = self._in_tiles
        parts = () if found is None else found.parts
        reads = {read.node: read for part in parts for read in part.wave.reads}
        checks = self.compiler.options.checks is not False
        if self._declared is not None and checks and not self.compiler.checks:
            reads |= {read.node: read for read in promises(self._declared, self.graph)}
        if self._declared is None or not reads:
            return None
        made = Promises(self._declared, tuple(reads.values()), checks)
        return made, CompiledEngine(made.compiler, "greedy")

    def on_host(self, value: Any) -> Any:
        """The array of an input as NumPy's."""
        return self.backend.to_host(value) if self.native(value) else np.asarray(value)

    def from_host(self, array: Any) -> Any:
        """An array of NumPy's as the backend's."""
        return self.backend.from_host(array)

    def points_read(self, arguments: Arguments) -> Mapping[int, Any]:
        """By indirect read, the points that it takes; of those alone that are looked at before a run.

        Raises `IndexOutOfRangeError` where an index is out of the range that was promised.
        """
        if self._promises is None:
            return {}
        promised, engine = self._promises
        used = {node.port for node in engine.graph.nodes.values() if node.is_input}
        on_host = {port: self.on_host(arguments.arrays[port]) for port in used}
        made = engine.run(replace(arguments, arrays=on_host, donated=frozenset()), None)
        return promised.read(made.outputs, arguments.sizes)

    def of_last_run(self, sizes: Mapping[Symbol, int]) -> tuple[CompiledEngine, Mapping[Symbol, int]]:
        """What ran for these sizes, if they are those of the last run: it, or its program in tiles."""
        last = None if self.tiles is None else self.tiles.last
        return (self, sizes) if last is None or last.sizes != sizes else (last.engine, last.there)

    def start(
        self,
        plan: Plan,
        arguments: Arguments,
        in_parts: bool = False,
        ahead: int = MOST_POINTS,
        donated: Donated = frozenset(),
    ) -> ProgramRun:
        ready = self.at(plan, arguments.sizes, in_parts, ahead, donated)
        return ProgramRun(ready, arguments.arrays, self.compiler.options.poison, RECORDER.get())

    def takes(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether a run may have for its own what it is given: it surely looks at it once, and what has been made when
        a call of the host fails does not need it."""
        once = self.backend.donates and not self.plan_for(sizes).loops.hosts
        return once and not self._missed and not self._looks_ahead(sizes)

    def device_put(self, given: Mapping[Port, Any], sizes: Mapping[Symbol, int] | None) -> dict[str, Any]:
        """Inputs as what ran last for these sizes takes them, or would; as any may, where that is not known."""
        engine, sizes = (self, None) if sizes is None else self.of_last_run(sizes)
        if engine is self and self.tiles is not None:
            sizes = None  # what will run is seen when it sees its indices
        code = None if sizes is None else engine.at(engine.plan_for(sizes), sizes).compiled
        made = {port: self._device_put(port, value, code) for port, value in given.items()}
        return {port.name: array for port, array in made.items()}

    def compile_ahead(self, given: Mapping[Port, Any], sizes: Mapping[Symbol, int]) -> None:
        """What a run that is given these calls, and others as one array each. Where indices or the rows that go on say
        what runs, that is not known before."""
        if self.tiles is None and (self.rows is None or not self.rows.apart(sizes)):
            ready = self.at(self.plan_for(sizes), sizes)
            compile_ahead(ready, ready.by_point(given))

    def _device_put(self, port: Port, value: Any, code: Compiled | None) -> Any:
        if code is not None and port in code.program.inputs:
            return code.put(code.program.inputs[port], value)
        axes = np.ndim(value) if self.backend.takes_points else 0
        lies = () if self.compiler.placement is None else self.compiler.placement.inputs.get(port, ())
        return joined(self.backend, placed(self.backend, value, axes, lies), lies)

    def planned_again(self, sizes: Mapping[Symbol, int]) -> tuple[Plan, Specialised]:
        """The plan, and its loops at these sizes, with records of passes that have what each was given and made."""
        engine = self._like(keeps=True)
        plan = engine.plan_for(sizes)
        return plan, engine.compiler.specialise(plan, engine.compiler.static(plan, sizes))

    def in_order(self) -> CompiledEngine:
        """The engine that looks nothing up which is not demanded."""
        if not self._speculates:
            return self
        return self._others.get(None, lambda: self._like(may_speculate=False))

    def _like(self, **changed: Any) -> CompiledEngine:
        return CompiledEngine(replace(self.compiler, **changed), self.scheduler_name, self.folder)

    def run(self, arguments: Arguments, progress: Progress | None, look: Look | None = None) -> Evaluated:
        """Run the program once, or twice where an index was out of range that may have been looked up for nothing."""
        points = self.points_read(arguments)
        if self.tiles is not None and (found := self.tiles.of(arguments, points)) is not None:
            engine, arguments = found
            return engine.run(arguments, progress, look)
        if self.rows is not None and progress is None and look is None and self.rows.apart(arguments.sizes):
            try:
                return self.rows.run(arguments)
            except IndexOutOfRangeError:  # which names a place, where a row has been moved to
                pass
        return self.in_any_order(arguments, progress, look)

    def checkpointed(
        self, arguments: Arguments, progress: Progress | None, look: Look | None, run: CheckpointedRun
    ) -> Evaluated:
        """As `run`, with checkpoints: no row is moved, and nothing is looked up that is not demanded."""
        points = self.points_read(arguments)
        if self.tiles is not None and (found := self.tiles.of(arguments, points, again=True)) is not None:
            return found[0].checkpointed(found[1], progress, look, run)
        return self.in_order()._driven(arguments, look, lambda _, made: run.items(made, progress), in_parts=True)

    def in_any_order(
        self, arguments: Arguments, progress: Progress | None, look: Look | None, rows: Compaction | None = None
    ) -> Evaluated:
        """As `run`, when it is known what is run; `rows`: that go on are moved together."""
        if self._missed:
            return self.in_order().in_any_order(arguments, progress, look, rows)
        try:
            return self._run(arguments, progress, look, rows)
        except IndexOutOfRangeError:
            if not self._looks_ahead(arguments.sizes):
                raise
        # Raises where the index was asked for.
        results = self.in_order().in_any_order(arguments, progress, look, rows)
        self._missed = True
        return results

    def _looks_ahead(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether anything is done that the engine without speculation does not do."""
        plans = (self.plan_for(sizes), self.in_order().plan_for(sizes)) if self._speculates else ()
        return len({_work(plan.loops) for plan in plans}) > 1

    def _run(
        self, arguments: Arguments, progress: Progress | None, look: Look | None, rows: Compaction | None
    ) -> Evaluated:
        looked = rows is None and self._is_looked_at(arguments.sizes)

        def drive(plan: Plan, run: ProgramRun) -> None:
            if rows is None:
                _run_items(run, progress, looked)
            else:
                sizes = arguments.sizes
                RowRun(rows, sizes, lambda width: self.at(plan, {**sizes, rows.count: width}, True)).items(run)

        return self._driven(arguments, look, drive, in_parts=progress is not None or rows is not None or looked)

    def _is_looked_at(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether a profile looks at some stretches of its loops more closely than at others."""
        recorder = RECORDER.get()
        if recorder is None or not recorder.runs_in_chunks():
            return False
        loops = self.plan_for(sizes).loops
        return any(isinstance(each, Loop) for each in loops.items) or any(each.loop for each in loops.segments)

    def _driven(
        self, arguments: Arguments, look: Look | None, drive: Callable[[Plan, ProgramRun], None], in_parts: bool
    ) -> Evaluated:
        """`drive` runs the items."""
        plan = self.plan_for(arguments.sizes)
        takes = arguments.donated and not in_parts and self.takes(arguments.sizes)
        run = self.start(plan, arguments, in_parts, donated=arguments.donated if takes else frozenset())
        with guarded(partial(salvaged, run, arguments, self.graph), run.watched, look):
            drive(plan, run)
        results = run.results()
        for array in arguments.given_up() if self.backend.donates else ():
            self.backend.delete(array)
        return results


class RunInTiles(NamedTuple):
    """A run of these sizes, the program in tiles that it was one of, and what the sizes were there."""

    sizes: Mapping[Symbol, int]
    program: InTiles
    engine: CompiledEngine
    there: Mapping[Symbol, int]


class TiledRuns:
    """Runs of a program with recurrences that only indices order: an inspector looks at these first."""

    def __init__(self, program: InTiles, scheduler_name: str) -> None:
        self._first, self._scheduler_name = program, scheduler_name
        self._made: Once[tuple[int, ...], tuple[InTiles, CompiledEngine]] = Once()
        self._lanes: Once[frozenset[tuple[Symbol, int]], tuple[int, ...]] = Once()
        self.last: RunInTiles | None = None
        """The last run, if it was one in tiles."""

    @property
    def program(self) -> InTiles:
        return self._first if self.last is None else self.last.program

    @property
    def executables(self) -> int:
        return sum(self._with_lanes(lanes)[1].executables for lanes in self._made)

    def of(
        self, arguments: Arguments, points: Mapping[int, Any], again: bool = False
    ) -> tuple[CompiledEngine, Arguments] | None:
        """The engine that runs in tiles, and what it is given; None where points one by one take less time.

        What is seen of the first run of some sizes says how many points a tile has in all. `again`: nothing does, so
        that another process goes on with a run.
        """
        sizes, self.last = arguments.sizes, None
        best, lanes = partial(self._first.best_lanes, arguments, points), self._first.lanes
        program, engine = self._with_lanes(lanes if again else self._lanes.get(frozenset(sizes.items()), best))
        given = program.given(arguments, points)
        if given is None:
            return None
        given = replace(given, sizes=engine.sizes(given.sizes))
        self.last = RunInTiles(sizes, program, engine, given.sizes)
        return engine, given

    def _with_lanes(self, lanes: tuple[int, ...]) -> tuple[InTiles, CompiledEngine]:
        def made() -> tuple[InTiles, CompiledEngine]:
            program = self._first if lanes == self._first.lanes else self._first.with_lanes(lanes)
            return program, CompiledEngine(program.compiled(), self._scheduler_name)

        return self._made.get(lanes, made)


class RowRuns:
    """Runs of a program with rows that end each by itself, in which those that go on are moved together."""

    def __init__(self, rows: Compaction, scheduler_name: str) -> None:
        self.program, self.engine = rows, CompiledEngine(rows.compiled(), scheduler_name)

    @property
    def executables(self) -> int:
        return self.engine.executables

    def apart(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether that is worth it."""
        return len(self.program.widths(sizes)) > 1

    def run(self, arguments: Arguments) -> Evaluated:
        return self.engine.in_any_order(self.program.given(arguments), None, None, self.program)


Engine = ReferenceEngine | CompiledEngine


def planning(engine: Engine, otherwise: str, hint: str | None = None) -> CompiledEngine:
    """The engine, where it is one that plans. Raises `UnsupportedError` that says what the other one does."""
    if not isinstance(engine, CompiledEngine):
        raise UnsupportedError(f"the reference backend {otherwise}", location=user_location(), hint=hint)
    return engine


def _with_donated(loops: LoopProgram, ports: Donated) -> LoopProgram:
    """With what a caller gives up as the program's own."""
    given = {id for port, id in loops.inputs.items() if port in ports}
    return replace(loops, buffers={id: replace(each, donated=id in given) for id, each in loops.buffers.items()})


def _work(loops: LoopProgram) -> tuple[Block, ...]:
    """All that a program does, without what says why it may do so."""

    def plain(each: Statement, scope: BlockScope) -> Block | None:
        if not isinstance(each, Compute) or "speculated" not in each.attrs:
            return None
        attrs = {key: value for key, value in each.attrs.items() if key != "speculated"}
        return (replace(each, attrs=attrs),)

    return (loops.items, *(rewritten(segment.body, plain) for segment in loops.segments))


def _run_items(run: ProgramRun, progress: Progress | None, looked: bool) -> None:
    """`looked`: in chunks that a profile says."""
    in_chunks = looked or progress is not None
    loops = [run.bounds(item) for item in run.compiled.items if item.loop and in_chunks]
    total, done = sum(hi - lo for lo, hi in loops), 0
    length = partial(run.recorder.chunk, run) if run.recorder is not None and looked else max(1, total // _CHUNKS)
    for item in run.compiled.items:
        if item.loop is None or not in_chunks:
            run.whole(item)
            continue
        for start, stop in run.chunks(item, length):
            done += stop - start
            if progress is not None:
                progress(done, total)
