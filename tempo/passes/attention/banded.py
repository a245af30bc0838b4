"""Attention whose points are about to be lifted: one operator for all of them, in place of their scores.

    y[t] = softmax(q[t] k[t - w + 1:t + 1]) v[t - w + 1:t + 1]     is     y[t] = Y[t],  Y = banded_attention(q, k, v)

Lifted as it is spelled out, attention holds the scores of all pairs of points; the operator holds those of a block. It
is found where what a point sees begins and ends where it did for the point before, or one further on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tempo.passes.attention.match import KEY, POINTS, WIDTH, Attention, Labelled, Operands, inside, summed
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
    """`node` is attention at the points of `span`, as `found` says. The operator stands for the `members`, which nobody
    else reads, but for the node.
    """

    node: Node
    found: Attention
    members: frozenset[int]
    window: KeyWindow
    span: Span


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
    return BandedAttention(node, found, varying | {node.id}, window, candidates.spans[node.id])


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
        """Raises _NotBanded."""
        found, graph = self.found, self.candidates.graph
        queries, keys, values = (side.edge for side in (found.queries, found.keys, found.values))
        if not moving(queries, self.symbol) or self.dynamic(queries):
            raise _NotBanded
        keys_at, values_at = self.sliced(found.keys), self.sliced(found.values)
        if keys_at is None or values_at is None:
            if keys_at is not values_at or moving(keys, self.symbol) or moving(values, self.symbol):
                raise _NotBanded
            (axis,) = found.keys.axes((KEY,))
            whole = Slice(const(0), graph.seen_type(keys).shape[axis])
        elif not as_far(keys_at, values_at, self.symbol):
            raise _NotBanded
        if any(not set(self.dynamic(extra.edge)) <= {extra.axis(KEY)} for extra in (*found.bias, *found.mask)):
            raise _NotBanded
        return self.of_points(whole if keys_at is None else keys_at, keys_at)

    def dynamic(self, edge: Edge) -> list[int]:
        """The axes of what an edge shows whose length varies."""
        return [axis for axis, size in enumerate(self.candidates.graph.seen_type(edge).shape) if size.dims()]

    def sliced(self, shown: Labelled) -> Slice | None:
        """The slice that is the keys of what is shown, where nothing else of it varies along the dim."""
        index = sliced(shown, self.symbol)
        if not set(self.dynamic(shown.edge)) <= ({shown.axis(KEY)} if index is not None else set()):
            raise _NotBanded
        return index

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
        if span.size.varies or (hi - lo).varies:  # in a bucket, behind the length of which there is padding
            fixed = not high.varies and (first is None or not low.varies)
            if not fixed or not sizes.implies((span.size - 1 + high).le(hi - lo)):
                raise _NotBanded
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


def sliced(shown: Labelled, symbol: Symbol) -> Slice | None:
    """The slice that is the keys of what is shown, where nothing else of the read varies along the dim."""
    map, places = shown.edge.map, moving(shown.edge, symbol)
    index = map[places[0]] if len(places) == 1 else None
    if not isinstance(index, Slice) or index.extent is not None:
        return None
    return index if sum(isinstance(other, Slice) for other in map[: places[0]]) == shown.axis(KEY) else None


def as_far(one: Slice, other: Slice, symbol: Symbol) -> bool:
    """Whether two slices are as far apart from each other at all points."""
    return one.length == other.length and symbol not in (one.start - other.start).symbols()


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
        queries = self.all_points(found.queries)
        operands = Operands(found, self.banded.node.dtype, tensors, queries)
        keys, values = (self.all_keys(shown.edge) for shown in (found.keys, found.values))
        made = tensors.apply(
            OPERATOR,
            *operands.of_dtype(operands.arranged(queries, WIDTH), keys, values),
            *(operands.arranged(self.extra(extra), KEY) for extra in (*summed(found, tensors), *found.mask)),
            **operands.attrs(),
            low=window.low,
            high=window.high,
        )
        here = tensors.at(made, len(found.batch), var(self.symbol) - self.banded.span.lo)
        return tensors.reshape(operands.result(here), self.banded.node.shape)

    def all_points(self, shown: Labelled) -> Labelled:
        """The same at all points of the span, as a first axis."""
        edge, nodes, span = shown.edge, self.tensors.rewriter.nodes, self.banded.span
        if edge.map != identity_map(nodes[edge.node].domain):
            edge = self.tensors.apply("copy", edge)
        domain = nodes[edge.node].domain
        map = tuple(Slice(span.lo, span.size) if s == self.symbol else i for s, i in zip(domain, edge.map, strict=True))
        return Labelled(replace(edge, map=map), (POINTS, *shown.labels))

    def all_keys(self, edge: Edge) -> Edge:
        """What an edge shows of all the keys that any point sees."""
        window = self.banded.window
        if window.keys is None:
            return edge
        map = list(edge.map)
        (place,) = moving(edge, self.symbol)
        map[place] = Slice(window.lo + map[place].start - window.keys.start, window.extent)  # type: ignore[union-attr]
        return replace(edge, map=tuple(map))

    def extra(self, extra: Labelled) -> Labelled:
        """A bias or a mask of all keys, and of all points where it is not the same for each."""
        window, axis = self.banded.window, extra.axis(KEY)
        if axis is not None and window.keys is not None:
            index = sliced(extra, self.symbol)
            if index is not None and as_far(index, window.keys, self.symbol):
                return replace(extra, edge=self.all_keys(extra.edge))
            before, after = window.start - window.lo, window.lo + window.extent - window.stop
            extra = replace(extra, edge=self.tensors.surrounded(extra.edge, axis, before, after))
        return self.all_points(extra) if moving(extra.edge, self.symbol) else extra
