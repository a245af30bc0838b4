"""Attention whose points are about to be lifted: one operator for all of them, in place of their scores.

    y[t] = softmax(q[t] k[t - w + 1:t + 1]) v[t - w + 1:t + 1]     is     y[t] = Y[t],  Y = banded_attention(q, k, v)

Lifted as it is spelled out, attention holds the scores of all pairs of points; the operator holds those of a block. It
is found where what a point sees begins and ends where it did for the point before, or one further on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tempo.passes.attention.match import Attention, Extra, Operands, inside, summed
from tempo.passes.composites import attention_at
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.vectorize.legality import Candidates, Span
from tempo.sdg.graph import Edge, Graph, Node, Slice, identity_map, index_symbols
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Expr, Max, Min, Symbol, const, var

OPERATOR = "banded_attention"


@dataclass(frozen=True)
class KeyWindow:
    """The keys that any point sees: `extent` from `lo` on. A point sees those from `start` to `stop - 1`.

    Counted from the first point and the first key, point i sees those from i + low to i + high - 1. `keys` is the slice
    of them as it was read; None where it is the same for all points.
    """

    lo: Expr
    extent: Expr
    start: Expr
    stop: Expr
    low: Expr
    high: Expr
    keys: Slice | None


@dataclass(frozen=True)
class BandedAttention:
    """`node` is attention at the points of `span`, as `found` says. Of what varies with them, nobody else reads what is
    `inside`.
    """

    node: Node
    found: Attention
    inside: frozenset[int]
    window: KeyWindow
    span: Span

    @property
    def members(self) -> frozenset[int]:
        """What the operator stands for."""
        return self.inside | {self.node.id}


def bands(candidates: Candidates) -> tuple[BandedAttention, ...]:
    """Attention among the candidates for lifting."""
    nodes = (candidates.graph.nodes[id] for id in candidates.spans)
    return tuple(band for node in nodes if (band := _band(candidates, node)) is not None)


def _band(candidates: Candidates, node: Node) -> BandedAttention | None:
    graph, symbol = candidates.graph, candidates.dim.symbol
    found = attention_at(graph, node)
    between = None if found is None else inside(graph, node, found.given())
    if found is None or between is None:
        return None
    varying = frozenset(id for id in between if symbol in graph.nodes[id].domain)
    if not varying <= candidates.spans.keys():
        return None
    try:
        window = _Seen(candidates, node, found).window()
    except _NotBanded:
        return None
    return BandedAttention(node, found, varying, window, candidates.spans[node.id])


class _NotBanded(Exception):
    """The operator does not do what the points do."""


@dataclass(frozen=True)
class _Seen:
    """What the points of a node that is attention see."""

    candidates: Candidates
    node: Node
    found: Attention

    @property
    def symbol(self) -> Symbol:
        return self.candidates.dim.symbol

    def mentions(self, expr: Expr) -> bool:
        return self.symbol in expr.symbols()

    def window(self) -> KeyWindow:
        """Raises _Refused."""
        found, graph = self.found, self.candidates.graph
        queries, keys, values = (side.edge for side in (found.queries, found.keys, found.values))
        if not moving(queries, self.symbol) or self.dynamic(queries):
            raise _NotBanded
        keys_at, values_at = self.sliced(keys, found.keys.free[0]), self.sliced(values, found.values.contracted[0])
        if keys_at is None or values_at is None:
            if keys_at is not values_at or moving(keys, self.symbol) or moving(values, self.symbol):
                raise _NotBanded
            whole = Slice(const(0), graph.seen_type(keys).shape[found.keys.free[0]])
        elif self.apart(keys_at, values_at):
            raise _NotBanded
        if any(not set(self.dynamic(extra.edge)) <= {extra.axes[found.keys_axis]} for extra in self.extras):
            raise _NotBanded
        return self.of_points(whole if keys_at is None else keys_at, keys_at)

    @property
    def extras(self) -> tuple[Extra, ...]:
        return (*self.found.bias, *self.found.mask)

    def dynamic(self, edge: Edge) -> list[int]:
        """The axes of what an edge shows whose length varies."""
        return [axis for axis, size in enumerate(self.candidates.graph.seen_type(edge).shape) if size.dims()]

    def sliced(self, edge: Edge, axis: int) -> Slice | None:
        """The slice that is `axis` of what an edge shows, where nothing else of it varies along the dim."""
        index = sliced(edge, axis, self.symbol)
        if not set(self.dynamic(edge)) <= ({axis} if index is not None else set()):
            raise _NotBanded
        return index

    def apart(self, one: Slice, other: Slice) -> bool:
        """Whether two slices are not as far apart from each other at all points."""
        return one.length != other.length or self.mentions(one.start - other.start)

    def of_points(self, seen: Slice, keys: Slice | None) -> KeyWindow:
        """Of all points of the span: from what the first sees first to what the last sees last."""
        here, sizes, span = self.candidates.context(self.node), self.candidates.sizes, self.span
        start, stop = here.simplify(seen.start), here.simplify(seen.start + seen.length)
        lo = sizes.simplify(start.substitute({self.symbol: span.lo}))
        hi = sizes.simplify(stop.substitute({self.symbol: span.hi - 1}))
        if lo.dims() or hi.dims() or not here.implies(stop.gt(start)) or not sizes.implies(lo.ge(0) & hi.ge(lo)):
            raise _NotBanded
        first, last = self.offset(start, Max), self.offset(stop, Min)
        low = 1 - span.size if first is None else span.lo + first - lo
        high = hi - lo if last is None else span.lo + last - lo
        return KeyWindow(lo, hi - lo, start, stop, low, high, keys)

    @property
    def span(self) -> Span:
        return self.candidates.spans[self.node.id]

    def offset(self, expr: Expr, kind: type[Max] | type[Min]) -> Expr | None:
        """c where the expression is t + c, but for what is the same at all points; None where all of it is.

        A start max(t + c, e) is e at the first point or after it, so that e is no limit to what is counted from there.
        """
        if not self.mentions(expr):
            return None
        (atom, factor), *rest = expr.terms
        parts = atom.args if isinstance(atom, kind) and factor == 1 and not rest and not expr.const else (expr,)
        moving = [part - var(self.symbol) for part in parts if self.mentions(part)]
        if len(moving) != 1 or moving[0].dims():
            raise _NotBanded
        return moving[0]


def moving(edge: Edge, symbol: Symbol) -> list[int]:
    """The places of the indices of a read that vary along the dim."""
    return [place for place, index in enumerate(edge.map) if symbol in index_symbols(index)]


def sliced(edge: Edge, axis: int, symbol: Symbol) -> Slice | None:
    """The slice that is `axis` of what an edge shows, where nothing else of the read varies along the dim."""
    places = moving(edge, symbol)
    index = edge.map[places[0]] if len(places) == 1 else None
    if not isinstance(index, Slice) or index.extent is not None:
        return None
    return index if sum(isinstance(other, Slice) for other in edge.map[: places[0]]) == axis else None


def with_bands(graph: Graph, found: Iterable[BandedAttention], symbol: Symbol) -> Graph:
    """`graph` with the operator in place of what it is of."""
    new = Rewriter(graph)
    for each in found:
        new.put(each.node, _Rewriting(new, each, symbol).attention())
    return without_dead_nodes(replace(graph, nodes=new.nodes))


class _Rewriting:
    def __init__(self, new: Rewriter, banded: BandedAttention, symbol: Symbol) -> None:
        self.banded, self.symbol = banded, symbol
        self.tensors = Tensors(new, banded.node.location)

    def attention(self) -> Edge:
        """All points at once, and of them the one of the dim."""
        found, window, tensors = self.banded.found, self.banded.window, self.tensors
        extras = [self.extra(extra) for extra in (*summed(found, tensors), *found.mask)]
        operands = Operands(found, tensors, self.all_points(found.queries.edge), 0)
        made = tensors.apply(
            OPERATOR,
            operands.arranged_queries(),
            *(self.all_keys(edge) for edge in (found.keys.edge, found.values.edge)),
            *(operands.arranged_extra(extra, points) for extra, points in extras),
            **operands.attrs(),
            low=window.low,
            high=window.high,
        )
        here = tensors.at(operands.result(made), len(found.batch), var(self.symbol) - self.banded.span.lo)
        return tensors.reshape(here, self.banded.node.shape)

    def all_points(self, edge: Edge) -> Edge:
        """What an edge shows at all points of the span, as a first axis."""
        nodes, span = self.tensors.rewriter.nodes, self.banded.span
        if edge.map != identity_map(nodes[edge.node].domain):
            edge = self.tensors.apply("copy", edge)
        domain = nodes[edge.node].domain
        map = tuple(Slice(span.lo, span.size) if s == self.symbol else i for s, i in zip(domain, edge.map, strict=True))
        return replace(edge, map=map)

    def all_keys(self, edge: Edge) -> Edge:
        """What an edge shows of all the keys that any point sees."""
        window = self.banded.window
        if window.keys is None:
            return edge
        map = list(edge.map)
        (place,) = moving(edge, self.symbol)
        map[place] = Slice(window.lo + map[place].start - window.keys.start, window.extent)  # type: ignore[union-attr]
        return replace(edge, map=tuple(map))

    def extra(self, extra: Extra) -> tuple[Extra, int | None]:
        """A bias or a mask of all keys, and its axis of points, if it has one."""
        window, edge, axis = self.banded.window, extra.edge, extra.axes[self.banded.found.keys_axis]
        if axis is not None and window.keys is not None:
            index = sliced(edge, axis, self.symbol)
            if index is not None and self.is_as_far(index, window.keys):
                return replace(extra, edge=self.all_keys(edge)), None
            before, after = window.start - window.lo, window.lo + window.extent - window.stop
            edge = self.tensors.surrounded(edge, axis, before, after)
        if not moving(edge, self.symbol):
            return replace(extra, edge=edge), None
        axes = tuple(None if shown is None else shown + 1 for shown in extra.axes)
        return Extra(self.all_points(edge), axes), 0

    def is_as_far(self, index: Slice, keys: Slice) -> bool:
        return index.length == keys.length and self.symbol not in (index.start - keys.start).symbols()
