"""At which points of rows that have lengths somebody asks for each node.

Demand (`tempo.analysis.demand`) knows the dims' sizes, and not where a row ends. Here conditions on a row's last point
follow every read, back from who reads: `1 / x` that is read by `h[b, t + 1]` alone is asked for where
`t + 1 <= t.last`, and a side of a selection by the end of a row where it is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import count

from tempo.analysis.demand.demand import demand
from tempo.analysis.rows import is_ragged, with_losses
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice, substitute_index
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import (
    FALSE,
    TRUE,
    And,
    Box,
    Comparison,
    Condition,
    Context,
    Eq,
    Expr,
    FloorDiv,
    Or,
    Symbol,
    conjunction,
    disjunction,
    from_terms,
    over_counts,
    projected,
    var,
)

FINITE_AT: Mapping[str, float | None] = {
    **dict.fromkeys(("div", "floordiv", "mod", "pow", "log", "log1p", "exp", "expm1", "sqrt", "rsqrt", "tan"), 1),
    **dict.fromkeys(("sinh", "cosh", "atan2", "reduce_prod", "cumprod"), 1),
    **dict.fromkeys(("asin", "acos", "atanh"), 0),
    "acosh": 2,
    **dict.fromkeys(("det", "solve", "cholesky", "layer_norm", "rms_norm"), None),
}
"""Operators that may not be finite, or not have a finite derivative, where all that they are made of is; and at which
number they are, whatever their shape."""

_MOST_SWEEPS = 4
"""What is asked for by cycles is widened to all points behind so many sweeps in which it grows."""


def unbounded_reads(node: Node) -> Sequence[int]:
    """The numbers of the operands for which an operator may not be finite, or not have a finite derivative, though all
    that it is made of is."""
    if node.op not in FINITE_AT or node.attr("epsilon"):
        return ()
    return range(node.op in ("div", "floordiv", "mod"), len(node.operands))  # a quotient by what it is divided


def differentiated(node: Node) -> Node:
    """Without reads that no derivative goes through. A parameter is a leaf.

    Of a function of the backend nothing is known, so it may: it has no rule, and to need one is an error.
    """
    if node.is_merge:
        return replace(node, cases=()) if node.attr("role") == "parameter" else node
    if node.op == "custom_gradient":  # the first is the value; its rule says what the others get
        return replace(node, operands=node.operands[1:])
    is_leaf = OPERATORS[node.op].gradient is None and not node.is_backend_call
    return replace(node, operands=()) if is_leaf else node


def all_differentiated(graph: Graph) -> Graph:
    return replace(graph, nodes={id: differentiated(node) for id, node in graph.nodes.items()})


def asked_by_all(graph: Graph) -> tuple[Asked, list[Asked]]:
    """Of a graph before its gradients are expanded: by whom nodes are asked for, all, and each gradient alone."""
    whole, ends = with_losses(graph), graph.ragged.values()
    losses = whole.outputs[len(graph.outputs) :]
    alone = [replace(whole, outputs=(loss,)) for loss in losses]
    by_gradients = [asked_by_gradient(each, _boxes(all_differentiated(each)), ends) for each in alone]
    return asked_by_outputs(whole, ends), by_gradients


def asked_by_outputs(graph: Graph, ends: Iterable[Output]) -> Asked:
    """By whom nodes are asked for in all."""
    return Asked(graph, _boxes(graph), ends)


def asked_by_gradient(graph: Graph, boxes: Mapping[int, Box], ends: Iterable[Output]) -> Asked:
    """Of the graph of what is differentiated: who asks for what may not be finite, and for what is made of it, so that
    the gradient needs it; `boxes` are the points that it does, whatever the lengths."""
    readers, there = graph.consumers, graph.reachable()
    begin = (id for id in there if _may_stray(graph.nodes[id]))
    made = reached(begin, lambda id: [reader for reader, _ in readers[id]])
    return Asked(all_differentiated(graph), {id: boxes[id] for id in made & boxes.keys()}, ends, graph)


def _may_stray(node: Node) -> bool:
    return any(node.operands[number].dims() for number in unbounded_reads(node))


def _boxes(graph: Graph) -> dict[int, Box]:
    return {id: found.box for id, found in demand(graph).items()}


class Asked:
    """`boxes` are the points that are demanded of each node that is looked at, as all are that read one of them,
    whatever the lengths; `ends` give these. Values are made in `whole`: in `graph`, or where that has fewer reads."""

    def __init__(
        self, graph: Graph, boxes: Mapping[int, Box], ends: Iterable[Output], whole: Graph | None = None
    ) -> None:
        self.graph, self._whole = graph, whole or graph
        self._boxes = {id: box.condition() for id, box in boxes.items()}
        self._ends = {last_of(end): end for end in ends}
        self._visited: dict[int, tuple[tuple[Condition, ...], Condition, list[tuple[int, Condition]]]] = {}
        self._simplified: dict[int, Condition] = {}

    @cached_property
    def where(self) -> Mapping[int, Condition]:
        """By node, what holds at each point that is asked for, over its dims and the last points of its own rows; there
        may be others at which it holds."""
        known: dict[int, Condition] = dict.fromkeys(self._cut, FALSE)
        for sweep in count(1):
            found, received = self._sweep(known)
            grown = {id: self._joined(id, known[id], received.get(id, ())) for id in known.keys() & found.keys()}
            moved = [id for id, where in grown.items() if where != known[id]]
            if not moved:
                break
            known |= grown if sweep < _MOST_SWEEPS else dict.fromkeys(moved, TRUE)
        return found

    def is_whole(self, id: int) -> bool:
        """Whether, wherever a row ends, all points that there are of a node may be asked for."""
        where = self.condition(id) if id in self.where else FALSE
        return where != FALSE and not self._ends_in(where)

    def condition(self, id: int) -> Condition:
        """Where a node is asked for, of the points that are demanded and in its rows."""
        if id not in self._simplified:
            where = self._context(id).simplify_condition(over_counts(self.where[id]))
            self._simplified[id] = where.substitute({last: var(last) + 2 for last in self._ends})
        return self._simplified[id]

    @cached_property
    def astray(self) -> frozenset[int]:
        """Operators that may not be finite, or not have a finite derivative, at points that nobody asks for:
        themselves, or through what they read there."""
        return self.astray_from(id for id in self._whole.reachable() if self.begins_astray(id))

    def astray_from(self, begin: Iterable[int]) -> frozenset[int]:
        """These, and what is made of them at points that nobody asks for."""
        readers = self._whole.consumers
        return frozenset(reached(begin, lambda id: [each for each, _ in readers[id] if not self.is_whole(each)]))

    def begins_astray(self, id: int) -> bool:
        """Whether it is the operator itself that may not be, and not what it reads."""
        return _may_stray(self._whole.nodes[id]) and id in self._whole.reachable() and not self.is_whole(id)

    def selects(self, node: Node, number: int) -> Condition:
        """Where an operand counts: the sides of a selection by the end of a row do in turn."""
        condition = self.graph.guards.get(node.id, TRUE)
        return TRUE if number == 0 or condition == TRUE else condition if number == 1 else ~condition

    def in_rows(self, node: Node) -> Condition:
        """That a point of the node is one of its rows."""
        return conjunction(
            var(end.along).le(var(last)) for last, end in self._ends.items() if is_ragged(end, node.domain)
        )

    def holds(self, tensors: Tensors, id: int) -> Edge:
        """Whether each point of a node is asked for, as a value."""
        return self._value(tensors, self.condition(id))

    # Where a node is asked for.

    def _sweep(self, known: Mapping[int, Condition]) -> tuple[dict[int, Condition], dict[int, list[Condition]]]:
        """Where each node is asked for if definitions on cycles are where it is known; and what each is sent."""
        asked: dict[int, list[Condition]] = {output.edge.node: [TRUE] for output in self.graph.outputs}
        found: dict[int, Condition] = {}
        for id in self._readers_first:
            by_readers = (known[id],) if id in known else tuple(asked.get(id, [TRUE]))
            if id not in self._visited or self._visited[id][0] != by_readers:
                self._visited[id] = by_readers, *self._visit(self.graph.nodes[id], disjunction(by_readers))
            _, found[id], sent = self._visited[id]
            for producer, where in sent:
                asked.setdefault(producer, []).append(where)
        return found, asked

    def _visit(self, node: Node, by_readers: Condition) -> tuple[Condition, list[tuple[int, Condition]]]:
        """Where a node is asked for, and so what it reads."""
        where = self._boxes[node.id] & by_readers & self.in_rows(node)
        sent = []
        for number, (condition, edge) in enumerate(node.guarded_reads()):
            if edge.node in self._boxes:
                here = where & condition & self.selects(node, number)
                sent.append((edge.node, self._seen_from(node, edge, here)))
        return where, sent

    def _joined(self, id: int, known: Condition, received: Iterable[Condition]) -> Condition:
        """Where any of these hold, but for what others imply."""
        context = self._context(id)
        for each in received:
            if known == TRUE or context.assume(over_counts(each)).implies(over_counts(known)):
                continue
            is_wider = known == FALSE or context.assume(over_counts(known)).implies(over_counts(each))
            known = each if is_wider else known | each
        return known

    def _context(self, id: int) -> Context:
        inside = self._boxes[id] & self.in_rows(self.graph.nodes[id])
        return Context.of(self.graph.dims).assume(over_counts(inside))

    @cached_property
    def _readers_first(self) -> list[int]:
        """All that are looked at, but those that cycles run through in front."""
        producers = {id: [each for each in self.graph.producers(id) if each in self._boxes] for id in self._boxes}
        reads = {id: [] if id in self._cut else producers[id] for id in producers}
        order = [id for each in strongly_connected(reads, reads) for id in each][::-1]
        return sorted(order, key=lambda id: id not in self._cut)

    @cached_property
    def _cut(self) -> set[int]:
        """The definitions that cycles run through."""
        cycles = (ids for ids in self.graph.components if len(ids) > 1 or ids[0] in self.graph.producers(ids[0]))
        merges = (self.graph.nodes[id] for ids in cycles for id in ids if self.graph.nodes[id].is_merge)
        return {node.id for node in merges if node.attr("role") != "cases" and node.id in self._boxes}

    def _seen_from(self, reader: Node, edge: Edge, where: Condition) -> Condition:
        """What holds at a point of the producer that is read from where this holds: as far as it says which that is."""
        within: dict[Symbol, Expr] = {}
        indices = dict(zip(self.graph.nodes[edge.node].domain, edge.map))
        points = {symbol: index.index for symbol, index in indices.items() if isinstance(index, Point)}
        for symbol, point in points.items():
            for dim in point.dims():
                shift = point - var(dim)
                if shift.is_const and dim not in within:
                    within[dim] = var(symbol) - shift
        known = {symbol for symbol in within if within[symbol] == var(symbol)}
        parts = where.args if isinstance(where, And) else (where,)
        for part in (each for each in parts if isinstance(each, Eq)):
            for dim in part.dims() - within.keys():
                factor = part.expr.coefficient(dim)
                if factor in (1, -1) and part.dims() - {dim} <= within.keys():
                    within[dim] = (var(dim) - part.expr * factor).substitute(within)
        hidden = {dim: Symbol(f"{dim.name} of the reader", "dim") for dim in reader.domain if dim not in within}
        seen = {**within, **{dim: var(symbol) for dim, symbol in hidden.items()}}
        sliced = ((symbol, substitute_index(index, seen)) for symbol, index in indices.items())
        bounds = [each for symbol, index in sliced if isinstance(index, Slice) for each in _bounds(symbol, index)]
        bounds += [each for symbol, point in points.items() if point.dims() for each in _at(symbol, point, seen)]
        parts = (*(part.substitute(seen) for part in parts), *bounds, *self._at_last(reader, edge, indices, seen))
        left = projected(hidden.values(), parts) if hidden else TRUE
        parts = (*parts, *(left.args if isinstance(left, And) else (left,)))
        found = [
            part
            for part in parts
            if part.dims().isdisjoint(hidden.values())
            and {row for each in self._ends_in(part) for row in each.rows} <= known
        ]
        ends = [(last, end) for last, end in self._ends.items() if is_ragged(end, reader.domain)]
        there = (last for last, end in ends if end.along not in within and known >= {*end.rows})
        return conjunction((*found, *(var(last).ge(0) for last in there)))

    def _at_last(
        self, reader: Node, edge: Edge, indices: Mapping[Symbol, Point | Slice], seen: Mapping[Symbol, Expr]
    ) -> Iterator[Condition]:
        """That the point is the one that is read over the last one of the row."""
        if reader.id in self.graph.last_reads and edge == reader.operands[0]:
            (along,) = (end.along for end in self._ends.values() if isinstance(indices.get(end.along), Slice))
            yield from _at(along, self.graph.last_reads[reader.id], seen)

    def _ends_in(self, condition: Condition) -> list[Output]:
        """The lengths of rows of which it has last points."""
        return [self._ends[symbol] for symbol in condition.symbols() if symbol in self._ends]

    # As a value.

    def _value(self, tensors: Tensors, condition: Condition) -> Edge:
        """What last points are in other ways than affine ones says nothing."""
        if isinstance(condition, (And, Or)):
            op = "logical_and" if isinstance(condition, And) else "logical_or"
            values = (self._value(tensors, each) for each in condition.args)
            return reduce(lambda a, b: tensors.apply(op, a, b), values)
        ends = self._ends_in(condition)
        if not ends or not isinstance(condition, Comparison):
            return tensors.apply("condition_value", condition=condition)
        lasts = {last_of(end): end for end in ends}
        terms = [(atom, factor) for atom, factor in condition.expr.terms if atom not in lasts]
        if any(atom.symbols() & lasts.keys() for atom, _ in terms):
            return tensors.apply("condition_value", condition=TRUE)
        value = tensors.number(from_terms(dict(terms), condition.expr.const))
        for symbol, end in lasts.items():
            length = tensors.cast(replace(end.edge, map=tuple(Point(var(row)) for row in end.rows)), "int32")
            last = tensors.apply("sub", length, tensors.constant(1, "int32"))
            factor = tensors.constant(condition.expr.coefficient(symbol), "int32")
            value = tensors.apply("add", value, tensors.apply("mul", last, factor))
        return tensors.apply("eq" if isinstance(condition, Eq) else "ge", value, tensors.constant(0, "int32"))


def last_of(end: Output) -> Symbol:
    """The last point of a row."""
    return end.along.of_kind("last")


def _bounds(symbol: Symbol, points: Slice) -> tuple[Condition, Condition]:
    """That a point is one of these."""
    return var(symbol).ge(points.start), var(symbol).lt(points.start + points.length)


def _at(symbol: Symbol, index: Expr, seen: Mapping[Symbol, Expr]) -> Sequence[Condition]:
    """That a point is this one: of a quotient, in terms of what it divides."""
    index = index.substitute(seen)
    for atom, factor in index.terms:
        if isinstance(atom, FloorDiv) and factor == 1:
            least = (var(symbol) - index + from_terms({atom: 1}, 0)) * atom.divisor
            return atom.expr.ge(least), atom.expr.lt(least + atom.divisor)
    return (var(symbol).eq(index),)
