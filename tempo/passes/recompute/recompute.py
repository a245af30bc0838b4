"""The pass: strips of the dims that the user names, where one loop keeps what a later one reads.

Where there is a host pool, dims that are not named are cut, too: what is kept of a strip goes there as a whole, and
sums over the dim are added up strip by strip, so nobody needs all of it at once. Nothing is computed again then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tempo.analysis.dependence.acyclic import bodies
from tempo.errors import UnsupportedError
from tempo.passes.manager import Decided, PassContext
from tempo.passes.recompute.folds import pointwise
from tempo.passes.recompute.loops import Loops, bodies_with, loops_of
from tempo.passes.recompute.strips import Strips
from tempo.passes.rewrite.driver import rewrite_graph
from tempo.passes.simplify.simplify import canonical_merge
from tempo.sdg.graph import Graph
from tempo.symbolic import Dim, Symbol

STRIPS = 32
"""Into how many a dim is cut of which a host pool keeps points."""


@dataclass(frozen=True)
class Recompute:
    """`recompute`: by name of a dim, how many points a strip has; of several numbers each cuts the strips of the one
    before. `exclude`: dims that are stepped through. `pooled`: there is a pool on the host."""

    recompute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pooled: bool = False
    exclude: frozenset[Symbol] = frozenset()
    name: ClassVar[str] = "recompute"

    def apply(self, graph: Graph, context: PassContext) -> Decided[Graph]:
        decisions: list[str] = []
        for dim in graph.dims:
            cut = [dim.symbol]
            for size in self.recompute.get(dim.symbol.name, ()):
                self.check(graph, dim.symbol)
                graph, cut, said = in_strips(graph, cut, size, context)
                decisions += said
        for dim in graph.dims if self.pooled else ():
            graph, said = self.kept(graph, dim, context)
            decisions += said
        return Decided(graph, tuple(decisions))

    def kept(self, graph: Graph, dim: Dim, context: PassContext) -> tuple[Graph, list[str]]:
        """The graph with strips of a dim of which a pool may keep points, if it can be cut."""
        least, most = context.over(graph, ()).constant_bounds(dim.size)
        if dim.sequential or dim.symbol in graph.stops or dim.symbol in self.exclude or least is None or least != most:
            return graph, []
        size = -(-least // STRIPS)
        try:
            found, _, said = in_strips(graph, [dim.symbol], size, context, again=False)
        except UnsupportedError:
            return graph, []
        return found, said if found is not graph else []

    def check(self, graph: Graph, dim: Symbol) -> None:
        if dim in graph.stops or dim in self.exclude:
            stop = graph.stops.get(dim)
            why = "whose points come one by one" if stop is None else "along which the run may end early"
            raise UnsupportedError(
                f"recompute= names {dim.name!r}, {why}",
                location=None if stop is None else stop.location,
                hint="leave it out of recompute=",
            )


def in_strips(
    graph: Graph, dims: list[Symbol], size: int, context: PassContext, again: bool = True
) -> tuple[Graph, list[Symbol], list[str]]:
    """The graph with strips of the dims, the dims of the points within them, and what was done."""
    inner, said = list[Symbol](), list[str]()
    for dim in dims:
        before = len(said)
        while (loops := next_loops(points := pointwise(graph, dim), dim, context)) is not None:
            strips = Strips(points, loops, size, context, again)
            graph = rewrite_graph(strips.graph(), context, merges=canonical_merge)
            inner.append(strips.inner)
            ways = ", then ".join(loops.directions)
            how = "computed again" if again else "kept in the pool"
            said.append(f"{dim.name}: strips of {size}, {how} for later loops ({ways})")
        if len(said) == before:
            said.append(f"{dim.name}: no loop keeps anything for a later one, so nothing is computed again")
    return graph, inner, said


def next_loops(graph: Graph, dim: Symbol, context: PassContext) -> Loops | None:
    """Loops over the dim that stand behind one another, where there are several. None is left where they are cut."""
    if not any(dim in node.domain for node in graph.nodes.values()):
        return None
    for body in bodies_with(bodies(graph, context.demand(graph), context.facts), dim):
        loops = loops_of(graph, body, dim)
        if len(loops.directions) > 1:
            return loops
    return None
