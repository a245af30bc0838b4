"""Storage follows from the order: reuse distances along the schedule decide what is kept, and for how long.

For each tensor and each of its dims: how many iterations after a point was made is it last read? Zero in every loop,
in the same block: a *register*. At most w - 1: a *window* of w (index modulo w; w = 1 needs no axis at all). No bound:
*full*. The loops are taken from the outside in; once a loop carries a value from one iteration to a later one, every
loop inside it sweeps over all its points in between, so the dims of those are full.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tempo.lowering.loop_ir import Axis
from tempo.lowering.places import Place
from tempo.lowering.problem import GIVEN, Clustered, intervals
from tempo.passes.cluster import Cluster
from tempo.schedule.problem import Interval
from tempo.sdg.graph import Edge, Slice
from tempo.symbolic import Condition, Context, Expr, Symbol, const, var

Value = tuple[int, int]  # node, result


@dataclass(frozen=True)
class Storage:
    """`axes` of the buffer; a register has no buffer."""

    register: bool
    axes: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Read:
    """One read of a value: by `cluster` at `place`, where `guard` holds; `before` tells reads ahead of the write."""

    cluster: Cluster
    place: Place
    guard: Condition
    edge: Edge
    rank: int  # of the reading node in its cluster


FULL = -1  # as a window width: no bound


class StorageAnalysis:
    """Decides the storage of every value of a clustered graph under the places of a schedule.

    `guarded` names the clusters that a table guards: such a statement is a block of its own.
    """

    def __init__(
        self, program: Clustered, places: Mapping[str, tuple[Place, ...]], guarded: Collection[str] = ()
    ) -> None:
        self.program = program
        self.places = places
        self.guarded = guarded
        self.cluster_of = program.cluster_of()
        self.reads: dict[Value, list[Read]] = {}
        self._contexts: dict[tuple[str, Condition], Context] = {}
        for cluster in program.clusters:
            self._collect(cluster)

    def _collect(self, cluster: Cluster) -> None:
        for rank, id in enumerate(cluster.nodes):
            for guard, edge in self.program.graph.nodes[id].guarded_reads():
                for place in self.places.get(cluster.name, ()):
                    read = Read(cluster, place, guard, edge, rank)
                    self.reads.setdefault((edge.node, edge.result), []).append(read)

    def decide(self) -> dict[Value, Storage]:
        found = {}
        for cluster in self.program.clusters:
            for rank, id in enumerate(cluster.nodes):
                node = self.program.graph.nodes[id]
                if node.op in GIVEN or cluster.name not in self.places:
                    continue
                for result in range(len(node.results)):
                    found[id, result] = self._decide((id, result), cluster, rank)
        return found

    def _decide(self, value: Value, cluster: Cluster, rank: int) -> Storage:
        reads = self.reads.get(value, [])
        written = self.places[cluster.name]
        if all(self._in_register(read, write) for read in reads for write in written):
            return Storage(register=True)
        widths = [1] * len(cluster.domain)
        for read in reads:
            for write in written:
                found = self._widths(read, write, cluster, rank)
                widths = [FULL if FULL in pair else max(pair) for pair in zip(widths, found, strict=True)]
        sliced = {
            position for read in reads for position, index in enumerate(read.edge.map) if isinstance(index, Slice)
        }
        return Storage(register=False, axes=self._axes(cluster.domain, widths, sliced))

    def _axes(self, domain: tuple[Symbol, ...], widths: list[int], sliced: set[int]) -> tuple[Axis, ...]:
        axes = []
        for position, (dim, width) in enumerate(zip(domain, widths, strict=True)):
            size = self.program.graph.dim(dim).size
            if width == FULL or (size.is_const and size.as_int() <= width):
                axes.append(Axis(dim, position, "full", size))
            elif width > 1 or position in sliced:
                axes.append(Axis(dim, position, "window", const(width)))
        return tuple(axes)

    def _in_register(self, read: Read, write: Place) -> bool:
        """Read later in the same block (or one inside it), at the point just made."""
        graph = self.program.graph
        producer = graph.nodes[read.edge.node]
        if any(isinstance(index, Slice) for index in read.edge.map) or read.place.segment != write.segment:
            return False
        if write.statement in self.guarded and read.place.statement != write.statement:
            return False
        if read.place.loops[: len(write.loops)] != write.loops:
            return False
        if read.place.guards[: len(write.guards)] != write.guards or read.place.order < write.order:
            return False
        here = dict(zip(read.cluster.domain, read.place.point, strict=True))
        return all(
            index.index.substitute(here) == made
            for index, made, _ in zip(read.edge.map, write.point, producer.domain, strict=True)
            if not isinstance(index, Slice)
        )

    # -- windows -----------------------------------------------------------------------------------------------------

    def _widths(self, read: Read, write: Place, cluster: Cluster, rank: int) -> list[int]:
        """The window that one read needs along every dim of the producer (FULL where there is no bound)."""
        domain, relation = cluster.domain, intervals(read.edge)
        dim_of_loop = self._dims_by_loop(write, domain)
        if dim_of_loop is None:
            return [FULL] * len(domain)
        shared = read.place.shared_loops(write)
        widths = [1] * len(domain)
        for depth, position in enumerate(dim_of_loop):
            if depth < shared:
                last = self._distance(read, write, depth, position, relation[position])
            elif read.place.order > write.order:
                last = self._distance_to_end(read, write, depth, position, relation[position], cluster)
            else:
                last = None
            if last == 0:
                continue
            carried = self._carried(last, read, write, rank, innermost_shared=depth == shared - 1)
            widths[position] = carried
            for inner in dim_of_loop[depth + 1 :]:
                widths[inner] = FULL
            break
        return widths

    @staticmethod
    def _dims_by_loop(write: Place, domain: tuple[Symbol, ...]) -> list[int] | None:
        """For every loop around the write, outermost first, the dim that it runs over. None where that is no shift."""
        offsets = [write.offset(position) for position in range(len(domain))]
        if any(offset is None for offset in offsets):
            return None
        by_loop = {offset[0]: position for position, offset in enumerate(offsets) if offset is not None}
        if len(by_loop) != len(domain) or any(loop.var not in by_loop for _, loop in write.loops):
            return None
        return [by_loop[loop.var] for _, loop in write.loops]

    @staticmethod
    def _carried(last: int | None, read: Read, write: Place, rank: int, innermost_shared: bool) -> int:
        if last is None:
            return FULL
        if not innermost_shared:
            return last + 1
        read_first = (read.place.order, read.rank) <= (write.order, rank)
        return max(1, last if read_first else last + 1)

    def _context(self, read: Read) -> Context:
        key = read.cluster.name, read.guard
        if key not in self._contexts:
            self._contexts[key] = self.program.context(read.cluster, read.guard)
        return self._contexts[key]

    def _distance(self, read: Read, write: Place, depth: int, position: int, relation: Interval) -> int | None:
        """The largest number of iterations of a shared loop between the write and the read."""
        loop = write.loops[depth][1]
        made, asked = write.offset(position), self._iteration_of(read, loop.var)
        if made is None or asked is None:
            return None
        forward = loop.direction == "forward"
        distance = asked - (relation.lo - made[1]) if forward else (relation.hi - made[1]) - asked
        return self._context(read).constant_bounds(distance)[1]

    @staticmethod
    def _iteration_of(read: Read, loop_var: Symbol) -> Expr | None:
        """The loop variable as an expression over the reader's dims."""
        for position, symbol in enumerate(read.cluster.domain):
            offset = read.place.offset(position)
            if offset is not None and offset[0] == loop_var:
                return var(symbol) - offset[1]
        return None

    def _distance_to_end(
        self, read: Read, write: Place, depth: int, position: int, relation: Interval, cluster: Cluster
    ) -> int | None:
        """The same for a read after the loop: from the points read to the last point that the loop made."""
        box, dim = self.program.box(cluster), cluster.domain[position]
        forward = write.loops[depth][1].direction == "forward"
        distance = box.hi(dim) - 1 - relation.lo if forward else relation.hi - box.lo(dim)
        return self._context(read).constant_bounds(distance)[1]
