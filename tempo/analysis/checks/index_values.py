"""Index expressions as tensors have 32 bits: which of them do not fit, at known sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tempo.analysis.demand.instances import demanded
from tempo.analysis.reports import point_text
from tempo.errors import DTypeError
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Expr, Symbol
from tempo.symbolic.widths import IntegerRange, bounds, exactly

_LIMITS = np.iinfo(np.int32)


def check_index_values(graph: Graph, sizes: Mapping[Symbol, int]) -> None:
    """Raises `DTypeError` where an index expression is needed as a tensor at a point at which it exceeds int32."""
    suspects = _suspects(graph, sizes)
    if not suspects:
        return
    masks = demanded(graph, sizes)
    for node in suspects:
        _check(node, masks[node.id], sizes)


def surely_fit(graph: Graph, sizes: Mapping[Symbol, int]) -> bool:
    """Whether none exceeds int32, as far as bounds tell."""
    return not _suspects(graph, sizes)


def _suspects(graph: Graph, sizes: Mapping[Symbol, int]) -> list[Node]:
    extents = {dim.symbol: int(dim.size.evaluate(sizes)) for dim in graph.dims}
    ranges = {symbol: exactly(size) for symbol, size in sizes.items()}
    ranges.update((symbol, IntegerRange(0, extent - 1)) for symbol, extent in extents.items())
    values = (node for node in graph.nodes.values() if node.op == "index_value")
    return [node for node in values if not bounds(node.attr("expr"), ranges).fits(32)]


def _check(node: Node, mask: np.ndarray[Any, Any], sizes: Mapping[Symbol, int]) -> None:
    points = np.argwhere(mask)
    expr: Expr = node.attr("expr")
    values = np.asarray(expr.evaluate({**sizes, **dict(zip(node.domain, points.T, strict=True))}))
    outside = np.flatnonzero((values < _LIMITS.min) | (values > _LIMITS.max))
    if len(points) == 0 or len(outside) == 0:
        return
    first = int(outside[0])
    raise DTypeError(
        f"the index expression {expr} is {values.flat[first]} at {point_text(node.domain, points[first])}: "
        "as a tensor it is int32",
        location=node.location,
        hint="make the tensor first and compute with it: tp.as_tensor(t, dtype=tp.int64) * 1000000",
    )
