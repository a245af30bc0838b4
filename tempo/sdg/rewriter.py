"""Rewriting a graph node by node: new nodes, typed by the operator table, and the kinds of node that passes insert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from tempo.errors import Location, UnsupportedError
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.graph import Edge, Graph, Node, Output, Slice, TensorType
from tempo.sdg.operators.making import INDEX_DTYPE, Formula, Maker
from tempo.sdg.operators.table import OPERATORS
from tempo.symbolic import (
    FALSE,
    TRUE,
    And,
    Condition,
    Context,
    Eq,
    Expr,
    FloorDiv,
    Ge,
    Min,
    Mod,
    Or,
    Symbol,
    as_expr,
    const,
    minimum,
    var,
)
from tempo.symbolic.widths import fits_as_operand, fits_as_result, fits_in_64

WIDE_DTYPE = "int64"


class Rewriter(NodeBuilder):
    """The nodes of the new graph, in which nodes of the old one may be replaced."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.dims, graph.nodes)
        self.graph = graph
        self._first = self._number

    def put(self, old: Node, edge: Edge) -> None:
        """Makes what `edge` shows the value of node `old`: the node that was added for it gets its number and name."""
        if edge.node < self._first or edge != self.identity(edge.node) or self.nodes[edge.node].is_nominal:
            edge = self.pure("copy", (edge,), {})
        node = self.nodes[edge.node]
        self.nodes[old.id] = replace(node, id=old.id, name=old.name, location=old.location)

    def given(self, name: str, domain: tuple[Symbol, ...], shape: tuple[Expr, ...] = ()) -> Edge:
        """Indices that the run gives beside what the user does, as the input of that name."""
        attrs = (("layout", (*domain, *range(len(shape)))), ("name", name), ("role", "input"))
        return self.declare(Node(-1, "input", domain, (TensorType(shape, INDEX_DTYPE),), (), attrs, (), 0, name))


def take_apart(rewriter: Rewriter, node: Node) -> None:
    """What a composite is made of in its place."""
    made_of = OPERATORS[node.op].decompose
    assert made_of is not None, f"{node.op} is whole"
    rewriter.put(node, made_of(Formula(node.attributes, node.operands, Tensors(rewriter, node.location))))


def without_idle_dims(graph: Graph) -> Graph:
    """`graph` with each pure node over those dims alone that it varies along, where a rewriting left more."""
    rewriter = Rewriter(graph)
    for node in graph.operands_first():
        node = replace(node, operands=tuple(_edge_again(rewriter, edge, node.location) for edge in node.operands))
        rewriter.nodes[node.id] = node if node.is_nominal else rewriter.over_what_varies(node)
    if all(rewriter.nodes[id].domain == node.domain for id, node in graph.nodes.items()):
        return graph
    for id, node in graph.nodes.items():
        cases = [replace(case, edge=_edge_again(rewriter, case.edge, node.location)) for case in node.cases]
        rewriter.nodes[id] = replace(rewriter.nodes[id], cases=tuple(cases))
    outputs = [replace(each, edge=_edge_again(rewriter, each.edge, each.location)) for each in graph.outputs]
    return replace(graph, nodes=rewriter.nodes, outputs=tuple(outputs))


def with_sizes(graph: Graph, sizes: Mapping[Symbol, Expr]) -> Graph:
    """The same program with other expressions in place of sizes."""

    def type_of(type: TensorType) -> TensorType:
        return replace(type, shape=tuple(size.substitute(sizes) for size in type.shape))

    def node_of(node: Node) -> Node:
        attrs = OPERATORS[node.op].with_exprs(node.attributes, lambda value: value.substitute(sizes))
        made = node.reading(lambda edge: edge.substitute(sizes))
        cases = tuple(replace(case, condition=case.condition.substitute(sizes)) for case in made.cases)
        results = tuple(map(type_of, node.results))
        return replace(made, attrs=tuple(sorted(attrs.items())), results=results, cases=cases)

    def output_of(output: Output) -> Output:
        return replace(output, edge=output.edge.substitute(sizes), type=type_of(output.type))

    return replace(
        graph,
        dims=tuple(replace(dim, size=dim.size.substitute(sizes)) for dim in graph.dims),
        nodes={id: node_of(node) for id, node in graph.nodes.items()},
        outputs=tuple(map(output_of, graph.outputs)),
    )


def _edge_again(rewriter: Rewriter, edge: Edge, location: Location | None) -> Edge:
    return Tensors(rewriter, location).read(edge, rewriter.graph.nodes[edge.node].domain)


class Tensors(Maker):
    """Operators as functions of edges, for the consumer at `location`."""

    def __init__(self, rewriter: NodeBuilder, location: Location | None) -> None:
        self.rewriter = rewriter
        self.location = location

    def seen(self, edge: Edge) -> TensorType:
        return self.rewriter.seen_type(edge)

    def apply(self, op: str, *operands: Edge, **attrs: Any) -> Edge:
        return self.rewriter.pure(op, operands, attrs, lambda: self.location)

    def read(self, edge: Edge, domain: tuple[Symbol, ...]) -> Edge:
        """The same read of a producer that had `domain`; what is sliced along a lost dim repeats."""
        kept, pairs = self.rewriter.nodes[edge.node].domain, list(zip(domain, edge.map, strict=True))
        seen = [(symbol in kept, index.seen) for symbol, index in pairs if isinstance(index, Slice)]
        shown = replace(edge, map=tuple(index for symbol, index in pairs if symbol in kept))
        for place, (varies, _) in enumerate(seen):
            shown = shown if varies else self.with_ones(shown, place, 1)
        if all(varies for varies, _ in seen):
            return shown
        return self.broadcast(shown, (*(size for _, size in seen), *self.shape(shown)[len(seen) :]))

    def moved(self, edge: Edge, source: int, target: int) -> Edge:
        """Axis `source` at position `target`, the others in their order."""
        axes = [axis for axis in range(self.rank(edge)) if axis != source]
        return self.transpose(edge, (*axes[:target], source, *axes[target:]))

    def with_ones(self, edge: Edge, position: int, count: int) -> Edge:
        """`count` axes of size 1 before axis `position`."""
        shape = self.shape(edge)
        return self.reshape(edge, (*shape[:position], *(const(1),) * count, *shape[position:]))

    def resized(self, edge: Edge, axis: int, size: Expr, sizes: Context, low: Expr | None = None) -> Edge:
        """With `size` positions of one axis: `low` zeros, the first ones, then zeros where there are not as many."""
        before, now = low or const(0), self.shape(edge)[axis]
        if before != const(0) and not sizes.implies(now.le(size - before)):
            edge, before, now = self.surrounded(edge, axis, before, const(0)), const(0), now + before
        if not sizes.implies(now.le(size - before)):
            now = size if sizes.implies(size.le(now)) else sizes.simplify(minimum(size, now))
            edge = self.cut(edge, axis, const(0), now)
        return self.surrounded(edge, axis, before, size - before - now)

    def at(self, edge: Edge, axis: int, index: Expr) -> Edge:
        """One position of an axis; the axis is gone."""
        shape = self.shape(edge)
        return self.reshape(self.cut(edge, axis, index, const(1)), (*shape[:axis], *shape[axis + 1 :]))

    def never_empty(self, edge: Edge, axis: int, sizes: Context) -> Edge:
        """With one more position where there may be none, so that there is one to clamp to."""
        if sizes.implies(self.shape(edge)[axis].ge(1)):
            return edge
        return self.surrounded(edge, axis, const(0), const(1))

    def gather(self, data: Edge, indices: Edge, axis: int, batch: int = 0) -> Edge:
        """`data` at `indices` along `axis`; indices out of range are clamped."""
        return self.apply("gather", data, indices, axis=axis, batch=batch, checked=False)

    def number(self, expr: Expr | int) -> Edge:
        return self.apply("index_value", expr=as_expr(expr))

    def iota(self, shape: Sequence[Expr], axis: int) -> Edge:
        return self.apply("iota", shape=tuple(shape), axis=axis, dtype=INDEX_DTYPE)

    def add(self, left: Edge, right: Edge) -> Edge:
        return self.apply("add", left, right)

    def times(self, edge: Edge, factor: int) -> Edge:
        return edge if factor == 1 else self.apply("mul", edge, self.number(factor))

    def values(self, expr: Expr, along: dict[Symbol, Edge]) -> Edge:
        """`expr` with tensors in place of some of its symbols."""
        if expr.symbols().isdisjoint(along):
            return self.number(expr)
        dtype = INDEX_DTYPE if fits_as_result(expr) else WIDE_DTYPE
        return self.cast(self._computed(expr, along, dtype), INDEX_DTYPE)

    def _computed(self, expr: Expr, along: dict[Symbol, Edge], dtype: str) -> Edge:
        """In 32 bits, or in 64 for what these do not hold on the way. Numbers that are given have 32."""
        if dtype == WIDE_DTYPE and not fits_in_64(expr):
            raise UnsupportedError(
                f"the index expression {expr} needs more than 64 bits where it is computed for many points at once",
                location=self.location,
                hint="make its numbers smaller",
            )
        parts, rest = [], const(expr.const)
        for atom, factor in expr.terms:
            if dtype == INDEX_DTYPE and atom.symbols().isdisjoint(along):
                rest = rest + Expr(((atom, 1),), 0) * factor
                continue
            value = self._atom(atom, along, dtype)
            parts.append(value if factor == 1 else self.apply("mul", value, self._number(factor, dtype)))
        if rest != const(0) or not parts:
            parts.append(self._number(rest, dtype))
        return reduce(self.add, parts)

    def _atom(self, atom: Any, along: dict[Symbol, Edge], dtype: str) -> Edge:
        if isinstance(atom, Symbol):
            return self.cast(along.get(atom) or self.number(var(atom)), dtype)
        if isinstance(atom, FloorDiv | Mod):
            op = "floordiv" if isinstance(atom, FloorDiv) else "mod"
            return self.apply(op, self._computed(atom.expr, along, dtype), self._number(atom.divisor, dtype))
        op = "minimum" if isinstance(atom, Min) else "maximum"
        return reduce(lambda a, b: self.apply(op, a, b), [self._computed(arg, along, dtype) for arg in atom.args])

    def _number(self, value: Expr | int, dtype: str) -> Edge:
        return self.number(value) if dtype == INDEX_DTYPE else self.constant(as_expr(value).as_int(), dtype)

    def holds(self, condition: Condition, along: dict[Symbol, Edge]) -> Edge:
        """`condition` with tensors in place of some of its symbols; bool."""
        if condition in (TRUE, FALSE) or condition.symbols().isdisjoint(along):
            return self.apply("condition_value", condition=condition)
        if isinstance(condition, And | Or):
            op = "logical_and" if isinstance(condition, And) else "logical_or"
            return reduce(lambda a, b: self.apply(op, a, b), [self.holds(arg, along) for arg in condition.args])
        if not isinstance(condition, Ge | Eq):
            raise TypeError(f"{condition!r} is no condition")
        op = "ge" if isinstance(condition, Ge) else "eq"
        if sides := self._sides(condition.expr, along, is_order=isinstance(condition, Ge)):
            return self.apply(op, *sides)
        return self.apply(op, self._computed(condition.expr, along, WIDE_DTYPE), self._number(0, WIDE_DTYPE))

    def _sides(self, expr: Expr, along: dict[Symbol, Edge], *, is_order: bool) -> tuple[Edge, Edge] | None:
        """Two sides, of which `expr` is the difference: the atoms with tensors in them, and the rest."""
        varying = Expr(tuple(term for term in expr.terms if not term[0].symbols().isdisjoint(along)), 0)
        rest = expr - varying
        if not fits_as_operand(varying):
            return None
        if not fits_as_operand(rest):
            return (self.values(varying, along), self._clipped(-rest)) if is_order else None
        if len(varying.terms) == 1 and varying.terms[0][1] < 0:
            return self.number(rest), self.values(-varying, along)
        return self.values(varying, along), self.number(-rest)

    def _clipped(self, expr: Expr) -> Edge:
        """A number that 32 bits may not hold, or one beyond all that they are compared with."""
        low, high = (self._number(end, WIDE_DTYPE) for end in (1 - 2**31, 2**31 - 1))
        value = self.apply("minimum", self._computed(expr, {}, WIDE_DTYPE), high)
        return self.apply("cast", self.apply("maximum", value, low), dtype=INDEX_DTYPE)
