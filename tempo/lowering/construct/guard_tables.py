"""Which statements may run at points that nobody demands.

The demand of a node is known as a box, which may be too large. Running a pure node at such a point is harmless as long
as it stays within its producers' buffers and raises nothing. Where that is not proven, the statement is guarded by a
table of the exactly demanded points, made when the sizes are known; then every other statement with an inexact box is
guarded too, so that what runs reads only what ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from tempo.lowering.scheduling.clusters import Cluster, Clustered
from tempo.sdg.graph import Edge, Node, Point
from tempo.sdg.operators.located import must_not_fail
from tempo.symbolic import Condition, Context, conjunction, disjunction


def clusters_with_tables(program: Clustered, checks: bool) -> dict[str, int]:
    """Names of the clusters that a table guards, with the node whose demanded points it holds (the cluster's last)."""
    inexact = [cluster for cluster in program.clusters if not _exact(program, cluster)]
    if all(_harmless(program, cluster, checks) for cluster in inexact):
        return {}
    return {cluster.name: cluster.nodes[-1] for cluster in inexact}


def _exact(program: Clustered, cluster: Cluster) -> bool:
    return all(program.demands[id].exact for id in cluster.nodes)


def _harmless(program: Clustered, cluster: Cluster, checks: bool) -> bool:
    if cluster.host:
        return False
    context = program.context(cluster)
    return all(_node_is_harmless(program, program.graph.nodes[id], context, checks) for id in cluster.nodes)


def _node_is_harmless(program: Clustered, node: Node, context: Context, checks: bool) -> bool:
    if checks and must_not_fail(node):
        return False
    covered = disjunction(case.condition for case in node.cases)
    if node.is_merge and not context.implies(covered & conjunction(_parts_inside(program, node))):
        return False
    reads = node.guarded_reads()
    if not all(context.assume(guard).implies(conjunction(_inside(program, edge))) for guard, edge in reads):
        return False
    return context.implies(conjunction((*_slices_inside(program, node), *_extents_exist(program, node))))


def _parts_inside(program: Clustered, node: Node) -> Iterator[Condition]:
    """Where a case is taken, the element that it takes of a row is one of the row's."""
    for case, (guard, _) in zip(node.cases, node.guarded_reads(), strict=True):
        if case.part is not None:
            size = program.graph.seen_type(case.edge).shape[case.part.order[0]]
            yield ~guard | case.part.is_one_of(size)


def _inside(program: Clustered, edge: Edge) -> Iterator[Condition]:
    """Every point index is within its dim; windows are clamped or wrapped wherever they are."""
    for index, dim in zip(edge.map, program.graph.nodes[edge.node].domain, strict=True):
        if isinstance(index, Point):
            yield index.index.ge(0) & index.index.lt(program.graph.dim(dim).size)


def _slices_inside(program: Clustered, node: Node) -> Iterator[Condition]:
    if node.op == "slice":
        shape = program.graph.seen_type(node.operands[0]).shape
        for start, length, size in zip(node.attr("starts"), node.attr("lengths"), shape, strict=True):
            yield start.ge(0) & (start + length).le(size)


def _extents_exist(program: Clustered, node: Node) -> Iterator[Condition]:
    """No extent of what the node takes and makes is below zero."""
    seen = (program.graph.seen_type(edge) for _, edge in node.guarded_reads())
    return (extent.ge(0) for type in (*node.results, *seen) for extent in type.shape)
