"""Which nodes go through the stages of a pipeline: the recurrences along its dim, and what is made for them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tempo.analysis.dependence.acyclic import bodies
from tempo.analysis.dependence.levels import Direction, Level
from tempo.analysis.reports import tensor_name
from tempo.errors import UnsupportedError
from tempo.passes.manager import PassContext
from tempo.sdg.builder import fresh_dim
from tempo.sdg.components import reached
from tempo.sdg.graph import Graph, Node, Point, index_symbols
from tempo.symbolic import Symbol, var


@dataclass(frozen=True)
class PipelineStages:
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
    def of(graph: Graph, dim: Symbol, microbatches: Symbol, count: int) -> PipelineStages:
        taken = {each.symbol.name for each in graph.dims}
        names = (f"{microbatches.name}_wave", f"{dim.name}_stage", f"{dim.name}_layer")
        wave, stage, layer = (fresh_dim(name, taken) for name in names)
        return PipelineStages(dim, microbatches, count, wave, stage, layer)

    @property
    def dims(self) -> tuple[Symbol, Symbol]:
        return self.dim, self.microbatches


@dataclass(frozen=True)
class Recurrence:
    """One that goes through the stages: `number` tells it from others, `node` tells it to the user."""

    number: int
    direction: Direction = field(compare=False)
    node: Node = field(compare=False)

    @property
    def way(self) -> int:
        """By how many stages, and waves, it goes on."""
        return 1 if self.direction == "forward" else -1

    def refused(self, why: str, node: Node | None = None) -> UnsupportedError:
        at = self.node if node is None or node.location is None else node
        return UnsupportedError(f"{tensor_name(self.node)} {why}", location=at.location, feature="pipeline")


Members = Mapping[int, Recurrence]
"""By node that goes through the stages, with which recurrence."""


def members(graph: Graph, stages: PipelineStages, context: PassContext) -> Members:
    """Raises `UnsupportedError`, at the line of what is carried along the dim and cannot go through stages."""
    found: dict[int, Recurrence] = {}
    for recurrence, nodes in _recurrences(graph, stages, context):
        for node in nodes:
            _check(recurrence, node, graph, stages)
            found[node.id] = recurrence
    _add_joining(found, graph, stages)
    while between := _between(found, graph, stages):
        for id, recurrence in between.items():
            _check(recurrence, graph.nodes[id], graph, stages)
        found |= between
        _add_joining(found, graph, stages)
    return found


def _between(found: Members, graph: Graph, stages: PipelineStages) -> dict[int, Recurrence]:
    """What is made of one recurrence for it, along paths through points of the same dims."""
    others = {id for id, node in graph.nodes.items() if {*stages.dims} <= set(node.domain)} - found.keys()
    between: dict[int, Recurrence] = {}

    def readers(id: int) -> list[int]:
        return [reader for reader, _ in graph.consumers[id]]

    for recurrence in dict.fromkeys(found.values()):
        mine = {id for id, other in found.items() if other == recurrence}
        below, above = (_reached(mine, others | mine, way) for way in (readers, graph.producers))
        between |= dict.fromkeys((below & above) - mine, recurrence)
    return between


def _reached(mine: set[int], within: set[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    return reached(mine, lambda id: within.intersection(following(id)))


def _add_joining(found: dict[int, Recurrence], graph: Graph, stages: PipelineStages) -> None:
    """What is made for one recurrence alone; and what is read by one and reads others away from its own point: asked
    for by others, too, but it may not be there at all points."""
    given_out, pending = {output.edge.node for output in graph.outputs}, list(found)
    while pending:
        recurrence = found[pending[-1]]
        for id in graph.producers(pending.pop()):
            node = graph.nodes[id]
            if id in found or not _may_join(node, graph, stages):
                continue
            readers = (found.get(reader) for reader, _ in graph.consumers[id])
            alone = id not in given_out and all(each == recurrence for each in readers)
            if alone or _reads_away(node, graph, stages):
                found[id] = recurrence
                pending.append(id)


def _reads_away(node: Node, graph: Graph, stages: PipelineStages) -> bool:
    shown = (
        (symbol, index)
        for _, edge in node.reads()
        for symbol, index in zip(graph.nodes[edge.node].domain, edge.map, strict=True)
    )
    return any(index != Point(var(symbol)) and index_symbols(index) & {*stages.dims} for symbol, index in shown)


def _recurrences(graph: Graph, stages: PipelineStages, context: PassContext) -> Iterator[tuple[Recurrence, list[Node]]]:
    whole = bodies(graph, context.demand(graph), context.facts)[-1]
    for number, (unit, direction) in enumerate(_along(whole.units, graph, stages)):
        yield _recurrence(number, unit, direction, graph), [graph.nodes[id] for id in unit.names]


def _recurrence(number: int, unit: Level[int], direction: Direction, graph: Graph) -> Recurrence:
    nodes = [graph.nodes[id] for id in unit.names]
    return Recurrence(number, direction, next((node for node in nodes if node.is_merge and node.name), nodes[0]))


def _along(units: Iterable[Level[int]], graph: Graph, stages: PipelineStages) -> Iterator[tuple[Level[int], Direction]]:
    """What is carried along the dim, with all that is carried with it along microbatches."""
    for unit in units:
        if unit.stuck and any(stages.dim in graph.nodes[id].domain for id in unit.names):
            raise _recurrence(0, unit, "forward", graph).refused(
                f"is in a cycle that goes no one way along {stages.dim.name}, or any other dim"
            )
        inner = [] if unit.loop is None or unit.loop.dim == stages.dim else list(_along(unit.inner, graph, stages))
        if unit.loop is not None and unit.loop.dim == stages.dim:
            yield unit, unit.loop.direction
        elif unit.loop is not None and unit.loop.dim == stages.microbatches and inner:
            directions = {direction for _, direction in inner}
            if len(directions) > 1:
                raise _recurrence(0, unit, "forward", graph).refused(
                    f"is carried along {stages.microbatches.name} with what goes up along {stages.dim.name} and down"
                )
            yield unit, directions.pop()
        else:
            yield from inner


def _check(recurrence: Recurrence, node: Node, graph: Graph, stages: PipelineStages) -> None:
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
    shapes = (*node.results, *(graph.seen_type(edge) for _, edge in node.reads()))
    if any({*stages.dims} & size.dims() for type in shapes for size in type.shape):
        raise recurrence.refused(f"has, or reads, a shape that varies along {along} or {microbatches}", node)


def _may_join(node: Node, graph: Graph, stages: PipelineStages) -> bool:
    """Whether a node may be made where it is needed; draws are numbered by the points that there are."""
    if not {*stages.dims} <= set(node.domain) or node.is_draw or node.attr("checked"):
        return False
    if node.is_nominal and (not node.is_merge or node.attr("role") == "parameter"):
        return False
    shapes = (node.type, *(graph.seen_type(edge) for _, edge in node.reads()))
    return not any({*stages.dims} & size.dims() for type in shapes for size in type.shape)
