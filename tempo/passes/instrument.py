"""Nodes that a program is given to be watched or guarded by, as any others are: no backend or pass knows of them.

What `tp.Options(check_finite=True)` looks at is outputs of a role of their own, "watch", that say where a definition is
not finite; they demand nothing that the program does not.

In a run that may end early, whatever is made ahead of a stop, or beside it, may be made at points that nobody asks for
in the end. There a checked index is 0: it is `where(goes_on, index, 0)`, with `goes_on[t]` false from the first point
on that is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tempo import dtypes
from tempo.analysis.checks.stopping import first_asked
from tempo.analysis.demand.demand import Demand, certain_points, demand
from tempo.analysis.reports import output_reader
from tempo.passes.rows import rows_going
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, Point, TensorType
from tempo.sdg.operators.located import must_not_fail
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import FALSE, TRUE, Box, Condition, Context, Expr, Symbol, disjunction, maximum, minimum, var

UNKNOWN, FINITE, INFINITE, NOT_A_NUMBER = 0, 1, 2, 3
"""What a watch holds at each point, int8; a tensor with both is not a number. Buffers begin with zeros."""

_VALUES = TensorType((), "int8")


@dataclass(frozen=True)
class Watch:
    """The output `name` of role "watch" says at every point of `reader`'s domain whether what `edge` reads is finite.

    `reader` is the node to name in messages: the definition that is read, or the output of the user's that reads it.
    """

    name: str
    edge: Edge
    reader: Node


def watched(graph: Graph) -> tuple[Graph, tuple[Watch, ...]]:
    """The graph with a watch on every floating definition (recurrent tensors, parameters, results of calls) and output.

    A definition is looked at at the points that are proven to be demanded; the others, and one whose shape varies, are
    left to those that read them.
    """
    rewriter = Rewriter(graph)
    watches: list[Watch] = []
    outputs: list[Output] = []
    for reader, edge, where in _looked_at(graph, rewriter):
        value = _verdict(Tensors(rewriter, reader.location), edge)
        if where != TRUE:
            value = _only(rewriter, reader, where, value)
        watch = Watch(str(len(watches)), edge, reader)
        watches.append(watch)
        outputs.append(Output(watch.name, value, reader.domain, _VALUES, reader.domain, "watch", reader.location))
    return replace(graph, nodes=rewriter.nodes, outputs=(*graph.outputs, *outputs)), tuple(watches)


def _looked_at(graph: Graph, rewriter: Rewriter) -> Iterator[tuple[Node, Edge, Condition]]:
    """Readers, what they read, and where."""
    certain = certain_points(graph)
    taken: set[Edge] = set()
    for node in graph.nodes.values():
        if not _is_definition(node):
            continue
        where = _points(graph, node, certain.get(node.id, ()))
        for at, type in enumerate(node.results):
            if dtypes.is_float(type.dtype) and not any(size.dims() for size in type.shape) and where != FALSE:
                edge = replace(rewriter.identity(node.id), result=at)
                taken.add(edge)
                yield node, edge, where
    for output in graph.outputs:
        if output.role == "output" and dtypes.is_float(output.type.dtype) and output.edge not in taken:
            yield output_reader(output), output.edge, TRUE


def _is_definition(node: Node) -> bool:
    return node.is_host_call or node.is_backend_call or node.attr("role") in ("recurrent", "parameter")


def _points(graph: Graph, node: Node, boxes: Sequence[Box]) -> Condition:
    """Where a definition is looked at."""
    whole = Box.full(graph.domain_dims(node))
    reached = [box for box in boxes if not any(lo == hi for _, lo, hi in box.bounds)]
    return TRUE if whole in reached else disjunction(box.condition() for box in reached)


def _verdict(tensors: Tensors, edge: Edge) -> Edge:
    axes = tuple(range(tensors.rank(edge)))

    finite = tensors.constant(FINITE, _VALUES.dtype)

    def some(flags: Edge) -> Edge:
        held = tensors.apply("reduce_any", flags, axes=axes) if axes else flags
        return tensors.cast(held, _VALUES.dtype)

    not_finite = tensors.apply("logical_not", tensors.apply("isfinite", edge))
    counted = tensors.apply("add", some(not_finite), some(tensors.apply("isnan", edge)))
    return tensors.apply("add", finite, counted)


def _only(rewriter: Rewriter, reader: Node, where: Condition, value: Edge) -> Edge:
    elsewhere = Tensors(rewriter, reader.location).constant(FINITE, _VALUES.dtype)
    cases = (Case(where, value), Case(TRUE, elsewhere))
    return rewriter.cases(cases, _VALUES, "", locate=lambda: reader.location)


_BOOL = TensorType((), "bool")


def unchecked_past_stops(graph: Graph, facts: Condition = TRUE) -> Graph:
    """The graph, whose checked indices are 0 at points that are asked for past the end of the run alone."""
    checking = [node for node in graph.nodes.values() if must_not_fail(node)]
    stops = {dim: output for dim, output in graph.stops.items() if not graph.nodes[output.edge.node].is_constant}
    if not checking or not stops:
        return graph
    demands, rewriter = demand(graph, facts), Rewriter(graph)
    for dim, output in stops.items():
        along = [node.id for node in checking if dim in node.domain and node.id in demands]
        asked = first_asked(graph, demands, dim) if along else {}
        known = [id for id in along if id in asked]
        rows, going = graph.lengths.get(dim), {}
        if rows is not None and output.resumes:
            output = replace(output, edge=_over(rewriter, rows, dim))
        for node in (rewriter.nodes[id] for id in known):
            ending = rows if rows is not None and set(rows.domain) <= set(node.domain) else output
            if ending not in going:
                going[ending] = _going_on(rewriter, ending, dim)
            at = _within(graph, demands, node, dim, var(dim) + asked[node.id], facts)
            read = tuple(Point(at if symbol == dim else var(symbol)) for symbol in ending.domain)
            rewriter.nodes[node.id] = _masked(rewriter, node, Edge(going[ending], read))
    return replace(graph, nodes=rewriter.nodes)


def _within(graph: Graph, demands: Mapping[int, Demand], node: Node, dim: Symbol, at: Expr, facts: Condition) -> Expr:
    """A point of the dim, also where nobody asks for the node."""
    here = Context.of(graph.domain_dims(node), facts, box=demands[node.id].box)
    return here.simplify(maximum(minimum(at, graph.dim(dim).size - 1), 0))


def _over(rewriter: Rewriter, rows: Output, dim: Symbol) -> Edge:
    """What is 0 for as long as a row goes on."""
    tensors = Tensors(rewriter, rows.location)
    some = tensors.apply("reduce_any", rows_going(tensors, rows.edge, dim), axes=tuple(range(len(rows.rows))))
    return tensors.apply("where", some, tensors.constant(0, "int32"), tensors.constant(1, "int32"))


def _going_on(rewriter: Rewriter, stop: Output, dim: Symbol) -> int:
    """`goes_on[0] = True, goes_on[t + 1] = goes_on[t] and stop[t] == 0`, of the run or of each row."""
    tensors = Tensors(rewriter, stop.location)
    begun = tensors.constant(True, "bool")
    still = tensors.apply("eq", stop.edge, tensors.constant(0, "int32"))
    attrs = (("name", f"{dim.name} goes on"), ("role", "recurrent"))
    declared = rewriter.declare(Node(-1, "merge", stop.domain, (_BOOL,), (), attrs, location=stop.location))
    both = tensors.apply("logical_and", declared, still)
    before = replace(both, map=tuple(Point(var(each) - 1 if each == dim else var(each)) for each in stop.domain))
    cases = (Case(var(dim).eq(0), begun, stop.location), Case(TRUE, before, stop.location))
    rewriter.define(declared, cases)
    return declared.node


def _masked(rewriter: Rewriter, node: Node, goes_on: Edge) -> Node:
    tensors, indices = Tensors(rewriter, node.location), range(1, 1 + node.attr("count", 1))

    def masked(edge: Edge) -> Edge:
        return tensors.apply("where", goes_on, edge, tensors.constant(0, tensors.seen(edge).dtype))

    operands = (masked(edge) if at in indices else edge for at, edge in enumerate(node.operands))
    return replace(node, operands=tuple(operands))
