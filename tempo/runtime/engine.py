"""What runs a program for an executable: the compiled engine, or the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from tempo.analysis.checks.endless import endless
from tempo.analysis.demand.instances import demanded, find_cycle
from tempo.analysis.reports import cycle_error
from tempo.backends.base import Backend
from tempo.compiler.fallback import Mapped, with_fewer_axes
from tempo.compiler.once import Once
from tempo.compiler.options import Options
from tempo.compiler.plan import Plan, PlanOptions, Scheduler, make_plan, verifies
from tempo.compiler.support import check_supported, exclusion_in
from tempo.errors import (
    IndexOutOfRangeError,
    InternalError,
    ScheduleError,
    TempoError,
    UnsupportedError,
)
from tempo.loop_ir.analysis.index_bits import NARROW, index_bits
from tempo.loop_ir.codegen.python import static_sizes
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.transforms.chunked_outputs import chunked
from tempo.loop_ir.transforms.circular_reads import unrotated
from tempo.loop_ir.transforms.dynamic_extent.versions import Tiling, tiled
from tempo.loop_ir.transforms.fuse_segments import fused
from tempo.loop_ir.transforms.mask_elimination import without_idle_masks
from tempo.loop_ir.transforms.pass_through import with_less_handed_on
from tempo.loop_ir.transforms.read_ahead import MOST_POINTS, taken_ahead
from tempo.passes.manager import Pass
from tempo.passes.pipeline import NEEDED, PassRegistry
from tempo.passes.vectorize.vectorize import Lift
from tempo.plugins.manager import default_manager
from tempo.reference.evaluator import Evaluator
from tempo.runtime.arguments.binding import input_nodes
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.arguments.feeds import stream_nodes
from tempo.runtime.compiled import Compiled, ProgramRun, compile_program
from tempo.runtime.results.outputs import Outputs
from tempo.runtime.results.results import Look, Results, collect, looking_after, watched
from tempo.runtime.results.salvage import no_state, salvaging
from tempo.schedule.verify import verify
from tempo.sdg.graph import Graph
from tempo.symbolic import TRUE, Condition, Symbol, conjunction, var
from tempo.waiting import waiting


class Narrow(NamedTuple):
    """Outputs, by name, of which a caller takes the points along `dim` as they come: `width` of them are kept."""

    outputs: tuple[str, ...]
    dim: Symbol
    width: int


Progress = Callable[[int, int], None]
PlanKey = tuple[Symbol | None, Condition]
LoopsKey = tuple[PlanKey, tuple[bool, int], Narrow | None, tuple[int, ...]]
"""The dim that is streamed, whether it runs whole and how much is taken ahead, and the values of the sizes that shapes
are made of."""
_CHUNKS = 100  # of the loops at the top, when progress is shown


class Engine(Protocol):
    def native(self, value: Any) -> str | None:
        """The dtype's name where `value` is an array that needs no conversion."""

    def finds_order(self) -> bool:
        """Whether there is an order of everything that the program demands, at all sizes."""

    def run(self, arguments: Arguments, progress: Progress | None, look: Look | None = None) -> Results:
        """Run the program once. Where a call fails in the middle, `look` is shown what was watched until then."""


class ReferenceEngine:
    """The meaning itself."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options

    def __repr__(self) -> str:
        return 'backend="reference"'

    def evaluator(self, arguments: Arguments) -> Evaluator:
        arrays = {
            node.id: arguments.arrays[key]
            for role, prefix in (("input", ""), ("state", "state:"))
            for name, node in input_nodes(self.graph, role).items()
            if (key := prefix + name) in arguments.arrays
        }
        checks = self.options.checks is not False
        return Evaluator(self.graph, arrays, arguments.sizes, arguments.seed, checks)

    def native(self, value: Any) -> str | None:
        del value
        return None

    def finds_order(self) -> bool:
        return False  # it follows the demand, whatever there is

    def run(self, arguments: Arguments, progress: Progress | None, look: Look | None = None) -> Results:
        evaluator = self.evaluator(arguments)
        with looking_after(evaluator.so_far, look):
            try:
                results = evaluator.run()
            except TempoError as error:
                _tell_what_was_made(error, evaluator)
                raise
        return Results(results.outputs, results.state, results.kept, results.watched)


class CompiledEngine:
    """Plans per streamed dim (None: no streaming), executables per value of the static sizes."""

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        scheduler: Scheduler,
        scheduler_name: str,
        options: Options,
        likely: Mapping[Symbol, int] | None = None,
        passes: tuple[Pass, ...] | None = None,
        speculates: bool = True,
    ):
        """`likely`: sizes that the program will be run with, as far as known. `passes`: None for all there are.

        `speculates`: indices may be looked up before it is known whether anybody asks for them, which makes a prompt
        one pass; a run that meets one out of range is done again in order, by which it is then known.
        """
        self.passes = registered_passes() if passes is None else passes
        self.likely = likely or {}
        self.graph, self.backend = graph, backend
        self.scheduler, self.scheduler_name, self.options = scheduler, scheduler_name, options
        self.native = backend.native
        check_supported(graph, backend.info)  # what the user wrote, whatever passes may make of it
        self._checked = self._checks()
        self._speculates = speculates and self._checked and _may_run_again(graph)
        self._missed = False  # an index was out of range that nobody asks for, and may be the next time
        self._in_order: Once[None, CompiledEngine] = Once()
        self._stepped = graph.canonical(node.domain[0] for node in stream_nodes(graph).values())
        self._plans: Once[PlanKey, Plan] = Once()
        self._verified: Once[tuple[Symbol | None, frozenset[tuple[Symbol, int]]], None] = Once()
        self._loops: Once[LoopsKey, LoopProgram] = Once()
        self._index_bits: Once[tuple[LoopsKey, frozenset[tuple[Symbol, int]]], int] = Once()
        self._compiled: Once[tuple[LoopsKey, int], Compiled] = Once()
        self._endless: Once[Symbol, CompiledEngine] = Once()
        self._narrowed: Once[tuple[PlanKey, Narrow], tuple[LoopProgram, tuple[Symbol, ...]]] = Once()
        self._tables: Once[tuple[PlanKey, tuple[tuple[Symbol, int], ...]], list[Any]] = Once()

    def __repr__(self) -> str:
        return f'backend="{self.backend.info.name}", scheduler="{self.scheduler_name}"'

    def plan(self, outermost: Symbol | None = None, facts: Condition = TRUE) -> Plan:
        """For every size of which `facts` are true."""
        return self._plans.get((outermost, facts), partial(self._planned, outermost, facts))

    def _planned(self, outermost: Symbol | None, facts: Condition) -> Plan:
        disable = self.options.disable if self.options.lift else (*self.options.disable, "lift")
        how = self.options
        options = PlanOptions(
            self._checked,
            self._speculates,
            self._stepped[0] if outermost is None and self._stepped else outermost,
            disable,
            how.debug,
            schedule_seconds=how.schedule_seconds,
            likely=self.likely,
            composites=self.backend.info.capabilities.composites,
            facts=facts,
        )
        passes = self._passes(outermost)

        def planned(mapping: Mapped, disable: tuple[str, ...] = disable) -> Plan:
            chosen = replace(options, mapping=mapping, disable=disable)
            with waiting(f"planning for {self.backend.info.name}: passes, order, memory"):
                plan = make_plan(self.graph, passes, self.scheduler, chosen)
            check_supported(plan.graph, self.backend.info)
            return plan

        def as_written() -> Plan:
            return planned(None, tuple({each.name for each in passes} - NEEDED | set(disable)))

        dims = [dim.symbol.name for dim in self.graph.dims] if "lift" not in disable else []
        return with_fewer_axes(planned, how.mapping, dims, as_written)

    def _checks(self) -> bool:
        """Whether gathers raise; a backend that cannot says so as the capability "checks"."""
        capabilities = self.backend.info.capabilities
        why_not = capabilities.why_not("checks")
        if self.options.checks and why_not:
            raise UnsupportedError(
                f"the backend {self.backend.info.name!r} has no checked mode: {why_not}",
                hint="leave Options(checks=...) out, or compile for the numpy backend to find the index",
                feature="checks",
            )
        by_default = why_not is None and not capabilities.clamps
        return by_default if self.options.checks is None else self.options.checks

    def _passes(self, outermost: Symbol | None) -> tuple[Pass, ...]:
        """The pipeline. A dim that is stepped through must stay a loop."""
        kept = frozenset(self._stepped) if outermost is None else frozenset({*self._stepped, outermost})
        return tuple(Lift(exclude=kept) if isinstance(each, Lift) else each for each in self.passes)

    def finds_order(self) -> bool:
        try:
            self.plan()
        except UnsupportedError:
            return False
        return True

    def plan_for(self, sizes: Mapping[Symbol, int], outermost: Symbol | None = None) -> Plan:
        """The plan; where none is for every size, one for these, at which a real cycle is the user's error."""
        try:
            plan = self.plan(outermost)
        except UnsupportedError as error:
            if outermost is None or not self.finds_order():  # what can be ordered has no cycle
                cycle = find_cycle(self.graph, sizes)
                if cycle is not None:
                    raise cycle_error(self.graph, cycle) from None
            plan = self._plan_at(sizes, outermost, error)
        if verifies():
            # Once for each plan and sizes: it walks all instances.
            self._verified.get((outermost, frozenset(sizes.items())), partial(self._verify, plan, sizes))
        return plan

    def _plan_at(self, sizes: Mapping[Symbol, int], outermost: Symbol | None, refused: UnsupportedError) -> Plan:
        """A plan for these sizes alone, at which cases may be left out that no point takes."""
        try:
            return self.plan(outermost, conjunction(var(symbol).eq(size) for symbol, size in sorted(sizes.items())))
        except UnsupportedError:
            raise refused from None

    def _verify(self, plan: Plan, sizes: Mapping[Symbol, int]) -> None:
        try:
            verify(plan.problem, plan.tree, sizes)
        except ScheduleError as error:
            raise InternalError(f"the scheduler {self.scheduler_name!r} made a wrong schedule: {error}") from error

    def compiled(
        self,
        plan: Plan,
        sizes: Mapping[Symbol, int],
        outermost: Symbol | None = None,
        in_parts: bool = False,
        narrow: Narrow | None = None,
        ahead: int = MOST_POINTS,
    ) -> Compiled:
        """`in_parts`: so that loops can be run in chunks, also where the backend makes one executable of all of it.
        `ahead`: how many arrays of a streamed input may be taken at once."""
        planned, symbols = self.loops(plan, outermost, narrow)
        static = {symbol: sizes[symbol] for symbol in symbols}
        whole = self.backend.fuses_segments and not in_parts
        key = (outermost, plan.facts), (whole, ahead), narrow, tuple(static.values())

        def make() -> LoopProgram:
            tiling = Tiling(self.options.extent, self.options.tile, self.backend.costs, self.backend.fuses_segments)
            flat = unrotated(fused(planned) if whole else planned, static)
            loops = tiled(flat, static, tiling)
            lacking = exclusion_in(loops, self.backend.info)
            if lacking is not None:  # the hull has no operators but those of the plan
                why = f"hull, since the backend has no {lacking.operator} of {lacking.dtype}: {lacking.why}"
                loops = replace(tiled(flat, static, replace(tiling, extent="hull")), extents=(why,))
            loops = without_idle_masks(loops, static)
            if self.backend.fuses_segments:
                loops = taken_ahead(loops, static, ahead)
            return with_less_handed_on(loops, static, self.backend.allocates_inside)

        loops = self._loops.get(key, make)
        bits = self._bits(key, loops, sizes)

        def code() -> Compiled:
            at = ", ".join(f"{symbol.name}={size}" for symbol, size in sorted(static.items()))
            with waiting(f"making code for {self.backend.info.name}" + (f" at {at}" if at else "")):
                return compile_program(loops, self.backend, static, sizes, bits)

        return self._compiled.get((key, bits), code)

    def _bits(self, key: LoopsKey, loops: LoopProgram, sizes: Mapping[Symbol, int]) -> int:
        """In how many bits indices are computed: sizes that no shape is made of have a say in that."""
        if not self.backend.fixed_integers:
            return NARROW
        full, name = (key, frozenset(sizes.items())), self.backend.info.name
        return self._index_bits.get(full, lambda: index_bits(loops, self.graph, sizes, name))

    def loops(
        self, plan: Plan, outermost: Symbol | None = None, narrow: Narrow | None = None
    ) -> tuple[LoopProgram, tuple[Symbol, ...]]:
        """The plan's loops, with the outputs of `narrow` kept as it says, and the sizes that executables are for."""
        static = self.backend.static_buffers
        if narrow is None:
            return plan.loops, plan.buffer_sizes if static else plan.shape_sizes

        def make() -> tuple[LoopProgram, tuple[Symbol, ...]]:
            ids = [plan.loops.outputs[name] for name in narrow.outputs]
            loops = chunked(plan.loops, ids, narrow.dim, narrow.width)
            return loops, tuple(sorted(static_sizes(loops, buffers=static)))

        return self._narrowed.get(((outermost, plan.facts), narrow), make)

    def endless(self, dim: Symbol) -> CompiledEngine:
        """The same program along a dim that has no end."""
        parts = self.backend, self.scheduler, self.scheduler_name, self.options, self.likely
        return self._endless.get(dim, lambda: CompiledEngine(endless(self.graph, dim), *parts))

    @property
    def executables(self) -> int:
        """For how many values of static sizes executables were made so far."""
        return len({(plan, sizes, bits) for (plan, _, _, sizes), bits in self._compiled})

    def start(
        self,
        arguments: Arguments,
        outermost: Symbol | None = None,
        in_parts: bool = False,
        narrow: Narrow | None = None,
        ahead: int = MOST_POINTS,
    ) -> ProgramRun:
        plan = self.plan_for(arguments.sizes, outermost)
        compiled = self.compiled(plan, arguments.sizes, outermost, in_parts, narrow, ahead)
        arrays = {id: arguments.arrays[key] for key, id in compiled.program.inputs.items()}
        tables = self._tables_for(plan, arguments.sizes, outermost)
        return ProgramRun(compiled, arguments.sizes, arrays, tables, self.options.poison)

    def _tables_for(self, plan: Plan, sizes: Mapping[Symbol, int], outermost: Symbol | None) -> list[Any]:
        """The demanded points that guard statements; exact demand may take seconds, so it is found once per sizes."""
        if not plan.loops.tables:
            return []

        def make() -> list[Any]:
            masks = demanded(plan.graph, sizes)
            return [masks[node] for _, node in sorted(plan.loops.tables.items())]

        return self._tables.get(((outermost, plan.facts), tuple(sorted(sizes.items()))), make)

    def in_order(self) -> CompiledEngine:
        """The engine that looks nothing up which is not demanded."""
        if not self._speculates:
            return self
        parts = self.graph, self.backend, self.scheduler, self.scheduler_name, self.options, self.likely, self.passes
        return self._in_order.get(None, lambda: CompiledEngine(*parts, speculates=False))

    def run(self, arguments: Arguments, progress: Progress | None, look: Look | None = None) -> Results:
        if self._missed:
            return self.in_order().run(arguments, progress, look)
        try:
            return self._run(arguments, progress, look)
        except IndexOutOfRangeError:
            if not self._looks_ahead(arguments.sizes):
                raise
        results = self.in_order().run(arguments, progress, look)  # raises where the index was asked for
        self._missed = True
        return results

    def _looks_ahead(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether anything is done that the engine without speculation does not do."""
        return self._speculates and str(self.plan_for(sizes).loops) != str(self.in_order().plan_for(sizes).loops)

    def _run(self, arguments: Arguments, progress: Progress | None, look: Look | None) -> Results:
        run = self.start(arguments, in_parts=progress is not None)
        with (
            looking_after(partial(watched, run), look),
            salvaging(run, arguments.arrays, self.named(arguments.sizes), self.graph),
        ):
            if progress is None:
                for item in run.compiled.items:
                    run.whole(item)
            else:
                _with_progress(run, progress)
        return collect(run)

    def named(self, sizes: Mapping[Symbol, int]) -> dict[str, int]:
        return {dim.symbol.name: int(dim.size.evaluate(sizes)) for dim in self.graph.dims}


def _may_run_again(graph: Graph) -> bool:
    """Whether a run leaves nothing behind and takes nothing away."""
    return not any(node.op in ("host_call", "backend_call", "sink") for node in graph.nodes.values())


def registered_passes() -> tuple[Pass, ...]:
    """The default pipeline with what plugins add."""
    registry = PassRegistry()
    default_manager().hooks().tempo_register_passes(registry=registry)
    return tuple(registry.passes)


def _with_progress(run: ProgramRun, progress: Progress) -> None:
    loops = [run.bounds(item) for item in run.compiled.items if item.loop]
    total, done = sum(hi - lo for lo, hi in loops), 0
    for item in run.compiled.items:
        if item.loop is None:
            run.whole(item)
            continue
        for start, stop in run.chunks(item, max(1, total // _CHUNKS)):
            done += stop - start
            progress(done, total)


def _tell_what_was_made(error: TempoError, evaluator: Evaluator) -> None:
    made = evaluator.made()
    if made is None or error.outputs is not None:
        return
    results, dim, points = made
    sizes = {each.symbol.name: int(each.size.evaluate(evaluator.sizes)) for each in evaluator.graph.dims}
    sizes |= {} if dim is None else {dim.name: points}
    error.outputs = Outputs(results.outputs, results.state, sizes)
    states = [each.name for each in evaluator.graph.outputs if each.role == "state"]
    unknown = [name for name in states if name not in results.state]
    error.state = None if unknown else error.outputs.state
    if unknown:
        error.add_note(no_state(unknown))
