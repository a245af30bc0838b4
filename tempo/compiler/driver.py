"""The driver: `plan` makes of a program what holds for all sizes, `specialise` of a plan what runs at some.

graph -> passes -> demand, clusters -> problem -> schedule -> storage -> LoopIR -> passes -> passes at sizes

Where a plan is refused there are fewer dims as axes: no program is, that can be run with loops over all of its dims.
Last of all, without the passes that code can do without: they may make operators that a backend has not.

What a backend declares that it does not do is refused before anything runs: a wrong number is never acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

from tempo.backends.base import Backend
from tempo.caches import base_folder
from tempo.compiler.buckets import Buckets
from tempo.compiler.options import Options
from tempo.compiler.plan import Plan, PlanOptions, Scheduler, verifies
from tempo.compiler.plan import plan as planned
from tempo.compiler.recall import key_of, recalled
from tempo.errors import UnsupportedError
from tempo.logs import say
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.passes import MOST_POINTS, LoopContext, LoopPass, Narrow, Offload
from tempo.loop_ir.pipeline import at_sizes, for_all_sizes, for_streams
from tempo.passes.manager import Forced, Pass, PassManager, PassRecord, forced, needed
from tempo.passes.pipeline import PassRegistry
from tempo.passes.recompute.recompute import Recompute
from tempo.passes.vectorize.search import Lift
from tempo.placement.propagation import ShardingPropagation
from tempo.placement.request import PlacementRequest
from tempo.plugins.descriptors import BackendPlugin, Exclusion
from tempo.plugins.manager import default_manager, list_backends
from tempo.plugins.messages import unsupported_operator
from tempo.reference.backend import ReferenceBackend
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import TRUE, Condition, Symbol
from tempo.waiting import collector_paused, waiting


def with_fewer_axes(
    planned: Callable[[Forced], Plan], mapping: Forced, dims: Sequence[str], as_written: Callable[[], Plan]
) -> Plan:
    """What `planned` makes of `mapping`; where it refuses that, with a loop over one of `dims`, or over all of them, or
    what `as_written` makes, without passes.

    Raises what it refused first where that does not help.
    """
    try:
        return planned(mapping)
    except UnsupportedError as error:
        refused = error
    ways = {dim: forced(mapping, dim) for dim in (*dims, *(mapping if isinstance(mapping, Mapping) else ()))}
    open_dims = [dim for dim in dims if ways[dim] != "sequential"]
    found = _tried(planned, ways, open_dims) if open_dims else None
    if found is None:
        try:
            return _explained(as_written(), "no pass is run that may be left out, since with them", refused)
        except UnsupportedError:
            raise refused from None
    looped = open_dims
    for dim in reversed(open_dims) if len(open_dims) > 1 else ():
        smaller = _tried(planned, ways, [dim])
        if smaller is not None:
            found, looped = smaller, [dim]
            break
    return _explained(found, f"{', '.join(looped)}: sequential, since with axes", refused)


def _explained(plan: Plan, what: str, refused: UnsupportedError) -> Plan:
    return replace(plan, decisions=(f"{what} the plan is refused: {refused.message}", *plan.decisions))


def _tried(
    planned: Callable[[Forced], Plan], ways: Mapping[str, str | int | None], looped: Sequence[str]
) -> Plan | None:
    """The plan with loops over some dims, if there is one."""
    mapping = {dim: "sequential" if dim in looped else way for dim, way in ways.items()}
    try:
        return planned({dim: way for dim, way in mapping.items() if way is not None})
    except UnsupportedError:
        return None


def registered_passes() -> tuple[Pass, ...]:
    """The default pipeline with what plugins add."""
    registry = PassRegistry()
    default_manager().call("tempo_register_passes", registry=registry)
    return tuple(registry.passes)


def loop_passes_of(
    backend: Backend | ReferenceBackend, options: Options, placement: PlacementRequest | None = None
) -> tuple[LoopPass, ...]:
    """Those at sizes, with the backend's own."""
    found = at_sizes(options.extent, options.tile)
    if placement is not None:
        found = (
            *found,
            ShardingPropagation(placement, None if isinstance(backend, ReferenceBackend) else backend.coordinates),
        )
    return backend.loop_passes(found)


def pass_manager(passes: tuple[Pass, ...], loop_passes: tuple[LoopPass, ...], options: Options) -> PassManager:
    """Of all passes, those on the graph and those on LoopIR; `loop_passes` are those at sizes."""
    disable = options.disable if options.lift else (*options.disable, Lift.name)
    return PassManager.configured((*passes, *for_all_sizes(), *for_streams(), *loop_passes), disable, options.debug)


@dataclass(frozen=True)
class Specialised:
    """A program's loops at the values `sizes` of what shapes are made of, and the passes that made them.

    `unplaced`: the loops before it was said where anything lies, the same on every mesh.
    """

    loops: LoopProgram
    sizes: Mapping[Symbol, int]
    passes: tuple[PassRecord, ...]
    unplaced: LoopProgram


@dataclass(frozen=True)
class Compiler:
    """What is compiled, for what, and how.

    `likely`: sizes that the program will be run with, as far as known. `may_speculate`: indices may be looked up before
    it is known whether anybody asks for them, which makes a prompt one pass; a run that meets one out of range is done
    again in order, by which it is then known. `memory_limit`: bytes that a run may hold. `offload`: what goes to a
    pool on the host. `rivals`: schedulers by name whose plans are looked at beside that of `scheduler`.
    `placement`: how what is given lies on a mesh of devices. `keeps`: records of passes have the programs themselves.
    """

    graph: Graph
    backend: Backend
    scheduler: Scheduler
    options: Options
    passes: tuple[Pass, ...] = field(default_factory=registered_passes)
    likely: Mapping[Symbol, int] = field(default_factory=dict)
    may_speculate: bool = True
    buckets: Buckets = field(default_factory=Buckets)
    memory_limit: int | None = None
    offload: Offload = None
    rivals: Mapping[str, Scheduler] = field(default_factory=dict)
    placement: PlacementRequest | None = None
    keeps: bool = False

    # -- for all sizes ---------------------------------------------------------------------------------------------

    @collector_paused()
    def plan(self, outermost: Symbol | None = None, facts: Condition = TRUE) -> Plan:
        """For every size of which `facts` are true; `outermost` is a dim that the caller steps through."""
        graph = self.buckets.graph(self.graph)
        stepped = self.stepped[0] if outermost is None and self.stepped else outermost
        composites = self.backend.info.capabilities.composites
        options = PlanOptions(
            self.checks,
            self.speculates,
            stepped,
            frozenset(self.stepped if outermost is None else (*self.stepped, outermost)),
            schedule_seconds=self.options.schedule_seconds,
            likely=self.buckets.sizes(self.likely),
            composites=composites,
            costs=self.backend.costs,
            facts=facts,
            recompute=self.options.strips,
            fold_blocks=self.options.fold_blocks,
            offload=self.offload if outermost is None else None,  # what a stream gives is whole
            stages=None if self.placement is None else self.placement.stages,
            cut=() if self.placement is None else tuple(sorted(each.name for each in self.placement.dims)),
        )

        def attempt(mapping: Forced, manager: PassManager = self.manager) -> Plan:
            with waiting(f"planning for {self.backend.info.name}: passes, order, memory"):
                made = planned(graph, manager, self.passes, self.scheduler, replace(options, mapping=mapping))
            check_supported(made.graph, self.backend.info)
            return made

        def cut() -> Plan:
            raise UnsupportedError("what is to be computed again, or cut for a pool, needs its pass")

        def as_written() -> Plan:
            if options.recompute or options.fold_blocks:
                return cut()
            bare = frozenset(each.name for each in self.passes if needed(each) is None)
            return attempt(None, replace(self.manager, disabled=self.manager.disabled | bare))

        dims = [dim.symbol.name for dim in self.graph.dims] if Lift.name not in self.manager.disabled else []

        def made() -> Plan:
            found = in_some_order()
            if self.placement is not None and self.placement.shard:
                self.placement.check_carried(found.graph, found.program.demands, planned=True)
            return found

        def in_some_order() -> Plan:
            may_be_cut = options.offload is not None and not options.recompute
            try:
                return with_fewer_axes(attempt, self.options.mapping, dims, cut if may_be_cut else as_written)
            except UnsupportedError as error:
                if may_be_cut:  # there may be an order without
                    uncut = replace(self.manager, disabled=self.manager.disabled | {Recompute.name})
                    return with_fewer_axes(lambda each: attempt(each, uncut), self.options.mapping, dims, as_written)
                if options.recompute and "recompute=" not in error.message:
                    more = "leave out recompute=, or give other strips: without them there may be one"
                    error.hint = f"{error.hint}; {more}" if error.hint else more
                raise

        make = collector_paused()(made)
        return recalled(self._key(graph, options), graph, {"facts": facts, "offload": options.offload}, make)

    def _key(self, graph: Graph, options: PlanOptions) -> str | None:
        """What tells its plan from others; None where planning is looked at, or cannot be told from another."""
        manager = self.manager
        looked_at = manager.debug or manager.printed or manager.stop_after or manager.keeps
        if base_folder() is None or looked_at or verifies():
            return None
        parts = {
            **{each.name: str(getattr(options, each.name)) for each in fields(options)},
            "stepped": str(sorted(options.stepped)),
            "likely": str(sorted(options.likely.items())),
            "mapping": repr(self.options.mapping),
            "shard": "" if self.placement is None else str(sorted(self.placement.shard.items())),
            "disabled": str(sorted(manager.disabled)),
            "backend": self.backend.info.name,
        }
        return key_of(graph, parts, (self.scheduler, *self.passes), self.backend)

    def narrowed(self, plan: Plan, narrow: Narrow) -> Plan:
        """The plan with outputs kept as `narrow` says."""
        loops, _ = self.manager.run(plan.loops, LoopContext(narrow=narrow), for_streams())
        return plan.with_loops(loops)

    # -- at some sizes ---------------------------------------------------------------------------------------------

    def static(self, plan: Plan, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """The values of the sizes that an executable is made for."""
        lies = self.placement is not None or plan.offload is not None
        symbols = plan.buffer_sizes if self.backend.static_buffers or lies else plan.shape_sizes
        return {symbol: sizes[symbol] for symbol in symbols}

    @collector_paused()
    def specialise(
        self, plan: Plan, sizes: Mapping[Symbol, int], whole: bool = True, ahead: int = MOST_POINTS
    ) -> Specialised:
        """The loops of a plan at the sizes that shapes are made of, as they are run.

        `whole`: nobody runs loops in chunks. `ahead`: how many arrays of a streamed input may be taken at once.
        """
        context = LoopContext(
            sizes,
            self.backend.costs,
            self.backend.fuses_segments,
            self.backend.allocates_inside,
            self.backend.info.why_not,
            whole and plan.offload is None,
            ahead,
            offload=plan.offload,
        )
        if self.placement is None:
            loops, records = self.manager.run(plan.loops, context, self.loop_passes)
            say("loops", lambda: str(loops))
            return Specialised(loops, sizes, records, loops)
        first = next(at for at, each in enumerate(self.loop_passes) if isinstance(each, ShardingPropagation))
        unplaced, records = self.manager.run(plan.loops, context, self.loop_passes[:first])
        loops, more = self.manager.run(unplaced, context, self.loop_passes[first:])
        say("loops", lambda: str(loops))
        return Specialised(loops, sizes, (*records, *more), unplaced)

    # -- what both follow ------------------------------------------------------------------------------------------

    @cached_property
    def manager(self) -> PassManager:
        return replace(pass_manager(self.passes, self.loop_passes, self.options), keeps=self.keeps)

    @cached_property
    def loop_passes(self) -> tuple[LoopPass, ...]:
        """At sizes."""
        return loop_passes_of(self.backend, self.options, self.placement)

    @cached_property
    def stepped(self) -> tuple[Symbol, ...]:
        """The dims along which streamed inputs come: they stay loops."""
        return self.graph.canonical(node.domain[0] for node in self.graph.nodes.values() if node.is_stream)

    @cached_property
    def counted(self) -> tuple[Symbol, ...]:
        """The sizes that plans are made for one by one."""
        graph = self.buckets.graph(self.graph)
        stages = None if self.placement is None else self.placement.stages
        along = set(self.options.strips) | ({symbol.name for symbol in stages.dims} if stages else set())
        cut = (dim.size for dim in graph.dims if self.offload is not None or dim.symbol.name in along)
        return tuple(sorted({symbol for size in cut for symbol in size.sizes()}))

    @cached_property
    def speculates(self) -> bool:
        """Whether it does: what runs leave behind keeps them from being made again."""
        leaves_nothing = not any(node.is_call for node in self.graph.nodes.values())
        return self.may_speculate and self.checks and leaves_nothing

    @cached_property
    def checks(self) -> bool:
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


def check_supported(graph: Graph, backend: BackendPlugin) -> None:
    """Raises `UnsupportedError` at the user's line for the first operator or dtype that the backend lacks.

    What no output needs is never run, so it may be anything.
    """
    needed = graph.reachable()
    for node in graph.nodes.values():
        if node.id in needed and node.attr("backend", backend.name) != backend.name:
            raise _of_another_backend(node, backend.name)
        exclusion = backend.why_not(node.op, *_dtypes(graph, node)) if node.id in needed else None
        if exclusion is not None:
            raise _refusal(backend, node, exclusion)


def _of_another_backend(node: Node, backend: str) -> UnsupportedError:
    theirs = node.attr("backend")
    return UnsupportedError(
        f"the backend call {node.name} is a function for the backend {theirs!r}, not for {backend!r}",
        location=node.location,
        hint=f'compile with backend="{theirs}" (or "reference"), or write it in the language or as a tp.host_call',
    )


def _dtypes(graph: Graph, node: Node) -> dict[str, None]:
    """Of the results first, then of the operands."""
    read = [graph.nodes[edge.node].results[edge.result] for _, edge in node.reads()]
    return dict.fromkeys(type.dtype for type in (*node.results, *read))


def _refusal(backend: BackendPlugin, node: Node, exclusion: Exclusion) -> UnsupportedError:
    usable = [listing.descriptor for listing in list_backends() if isinstance(listing.descriptor, BackendPlugin)]
    able = [each.name for each in usable if each.why_not(node.op, exclusion.dtype) is None]
    return unsupported_operator(backend.name, exclusion, able, node.location)
