"""`tp.stages`: what `tp.compile` makes of a program, one form after the other, each to look at.

graph -> optimized -> schedule -> loops -> executable
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from tempo.compiler.plan import Plan
from tempo.costs import EAGER, UNKNOWN, Cost, Costs, LikelySizes, cost_point_by_point
from tempo.loop_ir.analysis.work import loops_cost
from tempo.loop_ir.ir import LoopProgram
from tempo.runtime.engine import CompiledEngine, Engine, planning
from tempo.runtime.executable import Executable
from tempo.runtime.explain import Explained, schedule_text, sizes_text
from tempo.runtime.memory import buffers_of
from tempo.schedule.tree import ScheduleTree
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

P = TypeVar("P")


@dataclass(frozen=True)
class Stage(Generic[P]):
    """One form of a program; `print` shows it.

    `cost` is what the model of costs foretells for a run, in operations, bytes moved, launches of operators and
    seconds, at `sizes`; those that nobody has given are `guessed`, as 32. `memory` is in bytes: of graphs that of all
    tensors at all of their points, which is what a program holds that keeps everything; from the schedule on that of
    all buffers, each whole. What lives at once of them the executable knows (`run.memory`).
    """

    name: str
    program: P
    cost: Cost
    memory: int
    sizes: Mapping[Symbol, int]
    guessed: bool
    _text: Callable[[], str] = field(repr=False, compare=False)

    def __str__(self) -> str:
        at = sizes_text(self.sizes) + (", of which some are guessed" if self.guessed else "")
        return f"# {self.name}{at}\n# cost {self.cost}\n# memory {self.memory:,} B\n{self._text()}"


class Stages:
    """The forms of a program on its way to what is run. Each is made when it is asked for, and kept."""

    def __init__(self, made: Executable, engine: Engine, ready: Callable[[], Executable]) -> None:
        """`made`: the executable, of which nothing is compiled yet; `ready()` compiles it."""
        self._made, self._engine, self._ready = made, engine, ready
        self._known = made.last_sizes

    def __repr__(self) -> str:
        return f"Stages({self._made!r})"

    @cached_property
    def graph(self) -> Stage[Graph]:
        """The symbolic dependence graph as it was declared, with gradients written out."""
        rates = self._engine.backend.costs if isinstance(self._engine, CompiledEngine) else EAGER
        return self._of_graph("graph", self._made.graph, rates)

    @cached_property
    def optimized(self) -> Stage[Graph]:
        """The graph after all passes: dims that need no loop are axes."""
        return self._of_graph("optimized graph", self._plan.graph, self._planning.backend.costs)

    @cached_property
    def schedule(self) -> Stage[ScheduleTree]:
        """The order of all statements, as loops."""
        found = self._explained
        memory = self._bytes(self._plan.loops)
        return Stage("schedule", self._plan.tree, self.optimized.cost, memory, *self._at, lambda: schedule_text(found))

    @cached_property
    def loops(self) -> Stage[LoopProgram]:
        """LoopIR: loops, buffers and operators, at the sizes that shapes are made of where these are known."""
        known = self._known
        program = self._plan.loops if known is None else self._planning.loops(self._plan, known).loops
        cost = loops_cost(program, self._planning.backend.costs, self._sizes)
        return Stage("loops", program, cost, self._bytes(program), *self._at, lambda: str(program))

    @cached_property
    def executable(self) -> Executable:
        """What `tp.compile` returns."""
        return self._ready()

    @property
    def _planning(self) -> CompiledEngine:
        return planning(self._engine, "plans nothing: its stages are graph and executable")

    @cached_property
    def _explained(self) -> Explained:
        return Explained.of(self._planning, self._known)

    @property
    def _plan(self) -> Plan:
        return self._explained.plan

    @property
    def _at(self) -> tuple[Mapping[Symbol, int], bool]:
        return self._sizes, self._known is None

    @cached_property
    def _sizes(self) -> Mapping[Symbol, int]:
        if self._known is not None:
            return self._known
        symbols = {symbol for dim in self._made.graph.dims for symbol in dim.size.sizes()}
        given = self._made.given_sizes
        return self._engine.sizes({each: given[each] if each in given else self._guess(each) for each in symbols})

    def _guess(self, size: Symbol) -> int:
        """Where there are buckets, one that is in one of them."""
        engine = self._engine
        bucket = engine.compiler.buckets.of.get(size.of_kind("dim")) if isinstance(engine, CompiledEngine) else None
        return min(UNKNOWN, bucket[-1]) if isinstance(bucket, tuple) else UNKNOWN

    def _of_graph(self, name: str, graph: Graph, rates: Costs) -> Stage[Graph]:
        likely = LikelySizes(self._sizes)
        memory = sum(likely.points(graph, graph.nodes[id]) * likely.bytes(graph.nodes[id]) for id in graph.reachable())
        return Stage(name, graph, cost_point_by_point(graph, rates, likely), memory, *self._at, lambda: str(graph))

    def _bytes(self, program: LoopProgram) -> int:
        return sum(each.bytes for each in buffers_of(program, self._sizes) if each.storage != "register")
