"""A sum of what several slices of one tensor get: `pad(a) + pad(b)`, with zeros where the other is, is `concat(a, b)`.

The gates of a cell are slices of one product, so their gradients are the parts of one tensor. Padded and added, each of
them would be as large as all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

from tempo.autodiff.nodes import Nodes
from tempo.sdg.graph import Edge, TensorType
from tempo.symbolic import Expr, const


@dataclass(frozen=True)
class _Padded:
    """`edge` stands from `start` to `end` along an axis, of `size` positions; zeros are around it."""

    edge: Edge
    axis: int
    start: int
    end: int
    size: Expr


def summed(nodes: Nodes, edges: Sequence[Edge]) -> Edge:
    """The sum of tensors of one shape."""
    parts = [_part(nodes, edge) for edge in edges]
    whole = [edge for edge, part in zip(edges, parts) if part is None]
    found = (part for part in parts if part is not None)
    rows = groupby(sorted(found, key=lambda part: (part.axis, part.start)), lambda part: part.axis)
    return reduce(nodes.add, [*whole, *(edge for _, row in rows for edge in _joined(nodes, list(row)))])


def _part(nodes: Nodes, edge: Edge) -> _Padded | None:
    """What is padded with zeros along one axis, as far as numbers say; None for anything else."""
    node = nodes.nodes[edge.node]
    if node.op != "pad" or node.attr("value") != 0 or not nodes.is_identity(edge):
        return None
    (inner,), low, high = node.operands, node.attr("low"), node.attr("high")
    axes = [axis for axis, sides in enumerate(zip(low, high)) if sides != (const(0), const(0))]
    if len(axes) != 1:
        return None
    (axis,) = axes
    start, length = low[axis], nodes.shape(inner)[axis]
    if not (start.is_const and length.is_const and start.as_int() >= 0):
        return None
    return _Padded(inner, axis, start.as_int(), (start + length).as_int(), nodes.shape(edge)[axis])


def _joined(nodes: Nodes, parts: list[_Padded]) -> Iterable[Edge]:
    """The parts in a row, in rows that do not overlap."""
    while parts:
        row, rest = [parts[0]], list[_Padded]()
        for part in parts[1:]:
            (row if part.start >= row[-1].end else rest).append(part)
        yield _in_a_row(nodes, row)
        parts = rest


def _in_a_row(nodes: Nodes, row: list[_Padded]) -> Edge:
    axis, edges, end = row[0].axis, list[Edge](), row[0].start
    for part in row:
        if part.start > end:
            edges.append(_gap(nodes, part, part.start - end))
        edges.append(part.edge)
        end = part.end
    joined = edges[0] if len(edges) == 1 else nodes.apply("concat", *edges, axis=axis)
    return nodes.surrounded(joined, axis, const(row[0].start), row[0].size - end)


def _gap(nodes: Nodes, part: _Padded, size: int) -> Edge:
    type = nodes.seen(part.edge)
    shape = (*type.shape[: part.axis], const(size), *type.shape[part.axis + 1 :])
    return nodes.zeros(TensorType(shape, type.dtype))
