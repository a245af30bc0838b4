"""What an operator demands of the shapes at one point, beyond what its types say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tempo.analysis.reports import empty_error, needs_elements, spatial_error
from tempo.sdg.graph import Node
from tempo.symbolic import Symbol, as_expr

Shape = tuple[int, ...]


def check_call(
    node: Node, point: Sequence[int], env: Mapping[Symbol, int], operands: Sequence[Shape], result: Shape
) -> None:
    """Raises `ShapeError` for an extremum over nothing, `DomainError` for a spatial slice that leaves its axis."""
    if needs_elements(node) and 0 in operands[0] and 0 not in result:
        raise empty_error(node, point)
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
        raise spatial_error(node, axis, f"{start}:{last + 1}", size, point)
