"""Why each buffer is kept, and for how long: the read that asks for the most points along each of its axes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tempo.errors import Location
from tempo.loop_ir.ir import Axis, Buffer
from tempo.lowering.construct.build import make_buffers
from tempo.lowering.scheduling.clusters import Cluster, Clustered, Value, ValueRead
from tempo.lowering.scheduling.places import Place
from tempo.lowering.storage.assignment import Assignment, Storage
from tempo.lowering.storage.reuse_distance import FULL
from tempo.sdg.graph import Node, Point, Slice
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class Reason:
    """A read that asks for `points` points along `dim` ("every", "2"); without a dim, for the one that was made last.

    `read`: what is read, of the user's tensor, and by whom; `when`: how that lies to where it is made.
    """

    dim: Symbol | None
    points: str
    read: str
    reader: str
    when: str
    location: Location | None

    def __str__(self) -> str:
        kept = (
            ""
            if self.dim is None
            else f"{self.points} point{'' if self.points in ('1', 'every') else 's'} of {self.dim.name}: "
        )
        where = "" if self.location is None else f", {self.location.path}:{self.location.line}"
        return f"{kept}{self.read} is read by {self.reader} {self.when}{where}"


@dataclass(frozen=True)
class Retained:
    """`role`: what else keeps it: it is given, returned, or in the place of what is."""

    role: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "; ".join([*([self.role] if self.role else []), *map(str, self.reasons)])


def retention(
    program: Clustered,
    places: Mapping[str, tuple[Place, ...]],
    storage: Mapping[Value, Storage],
    guarded: Collection[str],
) -> dict[int, Retained]:
    """By the number of a buffer."""
    buffers, found = make_buffers(program, storage), dict[int, Retained]()
    explained = _Retention(program, Assignment(program, places, guarded))
    returned = {each.id for written in buffers.written_outputs.values() for each in written}
    for value, buffer in buffers.of_value.items():
        role = {"input": "given", "constant": "a constant", "output": "returned"}.get(buffer.role, "")
        found[buffer.id] = Retained(role, tuple(explained.reasons(value, buffer)))
    return found | {id: Retained("returned", ()) for id in returned}


@dataclass(frozen=True)
class _Retention:
    program: Clustered
    assignment: Assignment

    def reasons(self, value: Value, buffer: Buffer) -> Iterator[Reason]:
        """Of what is given all points are there in any case."""
        reads, cluster = self.assignment.reads.of.get(value, []), self.program.cluster_of().get(value[0])
        if cluster is None or buffer.is_given or not reads:
            return
        rank = cluster.nodes.index(value[0])
        asked = [(read, self.assignment.widths([read], cluster, rank)) for read in reads]
        for axis in buffer.axes:
            read, widths = max(asked, key=lambda each: _count(each[1], axis))
            yield self._reason(cluster, value, read, axis.dim, _points(widths, axis))
        if not buffer.axes:
            others = [read for read in reads if not self.assignment.in_register(read, cluster.name)]
            yield self._reason(cluster, value, (others or reads)[-1], None, "1")

    def _reason(self, cluster: Cluster, value: Value, read: ValueRead, dim: Symbol | None, points: str) -> Reason:
        graph = self.program.graph
        node, reader = graph.nodes[value[0]], graph.nodes[read.cluster.nodes[read.rank]]
        index = f"[{', '.join(map(_written, read.edge.map))}]" if read.edge.map else ""
        when = _when(self.assignment.places[cluster.name], read)
        return Reason(dim, points, f"{_called(node)}{index}", _called(reader), when, reader.location)


def _called(node: Node) -> str:
    return node.name or f"{node.op}_{node.id}"


def _written(index: Point | Slice) -> str:
    """As the user would."""
    return str(index.index) if isinstance(index, Point) else f"{index.start}:{index.start + index.length}"


def _count(widths: list[int], axis: Axis) -> float:
    return float("inf") if widths[axis.position] == FULL else widths[axis.position]


def _points(widths: list[int], axis: Axis) -> str:
    width = widths[axis.position]
    return "every" if width == FULL or axis.kind == "full" else str(axis.extent)


def _when(writes: tuple[Place, ...], read: ValueRead) -> str:
    """Behind which loops, or how many iterations later."""
    write = max(writes, key=lambda place: place.shared_loops(read.place))
    around = [loop.var.name for _, loop in write.loops]
    behind = around[write.shared_loops(read.place) :]
    if behind or not around:
        return f"after the loop over {', '.join(behind)}" if behind else "later"
    apart = [made - asked.lo for made, asked in zip(write.point, read.relation, strict=True)]
    far = [abs(each.as_int()) for each in apart if each.is_const]
    if len(far) == len(apart) and not any(far):
        return f"in the same iteration of {', '.join(around)}"
    if len(around) == len(far) == len(apart) == 1:
        return f"{far[0]} iteration{'s' * (far[0] > 1)} of {around[0]} later"
    return f"in a later iteration of {', '.join(around)}"
