"""Checked indices in a run that may end early: none of a point past the end is looked at.

Whatever is made ahead of a stop, or beside it, may be made at points that nobody asks for in the end. There a checked
index is 0: it is `where(goes_on, index, 0)`, with `goes_on[t]` false from the first point on that is not kept. So no
pass, scheduler or backend has a case for it: the index depends on the stop as anything may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tempo import dtypes
from tempo.analysis.checks.stopping import first_asked
from tempo.analysis.demand.demand import Demand, demand
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, Point, TensorType
from tempo.sdg.operators.located import must_not_fail
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.sdg.stops import stops_of
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol, maximum, minimum, var

_BOOL = TensorType((), "bool")


def unchecked_past_stops(graph: Graph, facts: Condition = TRUE) -> Graph:
    """The graph, whose checked indices are 0 at points that are asked for past the end of the run alone."""
    checking = [node for node in graph.nodes.values() if must_not_fail(node)]
    stops = {dim: output for dim, output in stops_of(graph).items() if not graph.nodes[output.edge.node].is_constant}
    if not checking or not stops:
        return graph
    demands, rewriter = demand(graph, facts), Rewriter(graph)
    for dim, output in stops.items():
        along = [node.id for node in checking if dim in node.domain and node.id in demands]
        asked = first_asked(graph, demands, dim) if along else {}
        known = [id for id in along if id in asked]
        going = _going_on(rewriter, output) if known else None
        for node in (rewriter.nodes[id] for id in known):
            assert going is not None
            at = _within(graph, demands, node, dim, var(dim) + asked[node.id], facts)
            rewriter.nodes[node.id] = _masked(rewriter, node, Edge(going, (Point(at),)))
    return replace(graph, nodes=rewriter.nodes)


def _within(graph: Graph, demands: Mapping[int, Demand], node: Node, dim: Symbol, at: Expr, facts: Condition) -> Expr:
    """A point of the dim, also where nobody asks for the node."""
    here = Context.of(graph.domain_dims(node), facts, box=demands[node.id].box)
    return here.simplify(maximum(minimum(at, graph.dim(dim).size - 1), 0))


def _going_on(rewriter: Rewriter, stop: Output) -> int:
    """`goes_on[0] = True, goes_on[t + 1] = goes_on[t] and stop[t] == 0`."""
    (dim,) = stop.domain
    tensors = Tensors(rewriter, stop.location)
    begun = tensors.apply("constant", value=ArrayValue(np.ones((), np.bool_)))
    still = tensors.apply("eq", stop.edge, tensors.apply("constant", value=ArrayValue(np.zeros((), np.int32))))
    attrs = (("name", f"{dim.name} goes on"), ("role", "recurrent"))
    declared = rewriter.declare(Node(-1, "merge", stop.domain, (_BOOL,), (), attrs, location=stop.location))
    both = tensors.apply("logical_and", declared, still)
    before = replace(both, map=(Point(var(dim) - 1),))
    cases = (Case(var(dim).eq(0), begun, stop.location), Case(TRUE, before, stop.location))
    rewriter.define(declared, cases)
    return declared.node


def _masked(rewriter: Rewriter, node: Node, goes_on: Edge) -> Node:
    tensors, indices = Tensors(rewriter, node.location), range(1, 1 + node.attr("count", 1))

    def masked(edge: Edge) -> Edge:
        zero = np.zeros((), dtypes.to_numpy(rewriter.seen_type(edge).dtype))
        return tensors.apply("where", goes_on, edge, tensors.apply("constant", value=ArrayValue(zero)))

    operands = (masked(edge) if at in indices else edge for at, edge in enumerate(node.operands))
    return replace(node, operands=tuple(operands))
