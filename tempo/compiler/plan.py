"""The one-way pipeline from a graph to a LoopProgram: passes, demand, clusters, schedule, storage, LoopIR."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from tempo.costs import EAGER, Costs
from tempo.errors import InternalError, TempoError, UnsupportedError
from tempo.logs import say
from tempo.loop_ir.codegen.python import static_sizes
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.passes import LoopContext, Offload
from tempo.loop_ir.pipeline import for_all_sizes
from tempo.lowering.construct.build import build
from tempo.lowering.construct.guard_tables import clusters_with_tables
from tempo.lowering.retention import Retained, retention
from tempo.lowering.scheduling.clusters import Clustered, Value, build_problem, cluster
from tempo.lowering.scheduling.places import Place, places, scoped
from tempo.lowering.scheduling.sinking import sunk
from tempo.lowering.storage.assignment import Storage, decide_storage
from tempo.lowering.storage.kept_between import kept_between
from tempo.passes.instrument import unchecked_past_stops
from tempo.passes.manager import Forced, Pass, PassContext, PassManager, PassRecord, configured
from tempo.passes.pipelining.stages import PipelineStages
from tempo.schedule.problem import SchedulingProblem
from tempo.schedule.tree import Scheduled, ScheduleTree, render
from tempo.sdg.graph import Graph
from tempo.sdg.operators.located import with_names_of_data
from tempo.symbolic import TRUE, Condition, Symbol

VERIFY_VARIABLE = "TEMPO_VERIFY"


class Scheduler(Protocol):
    def schedule(self, problem: SchedulingProblem) -> ScheduleTree | Scheduled: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """All that was decided for one program, for every size of which `facts` are true.

    `stages` are seconds by stage, `notes` what the scheduler says of its tree, for `explain()`. `offload`: what
    goes to a pool on the host. `guarded`: the clusters that a table of demanded points guards.
    """

    graph: Graph
    program: Clustered
    problem: SchedulingProblem
    tree: ScheduleTree
    places: Mapping[str, tuple[Place, ...]]
    loops: LoopProgram
    passes: tuple[PassRecord, ...]
    decisions: tuple[object, ...]
    stages: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    facts: Condition
    offload: Offload
    storage: Mapping[Value, Storage]
    guarded: Collection[str]

    @cached_property
    def retention(self) -> Mapping[int, Retained]:
        """By buffer, as passes on LoopIR have left its number, why it is kept, and for how long."""
        return retention(self.program, self.places, self.storage, self.guarded)

    def with_loops(self, loops: LoopProgram) -> Plan:
        return replace(self, loops=loops)

    @cached_property
    def shape_sizes(self) -> tuple[Symbol, ...]:
        """The sizes that what operators see is made of."""
        return tuple(sorted(static_sizes(self.loops)))

    @cached_property
    def buffer_sizes(self) -> tuple[Symbol, ...]:
        """Those, and the sizes that buffers are made of."""
        return tuple(sorted(static_sizes(self.loops, buffers=True)))


@dataclass(frozen=True)
class PlanOptions:
    """`outermost`: the dim that is to be so in the order; `stepped`: those that stay loops, since the caller steps
    through them. `checks`: data-dependent indices raise when out of range.

    `speculates`: also at points that nobody demands, so that more points are made at once.

    `schedule_seconds`: how long the scheduler may look for an order.
    `composites`: what the backend takes whole, `costs`: what things cost there. `facts`: what is known of the sizes.
    `mapping` forces what `tempo.passes.vectorize.search` decides otherwise, `recompute` and
    `fold_blocks` are told to `tempo.passes.recompute`. `offload`: what goes to a pool on the host. `stages`: those of a
    pipeline. `cut`: dims of which devices of a mesh have parts.
    """

    checks: bool = True
    speculates: bool = False
    outermost: Symbol | None = None
    stepped: frozenset[Symbol] = frozenset()
    schedule_seconds: float | None = None
    mapping: Forced = None
    likely: Mapping[Symbol, int] = field(default_factory=dict)  # sizes that costs are counted with
    composites: tuple[str, ...] = ()
    costs: Costs = EAGER
    facts: Condition = TRUE
    recompute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fold_blocks: int | None = None
    offload: Offload = None
    stages: PipelineStages | None = None
    cut: tuple[str, ...] = ()


def plan(
    graph: Graph, manager: PassManager, passes: Sequence[Pass], scheduler: Scheduler, options: PlanOptions
) -> Plan:
    """What is the same at all sizes: passes on the graph, an order, storage, LoopIR, and passes on that."""
    clock = _Clock()
    given: dict[str, object] = {"mapping": options.mapping, "exclude": options.stepped, "recompute": options.recompute}
    given |= {
        "fold_blocks": options.fold_blocks,
        "pooled": options.offload is not None,
        "stages": options.stages,
        "cut": options.cut,
    }
    passes = configured(passes, **given, composites=options.composites, costs=options.costs)
    context = PassContext(options.likely, options.facts)
    optimized, records = manager.run(_with_checks(graph, options), context, passes)
    clock.stage("passes")
    demands = context.demand(optimized)
    program = Clustered(optimized, cluster(optimized, demands), demands)
    clock.stage("demand, clusters")
    problem = build_problem(program, options.outermost, options.facts, options.schedule_seconds)
    scheduled = _schedule(scheduler, problem, program)
    clock.stage("schedule")
    hosts = frozenset(each.name for each in program.clusters if each.host)
    say("schedule", lambda: "\n".join([*scheduled.notes, render(scheduled.tree)]))
    tree = sunk(scheduled.tree, problem, program.stops(), hosts)
    order = scoped(tree)
    found = places(order, hosts)
    tables, apart = clusters_with_tables(program, options.checks), frozenset[int]()
    storage = decide_storage(program, found, tables)
    if options.offload and (apart := kept_between(program, found, storage, options.offload == "all")):
        found = places(order, hosts, apart)
        storage = decide_storage(program, found, tables)
    built = build(program, order, found, storage, tables, options.checks, apart)
    loops, more = manager.run(built, LoopContext(), for_all_sizes())
    clock.stage("lowering")
    return Plan(
        optimized,
        program,
        problem,
        tree,
        found,
        loops,
        (*records, *more),
        tuple(each for record in records for each in record.decisions),
        tuple(clock.stages),
        scheduled.notes,
        options.facts,
        options.offload,
        storage,
        frozenset(tables),
    )


def _with_checks(graph: Graph, options: PlanOptions) -> Graph:
    """Where indices out of range are clamped, no read of data can fail: passes may make what nobody asks for."""
    if options.checks:
        graph = with_names_of_data(graph)
    if options.checks and not options.speculates:
        return unchecked_past_stops(graph, options.facts)
    attrs = {"speculated": True} if options.checks else {"checked": False}
    changed = {
        node.id: replace(node, attrs=tuple(sorted({**node.attributes, **attrs}.items())))
        for node in graph.nodes.values()
        if node.attr("checked")
    }
    return replace(graph, nodes={**graph.nodes, **changed})


def _schedule(scheduler: Scheduler, problem: SchedulingProblem, program: Clustered) -> Scheduled:
    """A scheduler knows no source: where it finds no order, the first of the statements in the way says the line."""
    who = f"the scheduler {type(scheduler).__name__!r}"
    try:
        found = scheduler.schedule(problem)
    except UnsupportedError as error:
        named = (each for each in program.clusters if each.name in error.statements)
        nodes = (program.graph.nodes[id] for each in named for id in each.nodes)
        error.location = error.location or next((node.location for node in nodes if node.location), None)
        stops, clusters = program.graph.stops.values(), program.cluster_of()
        ending = ", ".join(each.name for each in stops if clusters[each.edge.node].name in error.statements)
        if ending:
            error.add_note(f"The run may end early along {ending}: that dim must be the outermost ordered one.")
        raise
    except TempoError:
        raise
    except Exception as error:
        failure = InternalError(f"{who} failed: {type(error).__name__}: {error}")
        failure.add_note(f"on the problem\n{problem}")
        raise failure from error
    scheduled = found if isinstance(found, Scheduled) else Scheduled(found)
    if not isinstance(scheduled.tree, ScheduleTree):
        raise InternalError(f"{who} returned a {type(scheduled.tree).__name__}, which is no schedule tree")
    return scheduled


def verifies() -> bool:
    """Whether every schedule is to be verified when sizes are known (TEMPO_VERIFY=1)."""
    return os.environ.get(VERIFY_VARIABLE, "0") not in {"", "0"}


class _Clock:
    def __init__(self) -> None:
        self.stages: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def stage(self, name: str) -> None:
        now = time.perf_counter()
        self.stages.append((name, now - self._last))
        self._last = now
