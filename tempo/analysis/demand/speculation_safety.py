"""Nodes that can be computed at every point of the demanded box, whether that point is demanded or not.

The corners of a stencil's edge are read by nobody, and the demand of all that is read is no box. But they can be made
like the rest: every read of theirs is in range, every case decides, nothing is called, and so it is for what they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from tempo.analysis.demand.demand import Demand
from tempo.analysis.obligations import Obligation, obligations_of
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators.located import must_not_fail
from tempo.symbolic import TRUE, Condition, Context


def harmless(
    graph: Graph,
    demands: Mapping[int, Demand],
    nodes: Iterable[int],
    facts: Condition = TRUE,
    is_whole: Callable[[int], bool] = lambda id: False,
) -> set[int]:
    """Those of `nodes` that can be made at all points of their boxes: each on its own, and all that it reads there.

    The box of what is read holds every point that is read from the reader's box. It is assumed of all that they are,
    and dropped where it fails until nothing does. `is_whole`: whether all of a node's box is demanded, or nothing of
    it and so nothing of those that read it; asked of what fails for some indices.
    """
    cone = _cone(graph, demands, nodes)
    readers: dict[int, set[int]] = defaultdict(set)
    for id in cone:
        for _, edge in graph.nodes[id].reads():
            readers[edge.node].add(id)
    failing = [id for id in cone if not _can_be_made(graph, graph.nodes[id], demands, facts)]
    whole = {id for id in failing if must_not_fail(graph.nodes[id]) and is_whole(id)}
    lost = [id for id in failing if id not in whole]
    found = cone - set(lost)
    while lost:
        fresh = readers[lost.pop()] & found - whole
        found -= fresh
        lost += fresh
    return found


def _cone(graph: Graph, demands: Mapping[int, Demand], nodes: Iterable[int]) -> set[int]:
    """The nodes and what they are made of, up to what is demanded at all points."""
    found, pending = set[int](), list(nodes)
    while pending:
        id = pending.pop()
        if id in found:
            continue
        found.add(id)
        pending += [edge.node for _, edge in graph.nodes[id].reads() if not _is_there(graph, demands, edge.node)]
    return found


def _is_there(graph: Graph, demands: Mapping[int, Demand], id: int) -> bool:
    return demands[id].exact or graph.nodes[id].is_given


def _can_be_made(graph: Graph, node: Node, demands: Mapping[int, Demand], facts: Condition) -> bool:
    if node.is_call or must_not_fail(node) or node.attr("role") == "parameter":
        return False
    here = Context.of(graph.domain_dims(node), facts, box=demands[node.id].box)
    return all(_holds(here, obligation) for obligation in obligations_of(graph, node))


def _holds(here: Context, obligation: Obligation) -> bool:
    return here.assume(obligation.guard).implies(obligation.goal)
