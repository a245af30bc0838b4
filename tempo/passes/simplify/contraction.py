"""Reductions and contractions seen through movement, and sums of products as contractions.

    reduce(transpose(x)) = transpose(reduce(x)),    sum(broadcast(x)) = n x,    max(broadcast(x)) = max(x)
    sum_k x[..., k, ...] y[..., k, ...] = dot(x, y)
    dot(broadcast(x), y) = broadcast(dot(x, y))     where no summed axis repeats
    dot(x, cast(w)) = dot(x, w)                     where w is int8

They hold up to the order in which floats are summed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tempo import dtypes
from tempo.passes.rewrite.driver import Sweep, Term
from tempo.passes.simplify.movement import ONE, Axes, Moved, Shape, arranged, look_through
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr


def reduction_of_movement(node: Node, sweep: Sweep) -> Term | Edge | None:
    """A reduction reads the source of what is moved; what repeats along a reduced axis is reduced without repeating."""
    if OPERATORS[node.op].kind != "reduction" or OPERATORS[node.op].combine is None:
        return None
    operand = sweep.seen_type(node.operands[0])
    shape, reduced = operand.shape, frozenset(node.attr("axes"))
    found = look_through(node.operands[0], sweep)
    # Along an axis of size 1 nothing is reduced.
    shown = (None if axis in reduced and shape[axis] == ONE else of for axis, of in enumerate(found.axes))
    moved = Moved(found.source, tuple(shown))
    reduces = any(moved.axes[axis] is not None for axis in reduced)
    if (moved == Moved(node.operands[0], tuple(range(len(shape)))) and reduces) or (
        not reduces and operand.dtype != node.type.dtype
    ):
        return None
    repeated = [shape[axis] for axis in reduced if moved.axes[axis] is None and shape[axis] != ONE]
    if repeated and not _may_repeat(node, repeated, sweep):
        return None
    return _reduced(node, moved, reduced, repeated, sweep)


def _may_repeat(node: Node, repeated: Sequence[Expr], sweep: Sweep) -> bool:
    """An empty axis has another sum than n x, and no maximum; halves hold no large n."""
    if node.op == "reduce_prod" or dtypes.itemsize(node.type.dtype) == 2:
        return False
    return all(sweep.holds(size.ge(1)) for size in repeated)


def _reduced(node: Node, moved: Moved, reduced: frozenset[int], repeated: Sequence[Expr], sweep: Sweep) -> Term | Edge:
    source: Term | Edge = moved.source
    given = sweep.seen_type(moved.source).shape
    over = tuple(sorted(axis for place in reduced if (axis := moved.axes[place]) is not None))
    left = [axis for axis in range(len(given)) if axis not in over]
    if over:
        source = Term(node.op, (source,), {**node.attributes, "axes": over})
    kept = (axis for place, axis in enumerate(moved.axes) if place not in reduced)
    axes = tuple(None if axis is None else left.index(axis) for axis in kept)
    if node.op == "reduce_sum":
        for size in repeated:
            count = Term("cast", (Term("index_value", attrs={"expr": size}),), {"dtype": node.type.dtype})
            source = Term("mul", (source, count))
    return arranged(source, tuple(given[axis] for axis in left), axes, node.type.shape)


def sum_of_products(node: Node, sweep: Sweep) -> Term | Edge | None:
    """A product summed over axes is a contraction, where that saves making the product, or nothing else is left.

    A product whose every kept axis both factors have is no larger than they are: it stays.
    """
    if node.op != "reduce_sum":
        return None
    product = sweep.view(node.operands[0])
    if product is None or product.op != "mul":
        return None
    shape = product.type.shape
    lhs, rhs = (_factor(edge, shape, sweep) for edge in product.operands)
    kept = tuple(axis for axis in range(len(shape)) if axis not in node.attr("axes"))
    if kept and all(lhs.axes[axis] is not None and rhs.axes[axis] is not None for axis in kept):
        return None
    if not all(lhs.axes[axis] is not None and rhs.axes[axis] is not None for axis in node.attr("axes")):
        return None
    return _contraction(lhs, rhs, node.attr("axes"), kept, node.type, sweep)


def _factor(edge: Edge, shape: Shape, sweep: Sweep) -> Moved:
    """A factor of a product of the given shape, to which NumPy's rule broadcasts it."""
    moved, own = look_through(edge, sweep), sweep.seen_type(edge).shape
    more = len(shape) - len(own)
    shown = (axis if size == wanted else None for axis, size, wanted in zip(moved.axes, own, shape[more:]))
    return Moved(moved.source, (*[None] * more, *shown))


def dot_of_movement(node: Node, sweep: Sweep) -> Term | Edge | None:
    """A contraction reads the sources of what is moved; a batch axis along which one side repeats is free."""
    if node.op != "dot":
        return None
    sides = [look_through(edge, sweep) for edge in node.operands]
    if [side.source for side in sides] == list(node.operands):
        return None
    # The axes of the result, then those that are contracted, and which axis of each operand has the place.
    ranks = [len(sweep.seen_type(edge).shape) for edge in node.operands]
    (left, free_left), (right, free_right) = (_axes(node, side, rank) for side, rank in zip(("lhs", "rhs"), ranks))
    count = len(node.attr("lhs_contract"))
    batch = len(left) - count
    places = (
        (*left[:batch], *free_left, *[None] * len(free_right), *left[batch:]),
        (*right[:batch], *[None] * len(free_left), *free_right, *right[batch:]),
    )
    lhs, rhs = (
        Moved(side.source, tuple(None if axis is None else side.axes[axis] for axis in own))
        for side, own in zip(sides, places)
    )
    kept = tuple(range(len(node.type.shape)))
    contracted = tuple(range(len(kept), len(kept) + count))
    if any(lhs.axes[axis] is None or rhs.axes[axis] is None for axis in contracted):
        return None
    return _contraction(lhs, rhs, contracted, kept, node.type, sweep)


def dot_of_cast(node: Node, sweep: Sweep) -> Term | None:
    """A contraction with floats reads int8 as it is stored: a copy as floats would take several times its bytes, be
    kept as what no loop changes, and be read in its place."""
    if node.op != "dot" or not dtypes.is_float(node.type.dtype):
        return None
    for at, edge in enumerate(node.operands):
        cast = sweep.view(edge)
        if cast is None or cast.op != "cast" or sweep.seen_type(node.operands[1 - at]).dtype != node.type.dtype:
            continue
        stored = sweep.seen_type(cast.operands[0])
        if stored.dtype == "int8" and all(size.is_const for size in stored.shape):
            pair = (cast.operands[0], node.operands[1])
            return Term("dot", pair if at == 0 else (node.operands[0], cast.operands[0]), node.attributes)
    return None


def _axes(node: Node, side: str, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch and contracted axes of an operand, and the others."""
    named = (*node.attr(f"{side}_batch"), *node.attr(f"{side}_contract"))
    return named, tuple(axis for axis in range(rank) if axis not in named)


def _contraction(
    lhs: Moved, rhs: Moved, contracted: Sequence[int], kept: Sequence[int], type: TensorType, sweep: Sweep
) -> Term | Edge:
    """The sum over the places `contracted` of lhs times rhs, whose places `kept` are the axes of the result."""
    batch = [place for place in kept if lhs.axes[place] is not None and rhs.axes[place] is not None]
    attrs: dict[str, Axes] = {}
    made: list[int | None] = [*batch]
    given = [size for place in batch if (size := _size(lhs, place, sweep)) is not None]
    for side, moved in (("lhs", lhs), ("rhs", rhs)):
        shape = sweep.seen_type(moved.source).shape
        attrs[f"{side}_contract"] = tuple(moved.axes[place] for place in contracted)
        attrs[f"{side}_batch"] = tuple(moved.axes[place] for place in batch)
        free = set(range(len(shape))) - set(attrs[f"{side}_contract"]) - set(attrs[f"{side}_batch"])
        # In the order that `dot` gives them; what no place shows has size 1.
        made += [moved.axes.index(axis) if axis in moved.axes else None for axis in sorted(free)]
        given += [shape[axis] for axis in sorted(free)]
    axes = tuple(made.index(place) if place in made else None for place in kept)
    return arranged(Term("dot", (lhs.source, rhs.source), attrs), tuple(given), axes, type.shape)


def _size(moved: Moved, place: int, sweep: Sweep) -> Expr | None:
    axis = moved.axes[place]
    return None if axis is None else sweep.seen_type(moved.source).shape[axis]
