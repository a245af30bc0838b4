"""Recurrences along rows with lengths of their own (`tp.dim("t", lengths=n)`), each point of which reads the one before
it in its row, or the one behind: the points that there are, tile by tile, as in a packed sequence.

What is computed of a point for the recurrence alone, or of it alone, belongs to it: a projection of its input, say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.reports import tensor_name
from tempo.analysis.rows import Shown, is_known, is_ragged, row_ends, with_losses
from tempo.errors import UnsupportedError
from tempo.passes.wavefront.components import Interval, Wavefront
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.components import reached
from tempo.sdg.graph import Edge, Graph, Node, Output, Point
from tempo.symbolic import Context, Symbol, const, var

_OTHERS = "points read others than the one before in their row, or the one behind"


def row_wavefronts(declared: Graph, graph: Graph) -> Iterator[tuple[Symbol, Wavefront | str]]:
    """By dim along which rows have lengths of their own: its recurrences, or why they stay as they are. `graph` is what
    `declared` is with gradients expanded."""
    asked, taken = demand(graph) if declared.ragged else {}, set[int]()
    for end in declared.ragged.values():
        cycles = [ids for ids in map(frozenset, declared.components) if _is_cycle(declared, end, ids)]
        if cycles and not is_known(declared, end):
            yield end.along, "lengths are made while it runs"
            continue
        for step in (-1, 1):
            mine = [ids for ids in cycles if _steps(declared, end, ids) == {step}]
            if mine:
                found = _wavefront(declared, asked, end, step, mine, cycles, taken)
                taken |= set() if isinstance(found, str) else found.nodes.keys()
                yield end.along, found
        if any(_steps(declared, end, ids) not in ({-1}, {1}) for ids in cycles):
            yield end.along, _OTHERS


def _is_cycle(graph: Graph, end: Output, ids: Collection[int]) -> bool:
    is_one = len(ids) > 1 or any(id in graph.producers(id) for id in ids)
    return is_one and all(is_ragged(end, graph.nodes[id].domain) for id in ids)


def _steps(graph: Graph, end: Output, ids: Collection[int]) -> set[int | None]:
    """By how much points read others of their row along it, None for any other read."""
    reads = (edge for id in ids for _, edge in graph.nodes[id].reads() if edge.node in ids)
    return {step for edge in reads if (step := _step(graph, end, edge)) != 0}


def _step(graph: Graph, end: Output, edge: Edge) -> int | None:
    """By how much it is away from the reader's point along the row; None where that is no number."""
    shift = 0
    for symbol, index in zip(graph.nodes[edge.node].domain, edge.map):
        if index == Point(var(symbol)):
            continue
        if not isinstance(index, Point) or symbol != end.along or not (away := index.index - var(symbol)).is_const:
            return None
        shift = away.as_int()
    return shift


def _wavefront(
    graph: Graph,
    asked: Mapping[int, Demand],
    end: Output,
    step: int,
    mine: Collection[frozenset[int]],
    cycles: Collection[frozenset[int]],
    taken: Collection[int],
) -> Wavefront | str:
    """`taken`: the nodes of other recurrences, which are in tiles of their own."""
    others = {*taken, *(id for ids in cycles if ids not in mine for id in ids)}
    rows = _Rows(graph, asked, end, step, frozenset(id for ids in mine for id in ids), others)
    try:
        return rows.wavefront()
    except UnsupportedError as error:
        return error.message


@dataclass(frozen=True)
class _Rows:
    graph: Graph
    demands: Mapping[int, Demand]
    end: Output
    step: int
    cycle: frozenset[int]
    others: set[int]

    def wavefront(self) -> Wavefront:
        """Raises where there is none."""
        graph, dim = self.graph, self.graph.dim(self.end.along)
        if len(self.end.rows) != 1:
            raise UnsupportedError("rows are the points of no dim, or of several")
        for id in self.cycle:
            if not self.is_plain(graph.nodes[id]):
                raise UnsupportedError(f"{graph.nodes[id].name or graph.nodes[id].op} is in it")
            if self.ends_again(graph.nodes[id]):
                raise UnsupportedError(f"{tensor_name(graph.nodes[id])} has rows along other dims, too")
        lengths = reached([shown.end.edge.node for shown in self._rows_of_points], graph.producers)
        if not self.cycle.isdisjoint(lengths):
            raise UnsupportedError("lengths of rows that are its points are made of it")
        reading = (const(1), dim.size) if self.step < 0 else (const(0), dim.size - 1)
        wave = Wavefront(dim, {id: self.points(id) for id in self.around()}, reading, self.step > 0, (), self.end.rows)
        self.check_reads(wave)
        return wave

    def points(self, id: int) -> Interval:
        """From which point to which along a row it is asked for."""
        found = self.demands.get(id)
        domain = self.graph.domain_dims(self.graph.nodes[id])
        if found is None or not found.exact:
            raise UnsupportedError("it is not proven at which points it is asked for")
        for dim in domain:
            if dim.symbol in self.end.rows and found.box.interval(dim.symbol) != (const(0), dim.size):
                raise UnsupportedError("it is not asked for in every row")
        return found.box.interval(self.end.along)

    def check_reads(self, wave: Wavefront) -> None:
        """Raises where points that read none would."""
        low, high = wave.reading
        for id in self.cycle:
            node, (first, last) = self.graph.nodes[id], wave.nodes[id]
            for condition, edge in node.guarded_reads():
                if edge.node not in wave.nodes or (step := _step(self.graph, self.end, edge)) == 0:
                    continue
                if step != self.step:  # of what is made of its points
                    raise UnsupportedError(_OTHERS)
                at = var(self.end.along)
                here = Context.of(self.graph.dims, at.ge(first), at.lt(last), condition)
                if not here.implies(at.ge(low) & at.lt(high)):
                    raise UnsupportedError("it is not proven that all but the first, or the last, points read others")

    def around(self) -> set[int]:
        """The cycle, and what is computed of each point for it alone, or of what it makes."""
        graph, found, reachable = self.graph, set(self.cycle), with_losses(self.graph).reachable()
        order = [node.id for node in graph.operands_first()]
        asked = {output.edge.node for output in graph.outputs}
        for node in graph.nodes.values():
            if node.op == "gradient":
                asked |= {node.attr("loss").node, node.attr("wrt")[0]}
        for id in reversed(order):
            readers = [(reader, edge) for reader, edge in graph.consumers[id] if reader in reachable]
            is_own = all(reader in found and _step(graph, self.end, edge) == 0 for reader, edge in readers)
            if readers and is_own and id not in asked and self.may_join(graph.nodes[id]):
                found.add(id)
        for id in order:
            reads = [edge.node for edge in graph.nodes[id].operands]
            if not found.isdisjoint(reads) and id not in found and self.may_join(graph.nodes[id]):
                found.add(id)
        return found

    def may_join(self, node: Node) -> bool:
        """Whether it is an operator on what there is at its own point."""
        graph = self.graph
        if node.id in self.others or node.is_nominal or not is_ragged(self.end, node.domain) or not self.is_plain(node):
            return False
        if self.ends_again(node):
            return False
        demanded = self.demands.get(node.id)
        if demanded is None or not demanded.exact:
            return False
        ragged = [edge for edge in node.operands if is_ragged(self.end, graph.nodes[edge.node].domain)]
        return all(_step(graph, self.end, edge) == 0 and edge.node not in self.others for edge in ragged)

    def ends_again(self, node: Node) -> bool:
        """Whether its rows end along other dims, too: where they do is not known of a lane, so nothing masks them."""
        others = (end for end in row_ends(self.graph) if end is not self.end and {*end.rows} & {*self.end.domain})
        return any(is_ragged(end, node.domain) for end in others)

    def is_plain(self, node: Node) -> bool:
        """Whether it is the same at every point."""
        varying = (*(size for type in node.results for size in type.shape), *attribute_exprs(node))
        along = {*self.end.domain}
        return not (
            node.is_call or node.attr("checked") or node.op in ("gradient", "custom_gradient", "cotangent")
        ) and not (any(along & each.dims() for each in varying) or self.shows_rows_of_points(node))

    def shows_rows_of_points(self, node: Node) -> bool:
        """Whether it reads several points of rows that are points of these: in a tile nothing says where those end."""
        return any(shown.read(edge) for shown in self._rows_of_points for _, edge in node.reads())

    @cached_property
    def _rows_of_points(self) -> list[Shown]:
        graph = with_losses(self.graph)
        return [Shown(graph, end) for end in graph.ragged.values() if self.end.along in end.rows]
