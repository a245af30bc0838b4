"""Clusters: nodes of equal domain become one statement, so that schedulers see statements and not operators.

A node u joins the cluster of its consumers when every read of it comes from that one cluster, at the same point. Then
every path out of the cluster starts at its root, the one node that others may read, and u(p) is needed exactly where
root(p) is. So a cycle between instances of clusters is a cycle between instances of roots: none is created.

A read under a case happens only where the case is taken. There the argument needs that u(p) is demanded wherever the
root is, which holds when the demanded points of u are known exactly and are the same box. An output is a way out of the
cluster as well: what one reads may join only where the demanded points of the root are known exactly, too.

Of the clusters a `SchedulingProblem` is made: statements and dependences, no tensors. `ValueReads` says who reads a
value, where in the schedule, and what holds there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.analysis.demand.demand import Demand
from tempo.analysis.dependence.host_order import calls_before, effect_nodes
from tempo.lowering.scheduling.places import Place, shift
from tempo.schedule.problem import Dependence, Interval, SchedulingProblem, Statement
from tempo.sdg.call import static_type
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Edge, Graph, IndexMap, Node, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import TRUE, Box, Condition, Context, Expr, Symbol, const, over_lengths, var


@dataclass(frozen=True)
class Cluster:
    """Nodes that run together at each point of `domain`, producers first. A `host` cluster is one call of Python."""

    name: str
    nodes: tuple[int, ...]
    domain: tuple[Symbol, ...]
    host: bool = False


def cluster(graph: Graph, demands: Mapping[int, Demand]) -> tuple[Cluster, ...]:
    """The clusters, producers before consumers where no cycle forbids it.

    `demands` gives the demanded box of each node (`analysis.demand.demand`); nodes without one, inputs and constants
    are in no cluster. Near linear in the number of nodes.
    """
    ids = [id for id, node in graph.nodes.items() if not node.is_given and id in demands]
    known = set(ids)
    same_point = strongly_connected(ids, {id: _read_here(graph, id, known) for id in ids})
    order = [id for component in same_point for id in component]
    knotted = {id for component in same_point if len(component) > 1 for id in component}
    root = _roots(graph, demands, order, knotted)
    members: dict[int, list[int]] = {}
    for id in order:
        members.setdefault(root[id], []).append(id)
    named = {id: _cluster(graph.nodes[id], nodes) for id, nodes in members.items()}
    between = strongly_connected(sorted(named), {id: _read_clusters(graph, members[id], root) for id in named})
    return tuple(named[id] for component in between for id in component)


def _roots(graph: Graph, demands: Mapping[int, Demand], order: list[int], knotted: set[int]) -> dict[int, int]:
    """The root of each node's cluster; consumers are decided before their producers."""
    readers = _readers(graph, set(order))
    shown = {output.edge.node for output in graph.outputs}
    root: dict[int, int] = {}
    for id in reversed(order):
        joined = None if id in knotted else _joins(graph, demands, id, readers[id], root)
        if joined is not None and id in shown and not (demands[id].exact and demands[joined].exact):
            joined = None
        root[id] = id if joined is None else joined
    return root


def _joins(
    graph: Graph, demands: Mapping[int, Demand], id: int, readers: list[tuple[int, Edge, bool]], root: Mapping[int, int]
) -> int | None:
    """The root of the one cluster that `id` may join, or None."""
    node, wanted = graph.nodes[id], demands[id]
    if node.has_effect or not readers:
        return None
    if not all(graph.is_identity(edge) and (wanted.exact or not guarded) for _, edge, guarded in readers):
        return None
    found = {root.get(reader) for reader, _, _ in readers}
    target = found.pop()
    if found or target is None:
        return None
    consumer = graph.nodes[target]
    if consumer.has_effect or consumer.domain != node.domain or demands[target].box != wanted.box:
        return None
    return target


def _readers(graph: Graph, ids: set[int]) -> dict[int, list[tuple[int, Edge, bool]]]:
    """For each node its reads by nodes of `ids`, as (reader, edge, whether a case guards it)."""
    found: dict[int, list[tuple[int, Edge, bool]]] = {id: [] for id in graph.nodes}
    for id in ids:
        for condition, edge in graph.nodes[id].reads():
            found[edge.node].append((id, edge, condition is not None))
    return found


def _read_here(graph: Graph, id: int, known: set[int]) -> list[int]:
    """What the node reads at its own point."""
    return [edge.node for _, edge in graph.nodes[id].reads() if edge.node in known and graph.is_identity(edge)]


def _read_clusters(graph: Graph, nodes: list[int], root: Mapping[int, int]) -> list[int]:
    read = (edge.node for id in nodes for _, edge in graph.nodes[id].reads())
    return [root[id] for id in read if id in root]


def _cluster(node: Node, nodes: list[int]) -> Cluster:
    name = "".join(c if c.isalnum() else "_" for c in node.name or node.op)
    return Cluster(f"{name}_{node.id}", tuple(nodes), node.domain, node.has_effect)


# -- the problem ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clustered:
    """A graph in the form that is scheduled: clusters, and the cluster of each node that has one."""

    graph: Graph
    clusters: tuple[Cluster, ...]
    demands: Mapping[int, Demand]

    def cluster_of(self) -> dict[int, Cluster]:
        return {id: cluster for cluster in self.clusters for id in cluster.nodes}

    def stops(self) -> dict[str, Symbol]:
        """The clusters that say where the run ends, by name, each with the dim that it ends along."""
        cluster_of = self.cluster_of() if self.graph.stops else {}
        return {cluster_of[output.edge.node].name: dim for dim, output in self.graph.stops.items()}

    def box(self, cluster: Cluster) -> Box:
        return self.demands[cluster.nodes[0]].box

    def extent(self, symbol: Symbol) -> Expr:
        """How many places there are where all points along a dim are kept."""
        return over_lengths(self.graph.dim(symbol).size)

    def context(self, cluster: Cluster, *facts: Condition) -> Context:
        """What holds at the points where the cluster runs, and the facts."""
        dims = [self.graph.dim(symbol) for symbol in cluster.domain]
        return Context.of(dims, *facts, box=self.box(cluster))


def build_problem(
    program: Clustered, outermost: Symbol | None = None, facts: Condition = TRUE, seconds: float | None = None
) -> SchedulingProblem:
    """`outermost` is the dim that the caller wants to step through, if any, `seconds` how long scheduling may take."""
    statements = tuple(_statement(program, cluster) for cluster in program.clusters)
    dependences = (*_data(program), *_order(program), *_before_and_after_stops(program), *_at_the_last(program))
    return SchedulingProblem(program.graph.dims, statements, dependences, facts, outermost, seconds)


def _statement(program: Clustered, cluster: Cluster) -> Statement:
    nodes = [program.graph.nodes[id] for id in cluster.nodes]
    cost = sum(_cost(program.graph, node) for node in nodes)
    written = float(sum(_bytes(type) for node in nodes for type in node.results))
    return Statement(cluster.name, cluster.domain, program.box(cluster), cost=cost, bytes=written, host=cluster.host)


def _magnitude(extent: Expr) -> int:
    """A symbolic extent counts as one, for schedulers compare only magnitudes."""
    return extent.as_int() if extent.is_const else 1


def _cost(graph: Graph, node: Node) -> float:
    operands = [static_type(graph.seen_type(edge), _magnitude) for edge in node.operands]
    results = [static_type(type, _magnitude) for type in node.results]
    if not results:
        return 0.0
    return OPERATORS[node.op].cost(call_for(node.op, node.attrs, operands, results[0], _magnitude))


def _bytes(type: TensorType) -> int:
    found = static_type(type, _magnitude)
    return found.elements * dtypes.itemsize(found.dtype)


def intervals(edge: Edge) -> tuple[Interval, ...]:
    """Which points of the producer the edge reads, logically."""
    found = []
    for index in edge.map:
        if isinstance(index, Point):
            found.append(Interval(index.index, index.index))
        else:
            found.append(Interval(index.start, index.start + index.length - 1))
    return tuple(found)


def _data(program: Clustered) -> Iterator[Dependence]:
    cluster_of = program.cluster_of()
    for cluster in program.clusters:
        reads = (_reads_of(program, cluster_of, id) for id in cluster.nodes)
        yield from dict.fromkeys(itertools.chain.from_iterable(reads))


def _reads_of(program: Clustered, cluster_of: Mapping[int, Cluster], id: int) -> Iterator[Dependence]:
    """The dependences of one node, but for what it reads at its own point of its own cluster."""
    graph, target = program.graph, cluster_of[id]
    node = graph.nodes[id]
    reduces = node.op.startswith("reduce_") or node.op == "dot"
    for condition, edge in node.guarded_reads():
        source = cluster_of.get(edge.node)
        if source is None or (source is target and graph.is_identity(edge)):
            continue
        folded = reduces and any(isinstance(index, Slice) for index in edge.map)
        yield Dependence(source.name, target.name, intervals(edge), condition, "data", reduction=folded)


def _order(program: Clustered) -> Iterator[Dependence]:
    """The order among host calls: each is held behind those one step before it, which are behind those before them."""
    graph, cluster_of = program.graph, program.cluster_of()
    calls = [node for node in effect_nodes(graph) if node.id in cluster_of]
    for before in itertools.chain.from_iterable(calls_before(graph, node) for node in calls):
        if before.source not in cluster_of:
            continue
        names = cluster_of[before.source].name, cluster_of[before.target].name
        for equal, less in before.cones():
            relation = tuple(
                _same(symbol) if symbol in equal else _previous(symbol) if symbol == less else _whole(graph, symbol)
                for symbol in graph.nodes[before.source].domain
            )
            yield Dependence(*names, relation, TRUE if less is None else var(less).ge(1), "order")


def _before_and_after_stops(program: Clustered) -> Iterator[Dependence]:
    """A stop comes after outputs and effects at its point along its dim. What goes step by step, and whatever leaves
    something behind, comes after the stop of the point before. What is read without the dim, which is at its first
    point alone, comes before the first stop.

    Other values have no time of their own: `h[t + 1] = f(x)` makes `x` at t for the point t + 1.
    """
    cluster_of = program.cluster_of()
    kept = {cluster_of[output.edge.node].name for output in program.graph.outputs if output.edge.node in cluster_of}
    for dim, output in program.graph.stops.items():
        stop = cluster_of[output.edge.node]
        for cluster in program.clusters:
            if dim not in cluster.domain:
                yield from _read_though_it_ends(program, cluster, dim, stop)
                continue
            leaves_something = cluster.name in kept or cluster.host
            if leaves_something or any(program.graph.nodes[id].is_merge for id in cluster.nodes):
                yield Dependence(stop.name, cluster.name, (_previous(dim),), var(dim).ge(1), "order")
            if leaves_something and cluster is not stop:
                here = (_same(dim) if symbol == dim else _whole(program.graph, symbol) for symbol in cluster.domain)
                yield Dependence(cluster.name, stop.name, tuple(here), TRUE, "order")


def _read_though_it_ends(program: Clustered, reader: Cluster, dim: Symbol, stop: Cluster) -> Iterator[Dependence]:
    """What a cluster that does not vary along the dim reads of clusters that do is made whenever the run ends."""
    graph, cluster_of = program.graph, program.cluster_of()
    for edge in (edge for id in reader.nodes for _, edge in graph.nodes[id].reads()):
        source = cluster_of.get(edge.node)
        if source is None or source is stop or dim not in source.domain:
            continue
        read = zip(source.domain, intervals(edge), strict=True)
        relation = (_whole(graph, symbol) if each.lo.dims() | each.hi.dims() else each for symbol, each in read)
        yield Dependence(source.name, stop.name, tuple(relation), var(dim).eq(0), "order")


def _at_the_last(program: Clustered) -> Iterator[Dependence]:
    """What is read at the last point of a dim is there when the loop over it has ended."""
    graph, cluster_of = program.graph, program.cluster_of()
    made = {output.port: output for output in graph.outputs if output.role == "last"}
    for cluster in program.clusters if made else ():
        edges = (edge for id in cluster.nodes for _, edge in graph.nodes[id].reads())
        given = dict.fromkeys(graph.nodes[edge.node].port for edge in edges if graph.nodes[edge.node].is_input)
        for output in (made[port] for port in given if port in made):
            source = cluster_of[output.edge.node]
            relation = tuple(_whole(graph, symbol) for symbol in source.domain)
            yield Dependence(source.name, cluster.name, relation, TRUE, "order")


def _same(symbol: Symbol) -> Interval:
    return Interval(var(symbol), var(symbol))


def _previous(symbol: Symbol) -> Interval:
    return Interval(var(symbol) - 1, var(symbol) - 1)


def _whole(graph: Graph, symbol: Symbol) -> Interval:
    return Interval(const(0), graph.dim(symbol).size - 1)


# -- reads ---------------------------------------------------------------------------------------------------------

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
