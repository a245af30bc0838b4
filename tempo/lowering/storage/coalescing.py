"""Pieces of a definition that live in its buffer: written there where they are made, and not copied there later.

    k[t] = k'[t] where t < P, else g(t)

where all of k' is made at once, or in a loop of its own. When every point of k is kept, at a place of its own, k' may
be written to the places of its points as soon as it is made: nothing else is ever written there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.lowering.scheduling.clusters import Clustered, Value, ValueRead
from tempo.sdg.graph import Case, Graph, Node, Output, Point
from tempo.symbolic import TRUE, Condition, Expr, const, var


@dataclass(frozen=True)
class Home:
    """Where in the buffer of `owner` a value lives that is read by its case number `case`.

    index: for each axis of the buffer, the place of the value's point, in the value's dims; of a row, the first one.
    row: the axis along which a row lies, and its extent. order: see `Part`, of the row.
    """

    owner: int
    case: int
    index: tuple[Expr, ...]
    row: tuple[int, Expr] | None = None
    order: tuple[int, ...] = ()

    def is_read(self, graph: Graph, read: ValueRead) -> bool:
        """Whether a read of the value is that of the case."""
        node = graph.nodes[read.cluster.nodes[read.rank]]
        return node.id == self.owner and (read.guard, read.edge) == node.guarded_reads()[self.case]


def homes(
    program: Clustered, kept_in_full: Mapping[int, bool], reads: Mapping[Value, list[ValueRead]]
) -> dict[Value, Home]:
    """The values that live in the buffer of a definition. `kept_in_full`: definitions, all points of which are kept."""
    return _Homes(program, kept_in_full, reads).find()


class _Homes:
    def __init__(
        self, program: Clustered, kept_in_full: Mapping[int, bool], reads: Mapping[Value, list[ValueRead]]
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
        for id, kept in self.kept_in_full.items():
            if not kept or not self._has_one_buffer(id) or (id, 0) in found:
                continue
            for value, home in self._of(self.graph.nodes[id]):
                if value not in found and value[0] not in owners:
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
            if home is None or not self._may_move(value, home) or not self._inside(owner, home, value[0]):
                continue
            within = TRUE if home.row is None or case.part is None else case.part.is_one_of(home.row[1])
            if context.assume(guard).implies(within) and context.assume(within, *self._made(case)).implies(guard):
                yield value, home

    def _may_move(self, value: Value, home: Home) -> bool:
        """Whether the value has no place of its own that must be, and whoever reads it can read it there."""
        node = self.graph.nodes[value[0]]
        if node.is_given or value[0] in self.outputs or node.id not in self.clusters or node.id == home.owner:
            return False
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
        if left or (case.part is not None and row is None) or (row is None and piece.domain == owner.domain):
            return None  # what one loop makes and defines is handed on as a value
        return tuple(index), row

    def _inside(self, owner: Node, home: Home, piece: int) -> bool:
        """Whether all of the piece has a place in the buffer."""
        context = self.program.context(self.clusters[piece])
        sizes = [self.graph.dim(symbol).size for symbol in owner.domain]
        for position, (at, size) in enumerate(zip(home.index, sizes, strict=True)):
            count = home.row[1] if home.row is not None and home.row[0] == position else const(1)
            if not context.implies(at.ge(0) & (at + count).le(size)):
                return False
        return True

    def _made(self, case: Case) -> Iterator[Condition]:
        """What holds of the points of the owner that read a point at which the piece is made."""
        box = self.program.box(self.clusters[case.edge.node])
        for index, (_, lo, hi) in zip(case.edge.map, box.bounds, strict=True):
            if isinstance(index, Point):
                yield index.index.ge(lo) & index.index.lt(hi)
