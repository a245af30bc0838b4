"""Storage follows from the order: reuse distances along the schedule decide what is kept, and for how long.

Read in the same block as it was made, at the point just made: a *register*. Otherwise a value has a buffer, with an
axis for each dim along which it keeps more than one point: a *window* of w (index modulo w) where `reuse_distance`
bounds how many are alive at once, else *full*.

Loops of which every iteration has values of its own (it reads only what it wrote itself, and nobody reads it later) are
found too: a backend may give such a value a fresh place in every iteration, and that place to something else after the
last read.

Pieces of a definition may live in its buffer (`homes`): written there where they are made, and not copied there later.

    k[t] = k'[t] where t < P, else g(t)

where all of k' is made at once, or in a loop of its own. When every point of k is kept, at a place of its own, k' may
be written to the places of its points as soon as it is made: nothing else is ever written there.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo.loop_ir.ir import Axis
from tempo.lowering.scheduling.clusters import Cluster, Clustered, Value, ValueRead, ValueReads
from tempo.lowering.scheduling.places import Place
from tempo.lowering.storage.reuse_distance import FULL, conflict_widths, widths, writer_of
from tempo.sdg.graph import Case, Graph, Node, Output, Point, Slice
from tempo.symbolic import TRUE, Condition, Expr, Symbol, const, var

# -- coalescing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Home:
    """Where in the buffer of `owner` a value lives that is read by its case number `case`.

    index: for each axis of the buffer, the place of the value's point, in the value's dims; of a row, the first one.
    row: the axis along which a row lies, and its extent. order: see `Part`, of the row. beyond: for each axis, how many
    places the buffer has for the value behind those of the dim.
    """

    owner: int
    case: int
    index: tuple[Expr, ...]
    row: tuple[int, Expr] | None = None
    order: tuple[int, ...] = ()
    beyond: tuple[int, ...] = ()

    def is_read(self, graph: Graph, read: ValueRead) -> bool:
        """Whether a read of the value is that of the case."""
        node = graph.nodes[read.cluster.nodes[read.rank]]
        return node.id == self.owner and (read.guard, read.edge) == node.guarded_reads()[self.case]


def homes(
    program: Clustered, kept_in_full: Collection[Value], reads: Mapping[Value, list[ValueRead]]
) -> dict[Value, Home]:
    """The values that live in the buffer of a definition. `kept_in_full`: those of which all points are kept."""
    return _Homes(program, kept_in_full, reads).find()


class _Homes:
    def __init__(
        self, program: Clustered, kept_in_full: Collection[Value], reads: Mapping[Value, list[ValueRead]]
    ) -> None:
        self.program, self.graph, self.reads = program, program.graph, reads
        self.kept_in_full = kept_in_full
        self.clusters = program.cluster_of()
        self.outputs: dict[int, list[Output]] = {}
        for output in program.graph.outputs:
            self.outputs.setdefault(output.edge.node, []).append(output)

    def find(self) -> dict[Value, Home]:
        found: dict[Value, Home] = {}
        owners: set[int] = set()
        outside: set[int] = set()  # owners with a value that is written where none of their own points is
        merges = (id for cluster in self.program.clusters for id in cluster.nodes if self.graph.nodes[id].is_merge)
        for id in merges:
            if (id, 0) not in self.kept_in_full or not self._has_one_buffer(id) or (id, 0) in found:
                continue
            for value, home in self._of(self.graph.nodes[id]):
                if value in found or value[0] in owners:
                    continue
                if not self._within_box(home, value[0]):
                    if id in outside:
                        continue  # another one is there: guards tell them apart at the owner's points alone
                    outside.add(id)
                found[value] = home
                owners.add(id)
        return found

    def _has_one_buffer(self, id: int) -> bool:
        """Outputs of the same value, and outputs of the last point only, have buffers of their own."""
        shown = self.outputs.get(id, [])
        return len(shown) <= 1 and not any(output.last_along for output in shown)

    def _of(self, owner: Node) -> Iterator[tuple[Value, Home]]:
        context = self.program.context(self.clusters[owner.id])
        for number, (case, (guard, _)) in enumerate(zip(owner.cases, owner.guarded_reads(), strict=True)):
            value = case.edge.node, case.edge.result
            home = self._home(owner, number, case)
            if (
                home is None
                or not self._may_move(value, home)
                or (beyond := self._beyond(owner, home, value[0])) is None
            ):
                continue
            within = TRUE if home.row is None or case.part is None else case.part.is_one_of(home.row[1])
            if context.assume(guard).implies(within) and context.assume(within, *self._made(case)).implies(guard):
                yield value, replace(home, beyond=beyond)

    def _may_move(self, value: Value, home: Home) -> bool:
        """Whether the value has no place of its own that must be, and whoever reads it can read it there."""
        node = self.graph.nodes[value[0]]
        if node.is_given or value[0] in self.outputs or node.id not in self.clusters or node.id == home.owner:
            return False
        if home.row is None and node.domain == self.graph.nodes[home.owner].domain and value not in self.kept_in_full:
            return False  # what one loop makes and defines is handed on as a value
        if self.clusters[node.id].host:
            return False
        others = [read for read in self.reads.get(value, []) if not home.is_read(self.graph, read)]
        return home.row is None or not any(read.slices or read.cluster.host for read in others)

    def _home(self, owner: Node, number: int, case: Case) -> Home | None:
        piece = self.graph.nodes[case.edge.node]
        points = [index.index for index in case.edge.map if isinstance(index, Point)]
        if len(points) < len(piece.domain):
            return None
        placed = self._placed(owner, piece, points, case)
        if placed is None:
            return None
        return Home(owner.id, number, *placed, () if case.part is None else case.part.order)

    def _placed(
        self, owner: Node, piece: Node, points: list[Expr], case: Case
    ) -> tuple[tuple[Expr, ...], tuple[int, Expr] | None] | None:
        """For each dim of the owner where the piece's point lies (the point read, turned round), and the row."""
        left = list(zip(piece.domain, points))
        index: list[Expr] = []
        row: tuple[int, Expr] | None = None
        for position, symbol in enumerate(owner.domain):
            here = var(symbol)
            if case.part is not None and case.part.at.dims() == {symbol} and not (start := here - case.part.at).dims():
                row = position, self.graph.seen_type(case.edge).shape[case.part.order[0]]
                index.append(start)
            elif left and not (start := here - left[0][1]).dims():
                index.append(var(left.pop(0)[0]) + start)
            else:
                return None
        if left or (case.part is not None and row is None):
            return None
        return tuple(index), row

    def _beyond(self, owner: Node, home: Home, piece: int) -> tuple[int, ...] | None:
        """How many more places than the dims have points all of the piece needs in the buffer; None: there is no room.

        A state is one point ahead of what it is made of: with one place more, both are in one buffer.
        """
        context = self.program.context(self.clusters[piece])
        most = 0 if owner.id in self.outputs or home.row is not None else 1
        found: list[int] = []
        for position, (at, symbol) in enumerate(zip(home.index, owner.domain, strict=True)):
            count = home.row[1] if home.row is not None and home.row[0] == position else const(1)
            size = self.graph.dim(symbol).size
            fits = (more for more in range(most + 1) if context.implies(at.ge(0) & (at + count).le(size + more)))
            if (least := next(fits, None)) is None:
                return None
            found.append(least)
        return tuple(found)

    def _within_box(self, home: Home, piece: int) -> bool:
        """Whether all places of the piece are those of points at which the owner runs."""
        context = self.program.context(self.clusters[piece])
        bounds = self.program.box(self.clusters[home.owner]).bounds
        for position, (at, (_, lo, hi)) in enumerate(zip(home.index, bounds, strict=True)):
            count = home.row[1] if home.row is not None and home.row[0] == position else const(1)
            if not context.implies(at.ge(lo) & (at + count).le(hi)):
                return False
        return True

    def _made(self, case: Case) -> Iterator[Condition]:
        """What holds of the points of the owner that read a point at which the piece is made."""
        box = self.program.box(self.clusters[case.edge.node])
        for index, (_, lo, hi) in zip(case.edge.map, box.bounds, strict=True):
            if isinstance(index, Point):
                yield index.index.ge(lo) & index.index.lt(hi)


# -- assignment ----------------------------------------------------------------------------------------------------


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
    return Assignment(program, places, guarded).decide()


class Assignment:
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
        kept = frozenset(value for value, each in found.items() if each.is_full(graph.nodes[value[0]]))
        owners: dict[Value, Storage] = {}
        for value, home in homes(self.program, kept, self.reads.of).items():
            cluster = clusters[value[0]]
            others = [read for read in self.reads.of[value] if not home.is_read(graph, read)]
            decided = self._decide(others, cluster, cluster.nodes.index(value[0]))
            moved = not decided.register and (home.row is not None or decided.is_full(graph.nodes[value[0]]))
            yield value, replace(decided, home=home, moved=moved)
            owner = owners.get((home.owner, 0), found[home.owner, 0])
            owners[home.owner, 0] = replace(owner, axes=self._longer(owner.axes, home.beyond), local=frozenset())
        yield from owners.items()

    def _longer(self, axes: tuple[Axis, ...], beyond: tuple[int, ...]) -> tuple[Axis, ...]:
        """With so many places more than the dims have points, at least."""
        found = (
            replace(axis, extent=self.program.extent(axis.dim) + more) if more else axis
            for axis, more in zip(axes, beyond, strict=True)
        )
        return tuple(found)

    def _decide(self, reads: list[ValueRead], cluster: Cluster, rank: int) -> Storage:
        if all(self.in_register(read, cluster.name) for read in reads):
            return Storage(register=True)
        sliced = {
            position for read in reads for position, index in enumerate(read.edge.map) if isinstance(index, Slice)
        }
        axes = self._axes(cluster.domain, self.widths(reads, cluster, rank), sliced)
        return Storage(register=False, axes=axes, local=local_to(self.places[cluster.name], reads))

    def widths(self, reads: list[ValueRead], cluster: Cluster, rank: int) -> list[int]:
        """How many points along each dim these reads ask for; `FULL`: every one."""
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
            size = self.program.extent(dim)
            lacking = int(width > 1)  # one point more than it needs, and it may be the buffer of another value, too
            if width == FULL or (size.is_const and size.as_int() <= width + lacking):
                axes.append(Axis(dim, position, "full", size))
            elif width > 1 or position in sliced:
                axes.append(Axis(dim, position, "window", const(width)))
        return tuple(axes)

    def in_register(self, read: ValueRead, writer: str) -> bool:
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
    to a constant.
    """
    first = writes[0]
    others = (*writes[1:], *(read.place for read in reads))
    shared = min((first.shared_loops(place) for place in others), default=0)
    variables = (loop.var for _, loop in first.loops[:shared])
    return frozenset(itertools.takewhile(lambda variable: _is_local(variable, writes, reads), variables))


def _is_local(variable: Symbol, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    return any(_is_iteration(position, var(variable), writes, reads) for position in range(len(writes[0].point)))


def _is_iteration(position: int, iteration: Expr, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    """Whether the coordinate is that of the iteration, by the same constant wherever it is written or read."""
    written = [place.point[position] - iteration for place in writes]
    asked = [read.relation[position] for read in reads]
    found = {each - iteration for at in asked for each in (at.lo, at.hi)}
    return len(found.union(written)) == 1 and written[0].is_const
