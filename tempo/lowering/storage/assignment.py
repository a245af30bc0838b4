"""Storage follows from the order: reuse distances along the schedule decide what is kept, and for how long.

Read in the same block as it was made, at the point just made: a *register*. Otherwise a value has a buffer, with an
axis for each dim along which it keeps more than one point: a *window* of w (index modulo w) where
`reuse_distance` bounds how many are alive at once, else *full*.

Loops of which every iteration has values of its own (it reads only what it wrote itself, and nobody reads it later) are
found too: a backend may give such a value a fresh place in every iteration, and that place to something else after the
last read.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo.loop_ir.ir import Axis
from tempo.lowering.scheduling.clusters import Cluster, Clustered, Value, ValueRead, ValueReads
from tempo.lowering.scheduling.places import Place
from tempo.lowering.storage.coalescing import Home, homes
from tempo.lowering.storage.reuse_distance import FULL, conflict_widths, widths, writer_of
from tempo.sdg.graph import Node, Slice
from tempo.symbolic import Symbol, const


@dataclass(frozen=True)
class Storage:
    """`axes` of the buffer; a register has no buffer. `local`: see `Buffer`.

    home: the value is written to its place in another's buffer, too; `moved`: it has no buffer but that one.
    """

    register: bool
    axes: tuple[Axis, ...] = ()
    local: frozenset[Symbol] = frozenset()
    home: Home | None = None
    moved: bool = False

    def is_full(self, node: Node) -> bool:
        """Whether each point of the node has a place of its own."""
        return (
            not self.register and len(self.axes) == len(node.domain) and all(axis.kind == "full" for axis in self.axes)
        )


def decide_storage(
    program: Clustered, places: Mapping[str, tuple[Place, ...]], guarded: Collection[str] = ()
) -> dict[Value, Storage]:
    """The storage of every value of a clustered graph under the places of a schedule.

    `guarded` names the clusters that a table guards: such a statement is a block of its own.
    """
    return _Assignment(program, places, guarded).decide()


class _Assignment:
    def __init__(self, program: Clustered, places: Mapping[str, tuple[Place, ...]], guarded: Collection[str]) -> None:
        self.program = program
        self.places = places
        self.guarded = guarded
        self.reads = ValueReads(program, places)

    def decide(self) -> dict[Value, Storage]:
        found = {}
        for cluster in self.program.clusters:
            for rank, id in enumerate(cluster.nodes):
                node = self.program.graph.nodes[id]
                if node.is_given or cluster.name not in self.places:
                    continue
                for result in range(len(node.results)):
                    reads = self.reads.of.get((id, result), [])
                    found[id, result] = self._decide(reads, cluster, rank)
        return found | dict(self._at_home(found))

    def _at_home(self, found: Mapping[Value, Storage]) -> Iterator[tuple[Value, Storage]]:
        """The values that live in the buffer of a definition, and these definitions."""
        graph, clusters = self.program.graph, self.program.cluster_of()
        kept = {id: each.is_full(graph.nodes[id]) for (id, _), each in found.items() if graph.nodes[id].is_merge}
        for value, home in homes(self.program, kept, self.reads.of).items():
            cluster = clusters[value[0]]
            others = [read for read in self.reads.of[value] if not home.is_read(graph, read)]
            decided = self._decide(others, cluster, cluster.nodes.index(value[0]))
            moved = not decided.register and (home.row is not None or decided.is_full(graph.nodes[value[0]]))
            yield value, replace(decided, home=home, moved=moved)
            yield (home.owner, 0), replace(found[home.owner, 0], local=frozenset())

    def _decide(self, reads: list[ValueRead], cluster: Cluster, rank: int) -> Storage:
        if all(self._in_register(read, cluster.name) for read in reads):
            return Storage(register=True)
        sliced = {
            position for read in reads for position, index in enumerate(read.edge.map) if isinstance(index, Slice)
        }
        axes = self._axes(cluster.domain, self._widths(reads, cluster, rank), sliced)
        return Storage(register=False, axes=axes, local=local_to(self.places[cluster.name], reads))

    def _widths(self, reads: list[ValueRead], cluster: Cluster, rank: int) -> list[int]:
        if not cluster.domain:
            return []
        places, box = self.places[cluster.name], self.program.box(cluster)
        writer = writer_of(places, cluster.domain, box, rank)
        if writer is None:
            return conflict_widths(places, reads, self.reads, cluster, rank)
        return widths(writer, reads, self.reads)

    def _axes(self, domain: tuple[Symbol, ...], widths: list[int], sliced: set[int]) -> tuple[Axis, ...]:
        axes = []
        for position, (dim, width) in enumerate(zip(domain, widths, strict=True)):
            size = self.program.graph.dim(dim).size
            if width == FULL or (size.is_const and size.as_int() <= width):
                axes.append(Axis(dim, position, "full", size))
            elif width > 1 or position in sliced:
                axes.append(Axis(dim, position, "window", const(width)))
        return tuple(axes)

    def _in_register(self, read: ValueRead, writer: str) -> bool:
        """Read later in the same block (or one inside it), at the point just made.

        A name holds what was assigned last: of the places that write, that is the one before the read in the text.
        """
        places = self.places[writer]
        before = [place for place in places if place.order <= read.place.order]
        if not before or read.slices or not self._is_in_block(read, before[-1]):
            return False
        inside = len(before[-1].loops) + 1  # a loop in which the name is assigned anew after the read
        return len(read.place.loops) < inside or not any(
            place.loops[:inside] == read.place.loops[:inside] for place in places[len(before) :]
        )

    def _is_in_block(self, read: ValueRead, write: Place) -> bool:
        if read.place.segment != write.segment:
            return False
        if write.statement in self.guarded and read.place.statement != write.statement:
            return False
        if read.place.loops[: len(write.loops)] != write.loops:
            return False
        if read.place.guards[: len(write.guards)] != write.guards:
            return False
        return all(each.lo == made for each, made in zip(read.relation, write.point, strict=True))


# -- privatization -------------------------------------------------------------------------------------------------


def local_to(writes: Sequence[Place], reads: Sequence[ValueRead]) -> frozenset[Symbol]:
    """The variables of the loops around all writes and reads of a value to whose iterations it is local.

    For the loop and each one around it, one coordinate of what is written and of what is read must be the iteration, up
    to a constant. Pieces of a loop never run at the same iteration: what is read was written in the same piece.
    """
    first = writes[0]
    others = (*writes[1:], *(read.place for read in reads))
    depths = min((first.shared_levels(place) for place in others), default=0)
    local = itertools.takewhile(lambda depth: _is_local(depth, writes, reads), range(depths))
    return frozenset(symbol for depth in local for place in writes for symbol in _variable(place, depth))


def _is_local(depth: int, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    return any(_is_iteration(position, depth, writes, reads) for position in range(len(writes[0].point)))


def _is_iteration(position: int, depth: int, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    """Whether the coordinate is that of the iteration, by the same constant wherever it is written or read."""
    written = [place.point[position] - place.levels[depth].iteration for place in writes]
    asked = [read.relation[position] for read in reads]
    found = {each - read.place.levels[depth].iteration for read, at in zip(reads, asked) for each in (at.lo, at.hi)}
    return len(found.union(written)) == 1 and written[0].is_const


def _variable(place: Place, depth: int) -> frozenset[Symbol]:
    """The variable of the loop at this depth; none where the place stands beside it."""
    iteration = place.levels[depth].iteration
    return frozenset(loop.var for _, loop in place.loops if {loop.var} == iteration.symbols())
