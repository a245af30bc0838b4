"""The pass: what is carried along the dim of a pipeline goes through stages, microbatch after microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempo.errors import InputError, SizeError
from tempo.passes.manager import Decided, PassContext
from tempo.passes.pipelining.coordinates import Coordinates
from tempo.passes.pipelining.outside import Outside
from tempo.passes.pipelining.retiming import Retiming
from tempo.passes.pipelining.skewing import Skewing
from tempo.passes.pipelining.stages import PipelineStages, members
from tempo.sdg.graph import Graph
from tempo.sdg.rewriter import with_sizes
from tempo.symbolic import Symbol, const, var


@dataclass(frozen=True)
class Pipelining:
    """`stages`: those of the pipeline, where there is one. It is planned for each number of layers and microbatches."""

    stages: PipelineStages | None = None
    name: ClassVar[str] = "pipelining"
    needed: ClassVar[str] = "a pipeline"

    def apply(self, graph: Graph, context: PassContext) -> Graph | Decided[Graph]:
        stages = self.stages
        if stages is None:
            return graph
        dims = [graph.dim(symbol) for symbol in stages.dims]
        sizes = {size: const(_number(size, graph, context)) for dim in dims for size in dim.size.sizes()}
        graph = with_sizes(graph, sizes)
        layers, microbatches = (graph.dim(symbol).size.as_int() for symbol in stages.dims)
        found = members(graph, stages, context)
        if not found:
            raise InputError(
                f"pipeline= is along {stages.dim.name}, along which nothing is carried",
                hint=f'shard={{"{stages.dim.name}": ...}} gives its points to many devices',
            )
        graph, found = Retiming(graph, stages, found).apply()
        coordinates = Coordinates(graph, stages, found, layers, microbatches, context)
        skewed = Skewing(coordinates, Outside(coordinates)).skewed()
        return Decided(skewed, (_said(coordinates),))


def _number(size: Symbol, graph: Graph, context: PassContext) -> int:
    least, most = context.over(graph, ()).constant_bounds(var(size))
    if least is None or least != most:
        raise SizeError(
            f"a pipeline is planned for each {size}, and it is not known yet",
            hint="give sizes= to tp.compile, or run the program",
        )
    return least


def _said(coordinates: Coordinates) -> str:
    stages, waves = coordinates.stages, coordinates.waves
    return (
        f"{stages.dim.name}: pipeline of {stages.count} stages of {coordinates.run}; {coordinates.microbatches} points "
        f"of {stages.microbatches.name} in {waves} waves, each way; bubble {stages.count - 1}/{waves}"
    )
