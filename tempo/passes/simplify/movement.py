"""What movement does to axes: which axis of what is moved each axis shows, and one normal form of every such chain.

Transpositions, broadcasts, and reshapes that only insert or drop axes of size 1 compose to one map: each axis of the
result shows an axis of the source, or repeats. The normal form of a map is `broadcast(reshape(transpose(source)))`,
without those of the three that change nothing. So equal maps are equal terms, and a pattern that wants to see through
movement asks for the map. Elementwise operators repeat what they compute as late as possible, since they broadcast
by themselves, and edges of one value are padding: `concat([0, 0], x, [0])` is `pad(x)`, which nothing has to read them
for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tempo.passes.rewrite.driver import Sweep, Term
from tempo.passes.rewrite.patterns import constant_value
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators import OPERATORS, Role
from tempo.symbolic import Expr, as_expr, const

ONE = const(1)

Axes = tuple[int | None, ...]
Shape = tuple[Expr, ...]


class Views(Protocol):
    """What edges show: a sweep, or a graph as it is."""

    def view(self, edge: Edge) -> Node | None: ...

    def seen_type(self, edge: Edge) -> TensorType: ...


@dataclass(frozen=True)
class Moved:
    """`source` as it is seen: axis i of what is seen shows axis `axes[i]` of it, or repeats it where None.

    Axes of the source that nothing shows have size 1; so have those of what is seen that show None, or they repeat.
    """

    source: Edge
    axes: Axes


def look_through(edge: Edge, sweep: Views) -> Moved:
    """What an edge reads, seen through all movement that composes to a map of axes."""
    found = Moved(edge, tuple(range(len(sweep.seen_type(edge).shape))))
    while True:
        node = sweep.view(found.source)
        step = None if node is None else axes_of(node, sweep)
        if node is None or step is None:
            return found
        found = Moved(node.operands[0], tuple(None if axis is None else step[axis] for axis in found.axes))


def axes_of(node: Node, sweep: Views) -> Axes | None:
    """The map of one node of movement, by its axis rule; None where it has none."""
    operator = OPERATORS[node.op]
    if operator.kind != "movement" or len(node.operands) != 1:
        return None
    given, axes = sweep.seen_type(node.operands[0]).shape, dict[int | None, int | None]()
    for factor in operator.axes(node.attributes, [given], node.type.shape):
        if factor.role is not Role.PARALLEL or factor.ordered:
            return None
        axes[factor.result] = factor.operands[0]
    return tuple(axes[place] for place in range(len(node.type.shape)))


def arranged(source: Term | Edge, given: Shape, axes: Axes, shape: Shape) -> Term | Edge:
    """The normal form: a tensor of shape `given` so that axis i of `shape` shows its axis `axes[i]`, or repeats."""
    axes = tuple(None if axis is None or given[axis] == ONE else axis for axis in axes)
    order = _order(given, axes, shape)
    if order != tuple(range(len(given))):
        source, given = Term("transpose", (source,), {"axes": order}), tuple(given[axis] for axis in order)
        axes = tuple(None if axis is None else order.index(axis) for axis in axes)
    flat = tuple(ONE if axis is None else size for axis, size in zip(axes, shape))
    if flat == shape:
        return source if given == shape else Term("reshape", (source,), {"shape": shape})
    if not _broadcasts(given, axes):
        first = next((place for place, axis in enumerate(axes) if axis is not None), len(axes))
        source = Term("reshape", (source,), {"shape": flat[first:]})
    return Term("broadcast", (source,), {"shape": shape})


def _order(given: Shape, axes: Axes, shape: Shape) -> tuple[int, ...]:
    """The axes of the source in the order shown; those of size 1 fill the places of size 1, or stand at the end."""
    shown = [axis for axis in axes if axis is not None]
    if shown == sorted(shown):
        return tuple(range(len(given)))
    ones = iter([axis for axis, size in enumerate(given) if size == ONE])
    filled = [next(ones, None) if axis is None and size == ONE else axis for axis, size in zip(axes, shape)]
    return (*(axis for axis in filled if axis is not None), *ones)


def _broadcasts(given: Shape, axes: Axes) -> bool:
    """Whether NumPy's rule puts every axis of the source where it is shown."""
    more = len(axes) - len(given)
    return more >= 0 and all(size == ONE or axes[axis + more] == axis for axis, size in enumerate(given))


def normal_movement(node: Node, sweep: Sweep) -> Term | Edge | None:
    """A chain of movement in its normal form; None where it is in it, and for other nodes."""
    step = axes_of(node, sweep)
    if step is None:
        return None
    inner = look_through(node.operands[0], sweep)
    axes = tuple(None if axis is None else inner.axes[axis] for axis in step)
    given = sweep.seen_type(inner.source).shape
    found = arranged(inner.source, given, axes, node.type.shape)
    return None if _is(found, node, sweep) else found


def _is(term: Term | Edge, node: Node | None, sweep: Sweep) -> bool:
    """Whether the term is what the node is, down to the source."""
    if not isinstance(term, Term) or node is None or term.op != node.op:
        return False
    if dict(term.attrs) != node.attributes:
        return False
    operand = term.operands[0]
    return operand == node.operands[0] or _is(operand, sweep.view(node.operands[0]), sweep)


def late_broadcast(node: Node, sweep: Sweep) -> Term | None:
    """f(broadcast(x), y) = f(x, y), broadcast to the shape of the result where x and y together do not have it."""
    if OPERATORS[node.op].kind != "elementwise":
        return None
    operands = tuple(_source(edge, sweep) for edge in node.operands)
    if operands == node.operands:
        return None
    inferred = OPERATORS[node.op].infer(node.attributes, tuple(map(sweep.seen_type, operands)))
    found = Term(node.op, operands, node.attributes)
    return found if inferred.shape == node.type.shape else Term("broadcast", (found,), {"shape": node.type.shape})


def _source(edge: Edge, sweep: Sweep) -> Edge:
    node = sweep.view(edge)
    if node is None or node.op != "broadcast" or node.attributes.get("batch", 0):
        return edge
    return node.operands[0]


def movement_after(node: Node, sweep: Sweep) -> Term | None:
    """after(move(x), y) = move(after(x, y)): what waits is as little as can be, else what is moved is kept until then,
    for others that move it alike."""
    moved = sweep.view(node.operands[0]) if node.op == "after" else None
    if moved is None or OPERATORS[moved.op].kind != "movement" or len(moved.operands) != 1:
        return None
    if sweep.seen_type(node.operands[1]).shape:
        return None
    return Term(moved.op, (Term("after", (moved.operands[0], node.operands[1])),), moved.attributes)


def slice_of_transposed(node: Node, sweep: Sweep) -> Term | None:
    """slice(transpose(x)) = reshape(slice(x)) where the axes with several positions keep their order: of one point of
    what is kept the axes lie as they are, so that the whole is not turned for it."""
    turned = sweep.view(node.operands[0]) if node.op == "slice" else None
    if turned is None or turned.op != "transpose":
        return None
    order = turned.attr("axes")
    long = [axis for axis, size in zip(order, node.type.shape, strict=True) if size != ONE]
    if long != sorted(long):
        return None
    attrs = {
        name: tuple(node.attr(name)[order.index(axis)] for axis in range(len(order)))
        for name in ("starts", "lengths", "steps")
    }
    return Term("reshape", (Term("slice", turned.operands, attrs),), {"shape": node.type.shape})


def slice_of_gather(node: Node, sweep: Sweep) -> Term | None:
    """slice(gather(x, i)) = gather(slice(x), slice(i)), where nobody else looks at what is gathered."""
    found = sweep.view(node.operands[0]) if node.op == "slice" else None
    if found is None or found.op != "gather" or found.attr("checked") or not sweep.alone_reads(node, "gather"):
        return None
    (data, indices), axis, batch = found.operands, found.attr("axis"), found.attr("batch")
    (given, shape), cut = (sweep.seen_type(edge).shape for edge in (data, indices)), _cut(node)
    if any(part != _all(size) for part, size in zip(cut[:batch], given)):
        return None
    end = axis + len(shape) - batch
    of_data = (*cut[:axis], _all(given[axis]), *cut[end:])
    of_indices = (*map(_all, shape[:batch]), *cut[axis:end])
    return Term("gather", (_sliced(data, of_data), _sliced(indices, of_indices)), found.attributes)


_Part = tuple[Expr, Expr, int]
"""Of a slice, along one axis: start, length, step."""


def _cut(slice: Node) -> list[_Part]:
    parts = zip(*(slice.attr(name) for name in ("starts", "lengths", "steps")), strict=True)
    return [(as_expr(start), as_expr(length), step) for start, length, step in parts]


def _all(size: Expr) -> _Part:
    return const(0), size, 1


def _sliced(edge: Edge, parts: Sequence[_Part]) -> Term:
    starts, lengths, steps = zip(*parts) if parts else ((), (), ())
    return Term("slice", (edge,), {"starts": starts, "lengths": lengths, "steps": steps})


def pad_of_edges(node: Node, sweep: Sweep) -> Term | None:
    """What is joined, but for one part, is constant and everywhere the same number, as many at every point."""
    if node.op != "concat":
        return None
    values = [_number(edge, sweep) for edge in node.operands]
    inside = [place for place, value in enumerate(values) if value is None]
    if len(inside) != 1 or len({value for value in values if value is not None}) != 1:
        return None
    (place,), axis = inside, node.attr("axis")
    sizes = [sweep.seen_type(edge).shape[axis] for edge in node.operands]
    if any(size.dims() for place, size in enumerate(sizes) if place not in inside):
        return None
    rank = len(node.type.shape)
    low, high = (_along(axis, rank, part) for part in (sizes[:place], sizes[place + 1 :]))
    value = next(value for value in values if value is not None)
    return Term("pad", (node.operands[place],), {"low": low, "high": high, "value": value})


def _number(edge: Edge, sweep: Sweep) -> float | int | bool | None:
    """The value of all elements; None also for NaN and -0.0, which are not told from others by comparing."""
    array = constant_value(edge, sweep)
    if array is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    value = array.flat[0].item()
    if math.isnan(value) or not np.all(array == array.flat[0]) or np.any(np.signbit(array) & (array == 0)):
        return None
    return value  # type: ignore[no-any-return]


def _along(axis: int, rank: int, sizes: list[Expr]) -> tuple[Expr, ...]:
    total = sum(sizes, const(0))
    return tuple(total if at == axis else const(0) for at in range(rank))
