"""The pass that turns dims into axes, as the mapping says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempo.costs.model import EAGER, Costs
from tempo.passes.manager import Decided, Forced, PassContext
from tempo.passes.rewrite.dce import without_dead_nodes
from tempo.passes.vectorize.search import MappingSearch
from tempo.sdg.graph import Graph
from tempo.sdg.stops import stops_of
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class Lift:
    """Lifts the dims of the nodes that the mapping says (`tempo.passes.vectorize.search`), but for those in `exclude`.

    A dim along which the run may end early stays a loop. `mapping`: how the user has dims run. `composites`: what the
    backend takes whole; `costs`: what things cost there.

    The lifted dims lie in front of a value's axes, in canonical order.
    """

    exclude: frozenset[Symbol] = frozenset()
    mapping: Forced = None
    composites: tuple[str, ...] = ()
    costs: Costs = EAGER
    name: ClassVar[str] = "lift"

    def apply(self, graph: Graph, context: PassContext) -> Decided[Graph]:
        graph = without_dead_nodes(graph)
        search = MappingSearch(context, self.mapping, self.composites, self.costs)
        kept = self.exclude | stops_of(graph).keys()
        for dim in reversed(graph.dims):
            if dim.symbol in kept:
                continue
            graph = search.mapped(graph, dim)
        return Decided(graph, tuple(search.decisions))
