"""Which nodes go through the stages of a pipeline: the recurrences along its dim, and what is made for them alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tempo.analysis.dependence.acyclic import bodies
from tempo.analysis.dependence.levels import Direction, Level
from tempo.analysis.reports import tensor_name
from tempo.errors import UnsupportedError
from tempo.passes.manager import PassContext
from tempo.sdg.builder import fresh_dim
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class Stages:
    """The points of `dim`, the layers, in `count` equal runs, one to a stage; the points of `microbatches` go through
    them one after the other. `wave`, `stage` and `layer` are the dims of the program of stages: a stage makes its
    layers of one microbatch in each wave."""

    dim: Symbol
    microbatches: Symbol
    count: int
    wave: Symbol
    stage: Symbol
    layer: Symbol

    @staticmethod
    def of(graph: Graph, dim: Symbol, microbatches: Symbol, count: int) -> Stages:
        taken = {each.symbol.name for each in graph.dims}
        names = (f"{microbatches.name}_wave", f"{dim.name}_stage", f"{dim.name}_layer")
        wave, stage, layer = (fresh_dim(name, taken) for name in names)
        return Stages(dim, microbatches, count, wave, stage, layer)

    @property
    def dims(self) -> tuple[Symbol, Symbol]:
        return self.dim, self.microbatches


@dataclass(frozen=True)
class Recurrence:
    """One that goes through the stages: `number` tells it from others, `name` and `node` tell it to the user."""

    number: int
    direction: Direction
    node: Node

    @property
    def way(self) -> int:
        """By how many stages, and waves, it goes on."""
        return 1 if self.direction == "forward" else -1

    def refused(self, why: str, node: Node | None = None) -> UnsupportedError:
        at = self.node if node is None or node.location is None else node
        return UnsupportedError(f"{tensor_name(self.node)} {why}", location=at.location, feature="pipeline")


Members = Mapping[int, Recurrence]
"""By node that goes through the stages, with which recurrence."""


def members(graph: Graph, stages: Stages, context: PassContext) -> Members:
    """Raises `UnsupportedError`, at the line of what is carried along the dim and cannot go through stages."""
    found: dict[int, Recurrence] = {}
    for recurrence, nodes in _recurrences(graph, stages, context):
        for node in nodes:
            _check(recurrence, node, graph, stages)
            found[node.id] = recurrence
    given_out = {output.edge.node for output in graph.outputs}
    for node in reversed(list(graph.operands_first())):
        if node.id not in found and node.id not in given_out and _may_join(node, stages):
            readers = {found.get(reader) for reader, _ in graph.consumers[node.id]}
            reader = readers.pop() if len(readers) == 1 else None
            if reader is not None:
                found[node.id] = reader
    return found


def _recurrences(graph: Graph, stages: Stages, context: PassContext) -> Iterator[tuple[Recurrence, list[Node]]]:
    whole = bodies(graph, context.demand(graph), context.facts)[-1]
    for number, (unit, direction) in enumerate(_along(whole.units, stages)):
        nodes = [graph.nodes[id] for id in unit.names]
        carried = next((node for node in nodes if node.is_merge and node.name), nodes[0])
        yield Recurrence(number, direction, carried), nodes


def _along(units: Iterable[Level[int]], stages: Stages) -> Iterator[tuple[Level[int], Direction]]:
    """What is carried along the dim, with all that is carried with it along microbatches."""
    for unit in units:
        inner = [] if unit.loop is None or unit.loop.dim == stages.dim else list(_along(unit.inner, stages))
        if unit.loop is not None and unit.loop.dim == stages.dim:
            yield unit, unit.loop.direction
        elif unit.loop is not None and unit.loop.dim == stages.microbatches and inner:
            yield unit, inner[0][1]
        else:
            yield from inner


def _check(recurrence: Recurrence, node: Node, graph: Graph, stages: Stages) -> None:
    """Raises for what does not go through stages."""
    along, microbatches = stages.dim.name, stages.microbatches.name
    if stages.microbatches not in node.domain:
        raise recurrence.refused(f"is carried along {along} and does not vary along {microbatches}: stages would wait")
    if stages.dim not in node.domain:
        raise recurrence.refused(
            f"waits at one point of {microbatches} for what all of {along} made of another: stages would wait", node
        )
    if ending := graph.stops.keys() & set(node.domain):
        names = ", ".join(sorted(each.name for each in ending))
        raise recurrence.refused(f"is carried along {along}, and the run may end early along {names}")
    if node.is_call:
        raise recurrence.refused(f"calls {node.name} between stages", node)
    if node.attr("checked"):
        raise recurrence.refused("looks up what may be out of range, between stages", node)
    if any({*stages.dims} & size.dims() for type in node.results for size in type.shape):
        raise recurrence.refused(f"has a shape that varies along {along} or {microbatches}", node)


def _may_join(node: Node, stages: Stages) -> bool:
    """Whether a node may be made where it is needed; draws are numbered by the points that there are."""
    varies = any(size.dims() for size in node.shape)
    is_made = not (node.is_nominal or node.is_draw or node.attr("checked") or varies)
    return is_made and {*stages.dims} <= set(node.domain)
