"""Rows that end each by itself (`tp.stop_when(l, condition, each=b)`), those that go on close together: a graph whose
run along `l` may be left, and gone on with for some of the rows.

What varies along `l` sees its own row alone, so what it makes of a row is the same whichever rows are beside it. Two
inputs say what a position of `b` stands for: with `most`, the run is left as soon as no more rows than that go on; with
`row`, the number of each row, where that is asked for. What is drawn is drawn for all rows, of which there are `all`,
and looked up. What the next point alone wants is computed there, when it is known which rows go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tempo.analysis.reports import tensor_name
from tempo.analysis.rows import ends_of
from tempo.errors import UnsupportedError
from tempo.passes.rows import rows_masked
from tempo.sdg.builder import attribute_exprs, fresh_dim
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, Point, Port, Slice, TensorType, index_exprs
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Condition, Dim, Expr, Symbol, var


@dataclass(frozen=True)
class Compacted:
    """`graph` has no row that ends by itself any more. `stop` is that of its rows, `nodes` are those along its dim.
    `grows`: what some of them read is more at later points."""

    graph: Graph
    stop: Output
    nodes: frozenset[int]
    most: Port
    row: Port
    all: Symbol
    grows: bool

    @property
    def rows(self) -> Symbol:
        return self.stop.rows[0]


def retimed(graph: Graph, along: Symbol) -> Graph:
    """The graph in which what nobody wants before a later point of a dim is computed there (Leiserson and Saxe,
    Retiming Synchronous Circuitry, 1991): of `h[l] = y[l - 1]`, `y = f(h)`, it is `h[l] = y[l]`, `y[l] = f(h[l - 1])`.
    """
    shown = {output.edge.node for output in graph.outputs}
    later: dict[int, int] = {}  # by how many points
    for node in reversed(graph.operands_first()):  # readers first
        if node.is_nominal or along not in node.domain or node.id in shown or _grows(node, along):
            continue
        if any(along in end.rows for end in ends_of(graph, node.domain)):  # at a later point it would be of another row
            continue
        reads = graph.consumers[node.id]
        found = {_ago(edge.map[node.domain.index(along)], along, later.get(reader, 0)) for reader, edge in reads}
        (ago,) = found if len(found) == 1 else (None,)
        if ago:
            later[node.id] = ago

    def moved(edge: Edge, symbol: Symbol, ago: int) -> Edge:
        """As what is computed so much later reads it."""
        own = edge.substitute({symbol: var(symbol) - ago})
        if edge.node not in later:
            return own
        at = graph.nodes[edge.node].domain.index(symbol)
        index = own.map[at]
        assert isinstance(index, Point)
        return replace(own, map=(*own.map[:at], Point(index.index + later[edge.node]), *own.map[at + 1 :]))

    rewriter = Rewriter(graph)
    for node in graph.nodes.values():
        ago = later.get(node.id, 0)
        new = rewriter.copied(node, node.id, along, (along,), var(along) - ago) if ago else node
        cases = tuple(replace(case, edge=moved(case.edge, along, 0)) for case in node.cases)
        rewriter.nodes[node.id] = replace(
            new, operands=tuple(moved(each, along, ago) for each in node.operands), cases=cases
        )
    return replace(graph, nodes=rewriter.nodes)


def _grows(node: Node, along: Symbol) -> bool:
    """Whether it reads or makes more at later points: of one point later, it would begin with nothing."""
    slices = (index for edge in node.operands for index in edge.map if isinstance(index, Slice))
    exprs = (expr for index in slices for expr in index_exprs(index))
    return any(along in expr.dims() for expr in (*exprs, *(size for type in node.results for size in type.shape)))


def _ago(index: Point | Slice, along: Symbol, more: int) -> int | None:
    """How many points before its reader, who is moved by `more` of them, something is wanted."""
    if not isinstance(index, Point):
        return None
    ago = var(along) - index.index
    return ago.as_int() + more if ago.is_const else None


def compacted(graph: Graph) -> Compacted:
    """The graph of a program with a stop of rows.

    Raises `UnsupportedError`, at the line, where rows cannot be run apart from others.
    """
    (stop, *others) = sorted(graph.stops.values(), key=lambda stop: not stop.rows)
    if others:
        raise UnsupportedError("the run may end early in more than one way", location=others[0].location)
    if len(stop.rows) > 1:
        raise UnsupportedError("rows are those of several dims", location=stop.location)
    return _Compaction(retimed(graph, stop.along), stop).compacted()


@dataclass(frozen=True)
class _Compaction:
    graph: Graph
    stop: Output

    @property
    def row(self) -> Symbol:
        return self.stop.rows[0]

    def compacted(self) -> Compacted:
        found = [self.graph.nodes[id] for id in sorted(self.graph.reachable())]
        inside = [node for node in found if self.stop.along in node.domain]
        for node in found:
            self.check(node, node in inside)
        name, taken = self.stop.along.name, {dim.symbol.name for dim in self.graph.dims}
        everyone = fresh_dim(f"{name}_rows", taken)
        dims = (*self.graph.dims, Dim(everyone, var(everyone.of_kind("size"))))
        rewriter = Rewriter(replace(self.graph, dims=dims))
        given = rewriter.given(f"{name} row", (self.row,))
        for node in found:
            if self.asks(node):
                tensors = Tensors(rewriter, node.location)
                is_number = node.op == "index_value"
                made = self.numbered(tensors, node, given) if is_number else self.drawn(tensors, node, everyone, given)
                attrs, number = (("name", "cases"), ("role", "cases")), rewriter.new_declaration()
                merge = replace(node, op="merge", operands=(), attrs=attrs, declaration=number)
                rewriter.nodes[node.id] = replace(merge, cases=(Case(TRUE, made),))
        graph = replace(rewriter.graph, nodes=rewriter.nodes)
        most = Port("input", f"{name} most")
        masked = rows_masked(graph, {self.stop.name: rewriter.given(most.name, ())})
        nodes = frozenset(node.id for node in inside)
        row, all = Port("input", f"{name} row"), everyone.of_kind("size")
        return Compacted(
            masked, self.stop, nodes, most, row, all, any(_grows(node, self.stop.along) for node in inside)
        )

    def asks(self, node: Node) -> bool:
        """Whether it says which row it is at."""
        return self.row in node.domain and any(self.row in each.dims() for each in attribute_exprs(node))

    def numbered(self, tensors: Tensors, node: Node, row: Edge) -> Edge:
        """A number that is made of that of the row."""
        factor = node.attr("expr").coefficient(self.row)
        return tensors.add(tensors.times(row, factor), tensors.number(node.attr("expr") - factor * var(self.row)))

    def drawn(self, tensors: Tensors, node: Node, everyone: Symbol, row: Edge) -> Edge:
        """What is drawn at a row, of what is drawn for all of them."""
        attrs, count = node.attributes, var(everyone.of_kind("size"))
        places = tuple(
            each + 1 if isinstance(each, int) else 0 if each == var(self.row) else each for each in attrs["coordinates"]
        )
        attrs |= {"coordinates": places, "shape": (count, *attrs["shape"])}
        domain = tuple(symbol for symbol in node.domain if symbol != self.row)
        type = TensorType((count, *node.type.shape), node.type.dtype)
        whole = replace(node, id=-1, domain=domain, results=(type,), attrs=tuple(sorted(attrs.items())))
        return tensors.gather(tensors.rewriter.declare(whole), row, 0)

    # -- what keeps rows together ------------------------------------------------------------------------------------

    def check(self, node: Node, is_inside: bool) -> None:
        why = next(self.ties(node) if is_inside else self.outside(node), None)
        if why is not None:
            raise UnsupportedError(f"{tensor_name(node)} {why}", location=node.location)

    def outside(self, node: Node) -> Iterator[str]:
        """Why what has no point along the dim is not that of a row wherever it stands."""
        if self.asks(node) and not self.may_ask(node):
            yield f"is made of {self.row.name} in a way that is not looked through"

    def ties(self, node: Node) -> Iterator[str]:
        """Why what it makes of a row is not of that row alone."""
        if node.is_call:
            yield "is called for all rows"
        if node.is_nominal and any(self.counts(size) for type in node.results for size in type.shape):
            yield "has an axis with a position for each row"
        if any(symbol != self.row and self.counts(self.graph.dim(symbol).size) for symbol in node.domain):
            yield "varies along a dim with a point for each row"
        for _, edge in node.reads():
            yield from self.reads(edge)
        asked = [each for each in attribute_exprs(node) if self.row in each.dims() or self.counts(each)]
        if asked and not self.may_ask(node):
            yield f"is made of {asked[0]}"
        conditions = [case.condition for case in node.cases]
        if any(self.row in each.dims() or self.counts(each) for each in conditions):
            yield f"has a case of {self.row.name}"

    def may_ask(self, node: Node) -> bool:
        if node.op == "index_value":
            expr = node.attr("expr")
            rest = expr - expr.coefficient(self.row) * var(self.row)
            return self.row not in rest.dims() and not self.counts(rest)
        exprs = [each for each in node.attr("coordinates", ()) if isinstance(each, Expr)]
        return node.is_draw and all(each == var(self.row) or self.row not in each.dims() for each in exprs)

    def reads(self, edge: Edge) -> Iterator[str]:
        """Of other rows, those that go on at the same point may be seen: they are all there."""
        producer, name = self.graph.nodes[edge.node], tensor_name(self.graph.nodes[edge.node])
        index = dict(zip(producer.domain, edge.map, strict=True))
        at_present = index.get(self.stop.along) == Point(var(self.stop.along))
        for symbol, each in index.items():
            if symbol == self.row and (each == Point(var(symbol)) or (at_present and isinstance(each, Slice))):
                continue
            if symbol == self.row or any(self.row in expr.dims() or self.counts(expr) for expr in index_exprs(each)):
                yield f"reads {name} of other rows, or at the number of its own"
        if any(symbol != self.row and self.counts(self.graph.dim(symbol).size) for symbol in index):
            yield f"reads {name}, which varies along a dim with a point for each row"
        if any(self.counts(size) for size in producer.results[edge.result].shape) and not at_present:
            yield f"reads {name}, which has an axis with a position for each row"

    def counts(self, expr: Expr | Condition) -> bool:
        """Whether it is made of how many rows there are."""
        return not self.graph.dim(self.row).size.sizes().isdisjoint(expr.sizes())
