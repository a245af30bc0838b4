"""The pass: strips of the dims that the user names, where one loop keeps what a later one reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tempo.analysis.dependence.acyclic import bodies
from tempo.errors import UnsupportedError
from tempo.passes.manager import Decided, PassContext
from tempo.passes.recompute.loops import Loops, bodies_with, loops_of
from tempo.passes.recompute.strips import Strips
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class Recompute:
    """`recompute`: by name of a dim, how many points a strip has; of several numbers each cuts the strips of the one
    before. `exclude`: dims that are stepped through."""

    recompute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    exclude: frozenset[Symbol] = frozenset()
    name: ClassVar[str] = "recompute"

    def apply(self, graph: Graph, context: PassContext) -> Decided[Graph]:
        decisions: list[str] = []
        for dim in graph.dims:
            for size in self.recompute.get(dim.symbol.name, ()):
                graph, said = self.in_strips(graph, dim.symbol, size, context)
                decisions += said
        return Decided(graph, tuple(decisions))

    def in_strips(self, graph: Graph, dim: Symbol, size: int, context: PassContext) -> tuple[Graph, list[str]]:
        if dim in graph.stops or dim in self.exclude:
            why = "along which the run may end early" if dim in graph.stops else "whose points come one by one"
            raise UnsupportedError(f"recompute= names {dim.name!r}, {why}", hint="leave it out of recompute=")
        said: list[str] = []
        while (loops := next_loops(graph, dim, context)) is not None:
            graph = Strips(graph, loops, size, context.facts).graph()
            ways = ", then ".join(loops.directions)
            said.append(f"{dim.name}: strips of {size}, computed again for later loops ({ways})")
        return graph, said or [f"{dim.name}: no loop keeps anything for a later one, so nothing is computed again"]


def next_loops(graph: Graph, dim: Symbol, context: PassContext) -> Loops | None:
    """Loops over the dim that stand behind one another, where there are several. None is left where they are cut."""
    for body in bodies_with(bodies(graph, context.demand(graph), context.facts), dim):
        loops = loops_of(graph, body, dim)
        if len(loops.directions) > 1:
            check_calls(graph, loops)
            return loops
    return None


def check_calls(graph: Graph, loops: Loops) -> None:
    for node in (graph.nodes[id] for id in loops.of if graph.nodes[id].is_call):
        what = "a backend call" if node.is_backend_call else "a call of the host"
        raise UnsupportedError(
            f"recompute= names {loops.dim.name!r}, and {node.name or node.op} is {what} at each of its points",
            location=node.location,
            hint="what calls cannot be computed again",
        )
