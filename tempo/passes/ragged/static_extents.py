"""Static tiling by hulls: every extent that varies becomes its upper bound, and padding is kept from what matters.

A read of `length` positions becomes one of `extent` positions of which the first `length` mean anything. What a node
holds before its valid lengths is what it held before the pass; behind them lies anything, NaN included. So operators
that fold an axis get a mask, and those that move positions get indices that step over the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.errors import UnsupportedError
from tempo.passes.manager import PassContext
from tempo.passes.ragged.rules import RULES, static
from tempo.passes.ragged.values import Fills, Hulls, Situation, Value
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Edge, Graph, IndexMap, Node, Output, Point, Slice, TensorType
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Condition, Expr, const, over_lengths

Trims = tuple[tuple[Expr | None, ...], ...]


@dataclass(frozen=True)
class StaticExtents:
    """After it no shape mentions a dim, nor a length in a bucket.

    Slices keep their `length` and get an `extent`. Host calls and sinks whose operands vary get the attribute `trims`:
    for every operand, for every axis, the valid length to cut it to before the call, or None. Raises UnsupportedError
    with the operator and its location where there is no rule.
    """

    name: ClassVar[str] = "static_extents"
    needed: ClassVar[str] = "code is made for shapes that do not vary"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        graph = without_dead_nodes(graph)
        if not any(_varies(graph, node) for node in graph.nodes.values()):
            return graph
        return without_dead_nodes(_Widening(graph, context).graph())


def _varies(graph: Graph, node: Node) -> bool:
    """Whether the node has, or sees, a shape that varies with a dim, or with a length in a bucket."""
    shapes = [type.shape for type in node.results]
    shapes += [graph.seen_type(edge).shape for _, edge in node.reads()]
    return any(size.varies for shape in shapes for size in shape)


class _Widening:
    def __init__(self, graph: Graph, context: PassContext) -> None:
        self.old = graph
        self.hulls = Hulls(graph, context.demand(graph), context.facts)
        self.new = Rewriter(graph)
        self.fills: dict[int, Fills] = {}

    def graph(self) -> Graph:
        for node in self.old.nodes.values():
            if node.is_nominal:
                self.new.nodes[node.id] = self.declared(node)
        order = self.old.operands_first()
        for node in order:
            if not node.is_merge:
                self.rewrite(node)
        for node in order:
            if node.is_merge:
                self.new.nodes[node.id] = self.merge(node)
        outputs = tuple(map(self.output, self.old.outputs))
        return replace(self.old, nodes=self.new.nodes, outputs=outputs)

    def declared(self, node: Node) -> Node:
        """A nominal node with a static shape; who makes the values of inputs and calls cannot pad them, but that inputs
        in buckets are padded when they are given.
        """
        sizes = [size for type in node.results for size in type.shape]
        what = node.name or node.op
        if any(size.dims() for size in sizes) and (node.is_input or node.is_host_call):
            raise UnsupportedError(
                f"{what} has a shape that varies, which a compiled program cannot hold",
                location=node.location,
                hint="Declare the greatest shape and pad, or run it with backend='reference'.",
            )
        if any(size.varies for size in sizes) and node.is_call:
            raise UnsupportedError(
                f"{what} makes arrays whose shape varies with a size in a bucket",
                location=node.location,
                hint="leave the dim out of buckets=",
            )
        return replace(node, results=tuple(self.static_type(node, type) for type in node.results))

    def static_type(self, node: Node, type: TensorType) -> TensorType:
        return replace(type, shape=tuple(self.hulls.hull(size, node) for size in type.shape))

    def rewrite(self, node: Node) -> None:
        values = tuple(self.read(node, edge) for edge in node.operands)
        if node.is_draw:
            shape = self.new.nodes[node.id].shape
            self.new.nodes[node.id] = self.new.nodes[node.id].with_attrs(shape=shape)
        elif node.declaration is not None:
            self.new.nodes[node.id] = self.at_the_boundary(self.new.nodes[node.id], values)
        else:
            situation = Situation(node, values, self.hulls, self.new)
            made = static(situation, RULES)
            self.fills[node.id] = made.fills
            self.new.put(node, self.exact(situation.tensors, made.edge, situation.lengths))

    def exact(self, tensors: Tensors, edge: Edge, lengths: Sequence[Expr]) -> Edge:
        """Without the padding of axes that do not vary: they may have come from one that does, read at one point."""
        for axis, length in enumerate(lengths):
            if not length.varies:
                edge = tensors.cut(edge, axis, const(0), length)
        return edge

    def merge(self, node: Node) -> Node:
        """Every case with the physical shape of the merge."""
        shape, cases = self.new.nodes[node.id].shape, []
        for case in node.cases:
            value = self.read(node, case.edge, case.condition)
            situation = Situation(node, (value,), self.hulls, self.new)
            for axis, size in enumerate(shape):
                value = situation.sized(value, axis, size)
            cases.append(replace(case, edge=value.edge))
        return replace(self.new.nodes[node.id], cases=tuple(cases))

    def at_the_boundary(self, node: Node, values: Sequence[Value]) -> Node:
        trims: Trims = tuple(tuple(n if n.varies else None for n in value.lengths) for value in values)
        operands = tuple(value.edge for value in values)
        node = replace(node, operands=operands)
        return node.with_attrs(trims=trims) if any(value.dynamic_axes for value in values) else node

    def read(self, node: Node, edge: Edge, condition: Condition = TRUE) -> Value:
        """What `edge` shows in the new graph, and the valid lengths of its axes."""
        self.check_not_ragged(node, edge)
        lengths = self.old.seen_type(edge).shape
        map: IndexMap = tuple(self.widened(node, index, condition) for index in edge.map)
        tensors, slices = Tensors(self.new, node.location), sum(isinstance(index, Slice) for index in map)
        fills = {slices + axis: fill for axis, fill in self.fills.get(edge.node, {}).items()}
        shown = tensors.read(replace(edge, map=map), self.old.nodes[edge.node].domain)
        return Value(self.exact(tensors, shown, lengths), lengths, fills)

    def widened(self, node: Node, index: Point | Slice, condition: Condition) -> Point | Slice:
        if not isinstance(index, Slice) or not index.length.varies:
            return index
        return replace(index, extent=self.hulls.hull(index.length, node, condition))

    def check_not_ragged(self, node: Node, edge: Edge) -> None:
        producer = self.old.nodes[edge.node]
        sliced = {s for s, index in zip(producer.domain, edge.map, strict=True) if isinstance(index, Slice)}
        ragged = sliced & {s for size in producer.results[edge.result].shape for s in size.dims()}
        for symbol in ragged:
            raise UnsupportedError(
                f"{node.op} reads a slice along {symbol} of a tensor whose shape varies with {symbol}",
                location=node.location,
                hint="Give that tensor one shape, padded, or reduce it before it is sliced.",
            )

    def output(self, output: Output) -> Output:
        """With all that a bucket holds."""
        tensors, read = Tensors(self.new, None), output.edge
        edge = replace(read, map=tuple(map(_with_extent, read.map)))
        shown = tensors.read(edge, self.old.nodes[read.node].domain)
        edge = self.exact(tensors, shown, self.old.seen_type(read).shape)
        return replace(output, edge=edge, type=replace(output.type, shape=tensors.shape(edge)))


def _with_extent(index: Point | Slice) -> Point | Slice:
    """Of what no dim varies."""
    if isinstance(index, Point) or not index.length.varies:
        return index
    return replace(index, extent=over_lengths(index.length))
