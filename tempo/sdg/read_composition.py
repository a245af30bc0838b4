"""Reads through reads: what is seen of x through a node that only hands x on, as one read of x."""

from __future__ import annotations

from tempo.sdg.graph import Edge, IndexMap, Point, Slice, index_exprs, substitute_index
from tempo.symbolic import Expr, Symbol, var


def compose(inner: Edge, domain: tuple[Symbol, ...], outer: IndexMap) -> Edge | None:
    """What `outer` sees of a node of the given domain whose value at every point is what `inner` reads.

    A point is substituted. A slice over a dim d goes through an index d + c: `x[d + c]` at d = s, ..., s + n - 1 is
    `x[s + c], ..., x[s + c + n - 1]`. Its axis stays where it is only if the sliced dims come in the same order in x,
    before the slices of `inner`. None where no single read shows the same.
    """
    points = {symbol: index.index for symbol, index in zip(domain, outer) if isinstance(index, Point)}
    slices = {symbol: index for symbol, index in zip(domain, outer) if isinstance(index, Slice)}
    if not slices:
        return inner.substitute(points)
    composed: list[Point | Slice] = []
    axes: list[Symbol | None] = []  # of the slices composed so far: the dim sliced by `outer`, None for one of `inner`
    for index in inner.map:
        sliced = [symbol for symbol in slices if any(symbol in expr.dims() for expr in index_exprs(index))]
        if not sliced:
            composed.append(substitute_index(index, points))
            axes += [None] if isinstance(index, Slice) else []
            continue
        offset = _offset(index, sliced)
        if offset is None:
            return None
        seen = slices[sliced[0]]
        composed.append(Slice(offset.substitute(points) + seen.start, seen.length, seen.extent))
        axes.append(sliced[0])
    if axes[: len(slices)] != list(slices) or any(axis is not None for axis in axes[len(slices) :]):
        return None
    return Edge(inner.node, tuple(composed), inner.result)


def _offset(index: Point | Slice, sliced: list[Symbol]) -> Expr | None:
    """c where the index is d + c for the one sliced dim d in it, else None."""
    if not isinstance(index, Point) or len(sliced) != 1:
        return None
    offset = index.index - var(sliced[0])
    return None if sliced[0] in offset.dims() else offset
