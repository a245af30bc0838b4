"""Rows that have an end of their own along a dim, from the start (`tp.dim("t", lengths=n)`) or where a condition holds
first (`tp.stop_when(t, condition, each=b)`): who sees points that are behind it.

A tensor over `t` and all rows has no points behind the end of a row. Whoever reads its own row at points up to its own
sees none of them. A slice shows what is there, and may only be folded: its axes are followed, by the axis rule, through
operators that keep positions apart, up to one that folds them. There what does not exist does not count. A read of one
point shows 0 where it does not exist; that it does is checked before a run (see `tempo.runtime.dynamic.rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tempo.analysis.reports import elements_needed, point_text, tensor_name
from tempo.errors import Location, SizeError, UnsupportedError
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Graph, IndexMap, Node, Output, Point, Slice, identity_map, substitute_index
from tempo.sdg.operators import OPERATORS, factors_of
from tempo.sdg.operators.axes import Factor, Role
from tempo.sdg.rewriter import Rewriter, Tensors, take_apart
from tempo.symbolic import Context, Symbol, as_expr, const, var


@dataclass(frozen=True)
class Rows:
    """Axes that show points of rows: a read through `map`, over the end's domain, of which of them exist.

    The dims of rows come first in the map, that along which they end is last. `axes`: one for each `Slice`, in order.
    """

    map: IndexMap
    axes: tuple[int, ...]

    def seen(self, slices: Mapping[Symbol, Slice], points: Mapping[Symbol, Point]) -> Rows | None:
        """As who reads them at these slices and points sees them; None where no map says what it sees."""
        map, axes, within = [], [], {symbol: point.index for symbol, point in points.items()}
        order, before, opened = list(slices), iter(self.axes), list[Symbol]()
        for index in self.map:
            varying = [symbol for symbol in order if symbol in _dims(index)]
            opened += varying
            if varying and index != Point(var(varying[0])):
                return None
            map.append(slices[varying[0]] if varying else substitute_index(index, within))
            if isinstance(map[-1], Slice):
                axes.append(order.index(varying[0]) if varying else next(before) + len(order))
        return Rows(tuple(map), tuple(axes)) if len(set(opened)) == len(opened) else None

    def cut(self, node: Node) -> Rows | None:
        """As the operator `slice` shows them, if that is what it is."""
        if node.op != "slice" or any(node.attr("steps")[axis] != 1 for axis in self.axes):
            return None
        map, axes = list(self.map), iter(self.axes)
        for place, index in enumerate(map):
            if isinstance(index, Slice):
                axis = next(axes)
                map[place] = Slice(index.start + node.attr("starts")[axis], as_expr(node.attr("lengths")[axis]))
        return Rows(tuple(map), self.axes)


@dataclass(frozen=True)
class Mask:
    """What an operand shows of points that do not exist is `fill`."""

    rows: Rows
    fill: bool | int | float


Masks = Mapping[tuple[int, int], tuple[Mask, ...]]
"""By node, or `OUTPUTS`, and the number of an operand, a case or an output."""

OUTPUTS = -1

Means = Mapping[int, tuple[int, int]]
"""By quotient: the sum that is divided, and by how many terms less than it has."""


def with_losses(graph: Graph) -> Graph:
    """A graph before its gradients are expanded, with the losses of those that are asked for as outputs."""
    outputs, asked = list(graph.outputs), graph.reachable()
    while True:
        found = {graph.nodes[id].attr("loss"): graph.nodes[id] for id in asked if graph.nodes[id].op == "gradient"}
        more = [edge for edge in found if edge not in {output.edge for output in outputs}]
        if not more:
            return replace(graph, outputs=tuple(outputs))
        for edge in more:
            over, type = found[edge].attr("over"), graph.seen_type(edge)
            outputs.append(Output("a loss", edge, over, type, over, location=found[edge].location))
        asked = replace(graph, outputs=tuple(outputs)).reachable()


def row_ends(graph: Graph) -> tuple[Output, ...]:
    """What says where rows end: lengths that are given, and stops of rows."""
    return (*graph.ragged.values(), *(stop for stop in graph.stops.values() if stop.rows))


def says_lengths(graph: Graph, end: Output) -> Node:
    """What the lengths of rows are, but for a selection that leaves out rows which are not there."""
    node = graph.nodes[end.edge.node]
    while node.op == "where" and node.attr("in_row"):
        node = graph.nodes[node.operands[1].node]
    return node


def is_known(graph: Graph, end: Output) -> bool:
    """Whether the lengths of rows are an input, which a run knows beforehand; else it computes them."""
    return says_lengths(graph, end).is_input


def length_error(graph: Graph, end: Output, row: Sequence[int], length: int, size: int) -> SizeError:
    """Of what is no length of a row."""
    name, at = says_lengths(graph, end).name, point_text(end.rows, row) if row else ""
    named = f"{name}[{at}]" if at else name
    what = named if name else f"the length of the row {at}" if at else "the length"
    return SizeError(f"{what} is {length}, and a row has 0 to {size} points along {end.name}", location=end.location)


def is_ragged(end: Output, domain: tuple[Symbol, ...]) -> bool:
    """Whether what varies along these dims has no points behind the end of a row."""
    return (end.role == "rows" or bool(end.rows)) and set(end.domain) <= set(domain)


def ends_of(graph: Graph, domain: tuple[Symbol, ...]) -> list[Output]:
    """The lengths that are given of what varies along these dims."""
    return [end for end in graph.ragged.values() if is_ragged(end, domain)]


def shows_rows(graph: Graph, end: Output, edge: Edge) -> bool:
    """Whether the edge may show points behind the end of a row."""
    domain = graph.nodes[edge.node].domain
    if not is_ragged(end, domain):
        return False
    if end.role == "rows":
        return edge.map != identity_map(domain)
    return any(isinstance(index, Slice) for symbol, index in zip(domain, edge.map) if symbol in end.rows)


def exists(end: Output, tensors: Tensors, rows: Rows) -> Edge:
    """Which points there are of what is shown, where lengths are given: axes as those of the slices of the map.

    It is computed from the lengths, so it is not a row's itself: what is masked by it has zeros, and not no points.
    """
    *at, index = rows.map
    count = tensors.cast(replace(end.edge, map=tuple(at)), "int32")
    if isinstance(index, Point):
        return tensors.apply("lt", tensors.number(index.index), count)
    places = tensors.add(tensors.iota((index.length,), 0), tensors.number(index.start))
    return tensors.apply("lt", places, tensors.with_ones(count, tensors.rank(count), 1))


def selected(tensors: Tensors, there: Edge, operand: Edge, mask: Mask, **attrs: Any) -> Edge:
    """The operand where what it shows is there, `fill` elsewhere."""
    axes = mask.rows.axes
    if axes:
        order = sorted(range(len(axes)), key=axes.__getitem__)
        shape = tensors.shape(operand)
        sizes = tuple(size if axis in axes else const(1) for axis, size in enumerate(shape))[min(axes) :]
        there = tensors.reshape(tensors.transpose(there, tuple(order)), sizes)
    return tensors.apply("where", there, operand, tensors.constant(mask.fill, tensors.seen(operand).dtype), **attrs)


def row_masks(graph: Graph, end: Output) -> Masks:
    """Where points behind the end of a row must not count.

    Raises `UnsupportedError`, at the line of the reader, for a read of them that is not folded, and for calls of the
    host that are made for each row.
    """
    walk = _Walk(graph, end)
    if walk.composites:
        raise next(iter(walk.composites.values()))
    return walk.masks


class Shown:
    """Where lengths are given: what nodes show of rows, and what they read of them."""

    def __init__(self, graph: Graph, end: Output) -> None:
        self.end, self._walk = end, _Walk(graph, end)

    def mixed(self, node: Node, numbers: Collection[int]) -> tuple[Rows, ...]:
        """What the node shows, where some of these operands does not show the same at each of its positions: what is no
        row's gets the sum over positions."""
        shown = self._walk.shown.get(node.id, ())
        through = (self._walk.through.get((node.id, number), ()) for number in numbers)
        return () if all(set(each) == set(shown) for each in through) else shown

    def read(self, edge: Edge) -> list[Rows]:
        """What the edge shows of rows along axes."""
        return [rows for rows in self._walk.seen(edge, None) if rows.axes]


def with_folds_apart(graph: Graph, means: Means) -> tuple[Graph, Means]:
    """A graph before its gradients are expanded, with composites that fold points of rows inside taken apart: a softmax
    is exponentials and their sum. And what means it has then."""
    while composites := {id for end in graph.ragged.values() for id in _Walk(with_losses(graph), end).composites}:
        rewriter = Rewriter(graph)
        for node in (graph.nodes[id] for id in sorted(composites)):
            before = set(rewriter.nodes)
            take_apart(rewriter, node)
            made_of = [id for id in rewriter.nodes if id not in before or id == node.id]
            _hold_shifts(rewriter, made_of)
            _name_folds(rewriter, made_of, node)
        made = replace(graph, nodes=rewriter.nodes)
        means = {**means, **{id: found for id in made.nodes.keys() - graph.nodes.keys() if (found := _mean(made, id))}}
        graph = made
    return graph, means


def _hold_shifts(rewriter: Rewriter, made: Collection[int]) -> None:
    """With the greatest element as a constant to gradients: it keeps exponentials finite, and cancels out."""
    for id in made:
        node = rewriter.nodes[id]
        operands = tuple(
            rewriter.pure("stop_gradient", (edge,), {}) if rewriter.nodes[edge.node].op == "reduce_max" else edge
            for edge in node.operands
        )
        rewriter.nodes[id] = replace(node, operands=operands)


def _name_folds(rewriter: Rewriter, made: Collection[int], composite: Node) -> None:
    """Says of the folds that a composite is made of that they are its own, where it has no value of nothing."""
    for node in (rewriter.nodes[id] for id in made if elements_needed(composite)):
        if OPERATORS[node.op].kind == "reduction":
            rewriter.nodes[node.id] = node.with_attrs(nonempty=composite.op)


def _mean(graph: Graph, id: int) -> tuple[int, int] | None:
    """The sum that a node divides by a number that no value makes, if that is what it does."""
    node = graph.nodes[id]
    if node.op != "div":
        return None
    total, number = (graph.nodes[edge.node] for edge in node.operands)
    while total.op == "reshape":
        total = graph.nodes[total.operands[0].node]
    made_of = (graph.nodes[each] for each in reached([number.id], graph.producers))
    is_number = not any(each.is_nominal for each in made_of)
    return (total.id, 0) if total.op == "reduce_sum" and is_number else None


class _Walk:
    def __init__(self, graph: Graph, end: Output) -> None:
        self.graph, self.end = graph, end
        self.is_given = end.role == "rows"
        self.shown: dict[int, tuple[Rows, ...]] = {}  # by pure node, what its axes show of rows
        self.through: dict[tuple[int, int], tuple[Rows, ...]] = {}  # the same by operand
        self.masks: dict[tuple[int, int], tuple[Mask, ...]] = {}
        self.composites: dict[int, UnsupportedError] = {}  # that fold inside, with what is wrong with that
        reachable = graph.reachable()
        nodes = [node for node in graph.operands_first() if node.id in reachable]
        for node in nodes:
            self._visit(node)
        for node in nodes:  # not before: a merge stands in front of what its cases read
            for number, case in enumerate(node.cases):
                self._check_keeps(node.id, number, case.edge, case.location or node.location)
        for number, output in enumerate(graph.outputs):
            self._check_keeps(OUTPUTS, number, output.edge, output.location)

    def _visit(self, node: Node) -> None:
        if node.has_effect and is_ragged(self.end, node.domain):
            raise self._called(node)
        shown: list[Rows] = []
        for number, edge in enumerate(node.operands):
            found = [each for rows in self.seen(edge, node.location) for each in self._through(node, number, rows)]
            self.through[node.id, number] = tuple(found)
            shown += found
        if self.is_given and node.attr("checked") and is_ragged(self.end, node.domain):  # no point of none fails
            self._mask(node.id, 1, Rows(identity_map(self.end.domain), ()), 0)
        self.shown[node.id] = tuple(shown)

    def _mask(self, node: int, number: int, rows: Rows, fill: bool | int | float) -> None:
        key = node, number
        self.masks[key] = (*self.masks.get(key, ()), Mask(rows, fill))

    def _check_keeps(self, node: int, number: int, edge: Edge, reader: Location | None) -> None:
        """What is kept of an edge must show no rows: nobody folds it."""
        for rows in self.seen(edge, reader):
            if rows.axes:
                raise self._kept(node, edge, reader)
            self._mask(node, number, rows, 0)

    def seen(self, edge: Edge, reader: Location | None) -> Iterator[Rows]:
        producer = self.graph.nodes[edge.node]
        indices = dict(zip(producer.domain, edge.map))
        slices = {symbol: index for symbol, index in indices.items() if isinstance(index, Slice)}
        points = {symbol: index for symbol, index in indices.items() if isinstance(index, Point)}
        for rows in self.shown.get(producer.id, ()):
            moved = rows.seen(slices, points)
            if moved is None or not (self.is_given or len(moved.axes) == len(rows.axes)):
                raise self._other_rows(edge, reader)
            if not self._stays(dict(zip(self.end.domain, moved.map))):
                yield moved
        if is_ragged(self.end, producer.domain) and not self._stays(indices):
            read = tuple(indices[symbol] for symbol in self.end.domain)
            if not self.is_given and not all(self._is_whole(symbol, indices[symbol]) for symbol in self.end.rows):
                raise self._other_rows(edge, reader)
            yield Rows(read, tuple(list(slices).index(symbol) for symbol in self.end.domain if symbol in slices))

    def _stays(self, indices: Mapping[Symbol, Point | Slice]) -> bool:
        """In the reader's own row, and where lengths are given at points up to the reader's own; or at the first point,
        which every row has that ends at one."""
        dim = self.end.along
        own = all(indices[symbol] in (Point(var(symbol)), Slice(var(symbol), const(1))) for symbol in self.end.rows)
        index = indices[dim]
        if not self.is_given:
            return own or index == Point(const(0))
        last = index.index if isinstance(index, Point) else index.start + index.length - 1
        return own and dim in last.dims() and self._context.implies(last.le(var(dim)))

    @cached_property
    def _context(self) -> Context:
        return Context.of(self.graph.dims)

    def _is_whole(self, symbol: Symbol, index: Point | Slice) -> bool:
        return isinstance(index, Slice) and index == Slice(const(0), self.graph.dim(symbol).size)

    def _through(self, node: Node, number: int, rows: Rows) -> Iterator[Rows]:
        """What the node shows of rows that an operand of it shows; what it folds is masked."""
        if not rows.axes:
            self._mask(node.id, number, rows, 0)
            return
        if node.attr("in_row") and self._is_in_row(node, number, rows):
            return
        if self.is_given and (cut := rows.cut(node)) is not None:
            if not self._stays(dict(zip(self.end.domain, cut.map))):
                yield cut
            return
        if self.is_given and number and node.attr("checked"):  # an index that there is not is 0, and none fails
            self._mask(node.id, number, rows, 0)
            node = node.with_attrs(checked=False)
        seen = self._factors(node, number, rows)
        if all(factor.keeps for factor in seen.values()):
            yield Rows(rows.map, tuple(axis for factor in seen.values() if (axis := factor.result) is not None))
        elif all(self._is_known(symbol, factor) for symbol, factor in seen.items()):
            yield from self._together(node, number, rows, seen)
        elif OPERATORS[node.op].decompose is not None and self.is_given:
            self.composites[node.id] = self._other_rows(node.operands[number], node.location)
        else:
            raise self._other_rows(node.operands[number], node.location)

    def _is_in_row(self, node: Node, number: int, rows: Rows) -> bool:
        """Whether it takes one point of a row, which is known to have it; or has zeros where there is none."""
        if node.op in ("where", "gather_pairs"):
            return True
        return self.is_given and number == 0 and rows.axes == (node.attr("axis"),)

    def _factors(self, node: Node, number: int, rows: Rows) -> dict[Symbol, Factor]:
        """How the node takes each of the axes, by dim."""
        factors = () if node.is_nominal else factors_of(node, self.graph.seen_type)
        places = {each.operands[number]: each for each in factors}
        if not places.keys() >= set(rows.axes):
            raise self._other_rows(node.operands[number], node.location)
        sliced = [symbol for symbol, index in zip(self.end.domain, rows.map) if isinstance(index, Slice)]
        return {symbol: places[axis] for axis, symbol in zip(rows.axes, sliced)}

    def _is_known(self, symbol: Symbol, factor: Factor) -> bool:
        """Whether positions are apart, or folded; behind the last one of a row there are none that are of it."""
        if factor.keeps or factor.folds:
            return True
        is_last = self.is_given and symbol not in self.end.rows
        return is_last and factor.role in (Role.REDUCING, Role.SCANNING)

    def _together(self, node: Node, number: int, rows: Rows, seen: Mapping[Symbol, Factor]) -> Iterator[Rows]:
        """Folded or scanned: what is masked, and what is shown of it."""
        edge = node.operands[number]
        neutral = OPERATORS[node.op].padding(self.graph.seen_type(edge).dtype)
        is_folded = any(factor.result is None for factor in seen.values())
        has_all = all(factor.folds for symbol, factor in seen.items() if symbol in self.end.rows)
        if (is_folded and neutral is None) or not (self.is_given or (is_folded and has_all)):
            raise self._other_rows(edge, node.location)
        if neutral is not None:
            self._mask(node.id, number, rows, neutral)
        if not is_folded:
            yield Rows(rows.map, tuple(axis for factor in seen.values() if (axis := factor.result) is not None))

    def _kept(self, node: int, edge: Edge, reader: Location | None) -> UnsupportedError:
        """For what is kept of points, by a definition, an output, or for where a loop ends."""
        error = self._other_rows(edge, reader)
        if not self.is_given or node == OUTPUTS or not self.graph.nodes[node].is_last:
            return error
        along = self.graph.nodes[node].attr("along").name
        hint = f"fold them at each point of {along}, and read at {along}.last what that gives"
        return UnsupportedError(error.message, location=error.location, hint=hint)

    def _other_rows(self, edge: Edge, reader: Location | None) -> UnsupportedError:
        producer, names = self.graph.nodes[edge.node], ", ".join(symbol.name for symbol in self.end.rows)
        what, dim = tensor_name(producer), self.end.name
        if self.is_given:
            message = f"{what} is read at several points of {dim}, and what is made of them depends on where a row ends"
            folds = "by a sum, a maximum, any or all, a softmax, a product of matrices"
            hint = f"fold them: {folds}; or read one at an index, x.gather({dim}, index)"
        else:
            message = (
                f"{what} is read at other points of {names} than the reader's own, and each of them ends by itself "
                f"along {dim}"
            )
            hint = "fold all of them, by a sum, a maximum, any or all; or leave each= out of the stop"
        return UnsupportedError(message, location=reader or producer.location, hint=hint)

    def _called(self, node: Node) -> UnsupportedError:
        names, dim = ", ".join(symbol.name for symbol in self.end.rows), self.end.name
        instead = "leave each= out of the stop, which then ends the run when all have ended"
        return UnsupportedError(
            f"{tensor_name(node)} calls the host at each point of {names}, each of which ends by itself along {dim}",
            location=node.location,
            hint="give it what does not vary with where a row ends" if self.is_given else instead,
        )


def _dims(index: Point | Slice) -> frozenset[Symbol]:
    exprs = (index.index,) if isinstance(index, Point) else (index.start, index.length)
    return frozenset(symbol for expr in exprs for symbol in expr.dims())


def with_own_points(graph: Graph) -> Graph:
    """With cases that hold at one point of a row reading that as their own: h[b, 0] = x[b, 0]."""
    nodes, context = dict(graph.nodes), Context.of(graph.dims)
    for id, node in graph.nodes.items():
        along = {end.along for end in ends_of(graph, node.domain)}
        if node.is_merge and along:
            cases = (replace(case, edge=_own(graph, case, along, context)) for case in node.cases)
            nodes[id] = replace(node, cases=tuple(cases))
    return replace(graph, nodes=nodes)


def _own(graph: Graph, case: Case, along: Collection[Symbol], context: Context) -> Edge:
    def own(symbol: Symbol, index: Point | Slice) -> Point | Slice:
        if symbol not in along or not isinstance(index, Point) or index.index.dims():
            return index
        here = context.assume(case.condition)
        return Point(var(symbol)) if here.implies(var(symbol).eq(index.index)) else index

    domain = graph.nodes[case.edge.node].domain
    return replace(case.edge, map=tuple(map(own, domain, case.edge.map)))


def with_counts(graph: Graph, means: Means) -> Graph:
    """A graph before its gradients are expanded, with means of rows that divide by how many points there are."""
    if not graph.ragged:
        return graph
    rewriter, asked = Rewriter(graph), with_losses(graph)
    masks = [(end, row_masks(asked, end)) for end in graph.ragged.values()]
    for quotient, (sum, less) in means.items():
        found = [(end, mask) for end, each in masks for mask in each.get((sum, 0), ())]
        if found and quotient in asked.reachable():
            node = rewriter.nodes[quotient]
            count = _count(Tensors(rewriter, node.location), graph.nodes[sum], found, less, node.operands[0])
            rewriter.nodes[quotient] = replace(node, operands=(node.operands[0], count))
    return replace(graph, nodes=rewriter.nodes)


def _count(tensors: Tensors, total: Node, masks: Sequence[tuple[Output, Mask]], less: int, quotient: Edge) -> Edge:
    """How many terms a sum has less so many, in the shape of what is divided."""
    sizes, axes = tensors.shape(total.operands[0]), total.attr("axes")
    shown = {axis for _, mask in masks for axis in mask.rows.axes}
    terms = tensors.constant(1, total.dtype)
    terms = tensors.broadcast(terms, tuple(size if axis in shown else const(1) for axis, size in enumerate(sizes)))
    for end, mask in masks:
        terms = selected(tensors, exists(end, tensors, mask.rows), terms, replace(mask, fill=0))
    count = tensors.apply("reduce_sum", terms, axes=axes)
    for axis in (axis for axis in axes if axis not in shown):
        count = tensors.apply("mul", count, tensors.cast(tensors.number(sizes[axis]), total.dtype))
    if less:
        count = tensors.apply("sub", count, tensors.constant(less, total.dtype))
    kept = tuple(size for axis, size in enumerate(sizes) if axis not in axes)
    return tensors.reshape(tensors.broadcast(count, kept), tensors.shape(quotient))


def check_means(graph: Graph, means: Means) -> None:
    """Raises `UnsupportedError` for a mean over rows that end where a condition holds.

    The sum alone says nothing: who divides by something else reads the same node.
    """
    reachable = graph.reachable()
    for stop in graph.stops.values():
        folds = {id for id, _ in row_masks(graph, stop)} if stop.rows else set()
        for quotient, (total, _) in means.items():
            if quotient in reachable and total in folds:
                raise UnsupportedError(
                    f"a mean over rows, each of which ends by itself along {stop.name}, divides by all of them",
                    location=graph.nodes[quotient].location,
                    hint="divide a sum by how many there are: x[:, t].sum(axis=0) / (x == x)[:, t].sum(axis=0)",
                )
