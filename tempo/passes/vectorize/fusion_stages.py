"""Stages: which loops over a dim can run as one, and so what need not be kept for all points of the dim.

Within a block, a loop over the dim can be one with an earlier loop when it goes in the same direction and reads of it
only points that are a bounded number of steps away. Otherwise it has to wait for the end of that loop: it is in a later
stage, and everything it reads of earlier stages is kept for all points. Candidates for lifting are put where they would
run if they were not lifted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tempo.analysis.dependence.acyclic import Need
from tempo.analysis.dependence.levels import Direction, LoopBody
from tempo.costs import LikelySizes
from tempo.passes.vectorize.legality import Span
from tempo.sdg.components import connected
from tempo.sdg.graph import Edge, Graph, Point
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class FusionStage:
    """When a loop runs; `direction` is None where it may go either way."""

    number: int
    direction: Direction | None


class FusionStages:
    """The stages of one block along one dim. Candidates that need no loop over the dim have none: they are *free*."""

    def __init__(
        self, graph: Graph, dim: Symbol, block: LoopBody[int, Need], spans: Mapping[int, Span], sizes: LikelySizes
    ) -> None:
        self.graph, self.dim, self.block, self.spans, self.sizes = graph, dim, block, spans, sizes
        made = (id for unit in block.units for id in unit.names if not graph.nodes[id].is_input)
        self.names = {id for id in made if dim in block.dims[id]}
        self.around = {
            id: unit.loop.dim for unit in block.units if unit.loop and unit.loop.dim != dim for id in unit.names
        }
        self.candidates = (spans.keys() & self.names) - self.around.keys()
        self.into: dict[int, list[Need]] = defaultdict(list)
        self.out_of: dict[int, list[Need]] = defaultdict(list)
        for link in block.links:
            if link.source in self.names and link.target in self.names:
                self.into[link.target].append(link)
                self.out_of[link.source].append(link)
        self.stage: dict[int, FusionStage] = {}
        for unit in block.units:
            self._place(unit.names, unit.loop.direction if unit.loop and unit.loop.dim == dim else None)
        self.shown = self._shown()

    def _place(self, names: tuple[int, ...], direction: Direction | None) -> None:
        members = [name for name in names if name in self.names]
        links = [link for name in members for link in self.into[name] if link.source not in names]
        waits = [link for link in links if link.source in self.stage]
        if not waits and all(name in self.candidates for name in members):
            return  # free
        number = max((self.stage[link.source].number for link in waits), default=0)
        last = [link for link in waits if self.stage[link.source].number == number]
        directions = {self.stage[link.source].direction for link in last} | {direction}
        directions.discard(None)
        if len(directions) > 1 or not all(self.near(link) for link in last):
            number, directions = number + 1, {direction}
        self.stage.update(dict.fromkeys(members, FusionStage(number, next(iter(directions), None))))

    def near(self, link: Need) -> bool:
        """Whether the reader is a bounded number of steps away, in a loop that both may be in."""
        loops = {self.around[end] for end in (link.source, link.target) if end in self.around}
        return all(_is_bounded(link, dim) for dim in (self.dim, *loops))

    def _together(self, link: Need) -> bool:
        """Whether one loop may hold both ends of the link."""
        source, target = self.stage.get(link.source), self.stage.get(link.target)
        return self.near(link) and (source is None or target is None or source.number == target.number)

    def _shown(self) -> set[int]:
        """The nodes of which more than a few points are needed outside of the block, or in other rounds around it."""
        followed = {(link.source, link.target) for link in self.block.links if link.target in self.names}
        shown = (output for id in self.names for output in self.graph.shown.get(id, ()))
        reads = [(output.edge, output.domain) for output in shown]
        reads += [
            (edge, self.graph.nodes[reader].domain)
            for id in self.names
            for reader, edge in self.graph.consumers[id]
            if (id, reader) not in followed
        ]
        return {edge.node for edge, domain in reads if not self._takes_one(edge, domain)}

    def _takes_one(self, edge: Edge, domain: tuple[Symbol, ...]) -> bool:
        """Whether a reader without the dim reads one point along it, wherever it is itself."""
        index = edge.map[self.graph.nodes[edge.node].domain.index(self.dim)]
        return self.dim not in domain and isinstance(index, Point) and not index.index.dims()

    # -- groups ------------------------------------------------------------------------------------------------------

    def bound_groups(self) -> list[tuple[int, ...]]:
        """The candidates that wait for a loop, by what hangs together."""
        return self._groups({id for id in self.candidates if id in self.stage})

    def free_groups(self) -> list[tuple[int, ...]]:
        """The candidates that wait for no loop, by what hangs together."""
        return self._groups({id for id in self.candidates if id not in self.stage})

    def _groups(self, members: set[int]) -> list[tuple[int, ...]]:
        links = (link for id in members for link in self.into[id] if link.source in members)
        return connected(members, ((link.source, link.target) for link in links))

    # -- bytes -------------------------------------------------------------------------------------------------------

    def new_bytes(self, group: Collection[int], lifted: Collection[int]) -> int:
        """Bytes per point of what has to be kept for all points only because the group is lifted.

        Readers are point by point, but for those lifted; free candidates are decided with those that they hang with.
        """
        inside = set(group)
        read = {link.source for id in group for link in self.into[id]} - inside
        made = {
            id
            for id in group
            if any(link.target not in inside and link.target not in lifted for link in self.out_of[id])
        }
        needed = {id for id in read if id in self.stage and id not in lifted}
        if self._may_wait(inside, read):
            return self._bytes(made | {id for id in needed if not self.is_kept(id)})
        return self._bytes(id for id in needed | made if not self.is_kept(id))

    def _may_wait(self, group: Collection[int], read: Collection[int]) -> bool:
        """Whether a later loop that reads the group may make it, of what is kept anyway: it is kept for none then."""
        readers = {link.target for id in group for link in self.out_of[id]} - set(group)
        later = all(target in self.stage and target not in self.candidates for target in readers)
        return later and self.shown.isdisjoint(group) and all(self.is_kept(id) for id in read if id in self.stage)

    def reads_free(self, group: Collection[int]) -> bool:
        """Whether the group reads what waits for no loop and is not given: of all points the two are one operation, and
        a loop that makes the group has the other come to it point by point."""
        return any(
            edge.node in self.candidates and edge.node not in self.stage and not self.graph.nodes[edge.node].is_input
            for id in group
            for _, edge in self.graph.nodes[id].reads()
        )

    def grows(self, group: Collection[int], times: int) -> bool:
        """Whether the group makes more than so many times the bytes that it reads."""
        read = {edge.node for id in group for _, edge in self.graph.nodes[id].reads()} - set(group)
        made = {id for id in group if any(link.target not in group for link in self.out_of[id])}
        return self._bytes(made) > times * self._bytes(read)

    def kept_bytes(self, group: Collection[int]) -> int:
        """Bytes per point of what the group reads or makes that is kept for all points anyway."""
        read = [edge for id in group for _, edge in self.graph.nodes[id].reads()]
        varying = {edge.node for edge in read if self.dim in {*edge.dims(), *self.graph.nodes[edge.node].domain}}
        given = {id for id in varying if self.graph.nodes[id].is_input}
        touched = {*group, *(link.source for id in group for link in self.into[id])}
        return self._bytes({id for id in touched if self.is_kept(id)} | given)

    def is_kept(self, id: int) -> bool:
        """Whether a value is kept for all points though nothing is lifted."""
        return id in self.shown or not all(self._together(link) for link in self.out_of[id])

    def draws(self, group: Iterable[int]) -> bool:
        return any(self.graph.nodes[id].is_draw for id in group)

    def _bytes(self, ids: Iterable[int]) -> int:
        return sum(self._bytes_of(id) for id in ids)

    def _bytes_of(self, id: int) -> int:
        """Bytes at one point of the dim and of the loops around the block, at all points of the other dims: none for
        what has a few points of the dim, whatever its size."""
        node = self.graph.nodes[id]
        if id in self.spans and self.spans[id].size.is_const and not self.graph.dim(self.dim).size.is_const:
            return 0
        open_dims = self.block.dims.get(id, node.domain)
        extents = (self.sizes.extent(self.graph.dim(symbol).size) for symbol in open_dims if symbol != self.dim)
        return self.sizes.bytes(node) * math.prod(extents)


def _is_bounded(link: Need, dim: Symbol) -> bool:
    distance = link.distance(dim)
    return distance is not None and distance.lo is not None and distance.hi is not None
