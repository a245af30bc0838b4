"""Who reads a value, where in the schedule, and what holds there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo.lowering.scheduling.clusters import Cluster
from tempo.lowering.scheduling.places import Place
from tempo.lowering.scheduling.problem import Clustered, intervals
from tempo.schedule.problem import Interval
from tempo.sdg.graph import Edge, IndexMap, Slice
from tempo.symbolic import Box, Condition, Context, Expr, Symbol, var

Value = tuple[int, int]  # node, result


@dataclass(frozen=True)
class ValueRead:
    """One read of a value: by `cluster` at `place`, where `guard` holds; `relation`: the points, in loop variables."""

    cluster: Cluster
    place: Place
    guard: Condition
    edge: Edge
    rank: int  # of the reading node in its cluster
    relation: tuple[Interval, ...]

    @property
    def here(self) -> dict[Symbol, Expr]:
        """The reader's dims in loop variables."""
        return dict(zip(self.cluster.domain, self.place.point, strict=True))

    @property
    def slices(self) -> bool:
        return any(isinstance(index, Slice) for index in self.edge.map)


class ValueReads:
    """Every read of every value of a clustered graph, and what holds at each place."""

    def __init__(self, program: Clustered, places: Mapping[str, tuple[Place, ...]]) -> None:
        self.program = program
        self.of: dict[Value, list[ValueRead]] = {}
        self._contexts: dict[tuple[int, Condition], Context] = {}
        for cluster in program.clusters:
            for place in places.get(cluster.name, ()):
                self._collect(cluster, place)

    def _collect(self, cluster: Cluster, place: Place) -> None:
        here = dict(zip(cluster.domain, place.point, strict=True))
        known: dict[IndexMap, tuple[Interval, ...]] = {}  # most reads are of a few maps
        for rank, id in enumerate(cluster.nodes):
            for guard, edge in self.program.graph.nodes[id].guarded_reads():
                relation = known.get(edge.map)
                if relation is None:
                    relation = known[edge.map] = _substituted(intervals(edge), here)
                read = ValueRead(cluster, place, guard, edge, rank, relation)
                self.of.setdefault((edge.node, edge.result), []).append(read)

    def context(self, read: ValueRead) -> Context:
        """What holds of the loop variables where the read takes place, by the reader's domain and its case."""
        key = read.place.order, read.guard
        if key not in self._contexts:
            self._contexts[key] = self._find(read.cluster, read.place, read.guard.substitute(read.here))
        return self._contexts[key]

    def _find(self, cluster: Cluster, place: Place, guard: Condition) -> Context:
        """A loop variable that is a coordinate up to a constant has the bounds of that coordinate."""
        box = self.program.box(cluster)
        bounds: dict[Symbol, tuple[Expr, Expr]] = {}
        facts = [guard]
        variables = {loop.var for _, loop in place.loops}
        for index, (_, lo, hi) in zip(place.point, box.bounds, strict=True):
            found = shift(index, variables - bounds.keys())
            if found is None:
                facts += [index.ge(lo), index.lt(hi)]
            else:
                bounds[found[0]] = lo - found[1], hi - found[1]
        for _, loop in place.loops:
            if loop.var not in bounds:
                facts += [var(loop.var).ge(loop.lo), var(loop.var).lt(loop.hi), place.condition]
        # A loop may have the name of a dim that it is not: `act(-t)` for t in 1 - T..1.
        dims = [self.program.graph.dim(symbol) for symbol in cluster.domain if symbol in bounds]
        known = Box(tuple((symbol, lo, hi) for symbol, (lo, hi) in bounds.items()))
        return Context.of(dims, *facts, box=known)


def _substituted(relation: tuple[Interval, ...], here: dict[Symbol, Expr]) -> tuple[Interval, ...]:
    return tuple(Interval(each.lo.substitute(here), each.hi.substitute(here)) for each in relation)


def shift(index: Expr, variables: set[Symbol] | frozenset[Symbol]) -> tuple[Symbol, Expr] | None:
    """(v, c) where `index` is one of the variables plus a constant c."""
    for symbol in index.symbols():
        rest = index - var(symbol)
        if symbol in variables and rest.is_const:
            return symbol, rest
    return None
