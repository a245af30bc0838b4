"""What an operator demands of the shapes at one point, beyond what its types say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo.analysis.reports import point_text
from tempo.errors import DomainError, ShapeError
from tempo.sdg.graph import Node
from tempo.symbolic import Symbol, as_expr

NON_EMPTY = frozenset({"reduce_max", "reduce_min", "argmax", "argmin"})
"""Operators that have no value over an empty axis."""

Shape = tuple[int, ...]


def check_call(
    node: Node, point: Sequence[int], env: Mapping[Symbol, int], operands: Sequence[Shape], result: Shape
) -> None:
    """Raises `ShapeError` for an extremum over nothing, `DomainError` for a spatial slice that leaves its axis."""
    if node.op in NON_EMPTY and 0 in operands[0] and 0 not in result:
        raise ShapeError(
            f"{node.op.removeprefix('reduce_')} over an empty slice at {point_text(node.domain, point)}",
            location=node.location,
            hint="It has no value there: guard the point with a case, or make the slice longer.",
        )
    if node.op == "slice":
        _check_slice(node, point, env, operands[0], result)


def _check_slice(
    node: Node, point: Sequence[int], env: Mapping[Symbol, int], operand: Shape, result: Shape
) -> None:
    axes = zip(node.attr("starts"), node.attr("steps"), result, operand)
    for axis, (start_expr, step, length, size) in enumerate(axes):
        start = int(as_expr(start_expr).evaluate(env))
        last = start + step * (length - 1)
        inside = 0 <= start <= size if length == 0 else 0 <= min(start, last) <= max(start, last) < size
        if inside or (length == 0 and step < 0):
            continue
        raise DomainError(
            f"axis {axis} of size {size} is indexed at {start}:{last + 1} at {point_text(node.domain, point)}",
            location=node.location,
            hint="Spatial slices are not clipped: keep start and stop between 0 and the size.",
        )
