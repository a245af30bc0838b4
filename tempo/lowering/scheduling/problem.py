"""From a graph and its clusters to the `SchedulingProblem`: statements and dependences, no tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.analysis.demand.demand import Demand
from tempo.analysis.dependence.host_order import calls_before, effect_nodes
from tempo.lowering.scheduling.clusters import Cluster
from tempo.schedule.problem import Dependence, Interval, SchedulingProblem, Statement
from tempo.sdg.call import static_type
from tempo.sdg.graph import Edge, Graph, Node, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.sdg.stops import stops_of
from tempo.symbolic import TRUE, Box, Condition, Context, Expr, Symbol, const, var


@dataclass(frozen=True)
class Clustered:
    """A graph in the form that is scheduled: clusters, and the cluster of each node that has one."""

    graph: Graph
    clusters: tuple[Cluster, ...]
    demands: Mapping[int, Demand]

    def cluster_of(self) -> dict[int, Cluster]:
        return {id: cluster for cluster in self.clusters for id in cluster.nodes}

    def box(self, cluster: Cluster) -> Box:
        return self.demands[cluster.nodes[0]].box

    def context(self, cluster: Cluster, *facts: Condition) -> Context:
        """What holds at the points where the cluster runs, and the facts."""
        dims = [self.graph.dim(symbol) for symbol in cluster.domain]
        return Context.of(dims, *facts, box=self.box(cluster))


def build_problem(
    program: Clustered, outermost: Symbol | None = None, facts: Condition = TRUE, seconds: float | None = None
) -> SchedulingProblem:
    """`outermost` is the dim that the caller wants to step through, if any, `seconds` how long scheduling may take."""
    statements = tuple(_statement(program, cluster) for cluster in program.clusters)
    dependences = (*_data(program), *_order(program), *_before_and_after_stops(program))
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
    something behind, comes after the stop of the point before.

    Other values have no time of their own: `h[t + 1] = f(x)` makes `x` at t for the point t + 1.
    """
    cluster_of = program.cluster_of()
    kept = {cluster_of[output.edge.node].name for output in program.graph.outputs if output.edge.node in cluster_of}
    for dim, output in stops_of(program.graph).items():
        stop = cluster_of[output.edge.node]
        for cluster in program.clusters:
            if dim not in cluster.domain:
                continue
            leaves_something = cluster.name in kept or cluster.host
            if leaves_something or any(program.graph.nodes[id].is_merge for id in cluster.nodes):
                yield Dependence(stop.name, cluster.name, (_previous(dim),), var(dim).ge(1), "order")
            if leaves_something and cluster is not stop:
                here = (_same(dim) if symbol == dim else _whole(program.graph, symbol) for symbol in cluster.domain)
                yield Dependence(cluster.name, stop.name, tuple(here), TRUE, "order")


def _same(symbol: Symbol) -> Interval:
    return Interval(var(symbol), var(symbol))


def _previous(symbol: Symbol) -> Interval:
    return Interval(var(symbol) - 1, var(symbol) - 1)


def _whole(graph: Graph, symbol: Symbol) -> Interval:
    return Interval(const(0), graph.dim(symbol).size - 1)
