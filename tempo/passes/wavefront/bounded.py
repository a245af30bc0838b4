"""What has no finite gradient at points that nobody asks for, kept finite there: in tiles nothing says where rows end.

w / x[b, t], read by h[b, t + 1] alone         ->      w / where(t + 1 <= t.last, x[b, t], 1)
"""

from __future__ import annotations

from dataclasses import replace

from tempo.analysis.asked import FINITE_AT, asked_by_all, unbounded_reads
from tempo.sdg.graph import Graph
from tempo.sdg.rewriter import Rewriter, Tensors


def bounded(graph: Graph) -> tuple[Graph, frozenset[int]]:
    """A graph before its gradients are expanded, in which operators that may not be finite where nobody asks for them
    are made of finite numbers there; and those that may still not be, as where losses ask for less than others do."""
    if not graph.ragged or all(node.op != "gradient" for node in graph.nodes.values()):
        return graph, frozenset()
    by_all, losses = asked_by_all(graph)
    each = (by_all, *losses)
    begin = [graph.nodes[id] for id in by_all.where if any(asked.begins_astray(id) for asked in each)]
    rewriter, left = Rewriter(graph), set[int]()
    for node in begin:
        fill, where = FINITE_AT[node.op], by_all.where[node.id]
        if fill is None or any(asked.where.get(node.id, where) != where for asked in losses):
            left.add(node.id)
            continue
        tensors, operands = Tensors(rewriter, node.location), list(node.operands)
        there = by_all.holds(tensors, node.id)
        for number in unbounded_reads(node):
            safe = tensors.constant(fill, tensors.dtype(operands[number]))
            operands[number] = tensors.apply("where", there, operands[number], safe)
        rewriter.nodes[node.id] = replace(node, operands=tuple(operands))
    made = replace(graph, nodes=rewriter.nodes) if len(left) < len(begin) else graph
    return made, frozenset(id for asked in each for id in asked.astray_from(left))
