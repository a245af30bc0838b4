"""Where a point of the program of stages lies in the program as it was, and what both modules that rewrite it share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tempo.passes.manager import PassContext
from tempo.passes.pipelining.stages import Members, PipelineStages
from tempo.sdg.graph import Edge, Graph, Point, Slice, identity_map
from tempo.sdg.rewriter import Rewriter
from tempo.symbolic import Dim, Expr, Symbol, const, var

Index = Point | Slice


@dataclass(frozen=True)
class Away:
    """A read of a member so many microbatches and layers from the reader's own."""

    edge: Edge
    microbatches: int
    layers: int

    def goes(self, way: int) -> bool:
        """Whether it reads what is before the reader in both, or (`way` < 0) behind it."""
        return self.layers * way <= 0 and self.microbatches * way <= 0


@dataclass
class Coordinates:
    """`layers`, `microbatches`: how many there are, the first a multiple of the stages."""

    graph: Graph
    stages: PipelineStages
    members: Members
    layers: int
    microbatches: int
    context: PassContext
    copies: dict[int, int] = field(default_factory=dict)
    """By member, what it is in the program of stages."""
    handed_on: dict[Away, Edge] = field(default_factory=dict)
    """Reads that go from stage to stage, in that program."""

    @property
    def waves(self) -> int:
        return self.microbatches + self.stages.count - 1

    @property
    def run(self) -> int:
        """How many layers a stage has."""
        return self.layers // self.stages.count

    @cached_property
    def new(self) -> Rewriter:
        stages, dims = self.stages, list[Dim]()
        for dim in self.graph.dims:
            if dim.symbol == stages.microbatches:
                dims.append(Dim(stages.wave, const(self.waves)))
            if dim.symbol == stages.dim:
                dims += [Dim(stages.stage, const(stages.count)), Dim(stages.layer, const(self.run))]
            dims.append(dim)
        return Rewriter(replace(self.graph, dims=tuple(dims)))

    @cached_property
    def within(self) -> dict[Symbol, Expr]:
        """Layer and microbatch at a point of the program of stages."""
        stages = self.stages
        stage, layer = var(stages.stage), var(stages.layer)
        return {stages.dim: self.run * stage + layer, stages.microbatches: var(stages.wave) - stage}

    def placed(self, value: Any) -> Any:
        """An expression, or a condition, at a point of the program of stages."""
        return value.substitute(self.within)

    def shown(self, edge: Edge) -> dict[Symbol, Index]:
        return dict(zip(self.new.nodes[edge.node].domain, edge.map, strict=True))

    def away(self, edge: Edge) -> Away | None:
        """None where it is not a number of layers and microbatches away."""
        shown = self.shown(edge)
        layers, microbatches = (distance(shown[symbol], symbol) for symbol in self.stages.dims)
        return None if layers is None or microbatches is None else Away(edge, microbatches, layers)

    def moved(self, edge: Edge, at: Mapping[Symbol, Index] | None = None) -> Edge:
        """The read of a member as one of its copy: at the reader's own point of the program of stages, or as `at`
        says."""
        old, copy = self.shown(edge), self.new.nodes[self.copies[edge.node]]
        own = dict(zip(copy.domain, identity_map(copy.domain)))
        map = tuple({**own, **old, **(at or {})}[each] for each in copy.domain)
        return replace(edge, node=copy.id, map=map)

    def of_all_stages(self, edge: Edge, wave: Index, layer: Index) -> tuple[Edge, int]:
        """What all stages have made, and which axis is theirs."""
        stages = self.stages
        whole = Slice(const(0), const(stages.count))
        seen = self.moved(edge, {stages.wave: wave, stages.layer: layer, stages.stage: whole})
        return seen, self.axis_of(seen, stages.stage)

    def axis_of(self, edge: Edge, symbol: Symbol) -> int:
        """Which axis of what is seen is that of a dim of which several points are."""
        before = edge.map[: self.new.nodes[edge.node].domain.index(symbol)]
        return sum(isinstance(index, Slice) for index in before)

    def number(self, layer: Index) -> int | None:
        """That of the layer, where a read names one."""
        if isinstance(layer, Slice) or layer.index.dims():
            return None
        low, high = self.context.over(self.graph, ()).constant_bounds(layer.index)
        return low if low == high else None


def distance(index: Index, symbol: Symbol) -> int | None:
    """How far it is from the reader's own point; None where that is no number."""
    away = index.index - var(symbol) if isinstance(index, Point) else var(symbol)
    return away.as_int() if away.is_const else None


def behind(index: Index, step: int) -> Index:
    """The place, or where a row begins, so many points on."""
    return Point(index.index + step) if isinstance(index, Point) else replace(index, start=index.start + step)
