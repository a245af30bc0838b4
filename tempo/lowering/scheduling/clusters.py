"""Clusters: nodes of equal domain become one statement, so that schedulers see statements and not operators.

A node u joins the cluster of its consumers when every read of it comes from that one cluster, at the same point. Then
every path out of the cluster starts at its root, the one node that others may read, and u(p) is needed exactly where
root(p) is. So a cycle between instances of clusters is a cycle between instances of roots: none is created.

A read under a case happens only where the case is taken. There the argument needs that u(p) is demanded wherever the
root is, which holds when the demanded points of u are known exactly and are the same box. An output is a way out of the
cluster as well: what one reads may join only where the demanded points of the root are known exactly, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tempo.analysis.demand.demand import Demand
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Edge, Graph, Node
from tempo.symbolic import Symbol


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
