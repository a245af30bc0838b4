"""One place along an axis: a slice of length 1 and the reshape that drops its axis are one view, not two.

What a lifted node made of all points at once is read so by the loop that needs them one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tempo.loop_ir.analysis.names import operands
from tempo.loop_ir.ir import Block, Branch, Compute, Loop, Segment, Statement, nested, walk
from tempo.symbolic import Condition, Context, Expr, as_expr, var

Facts = tuple[Condition, ...]


@dataclass(frozen=True)
class Pick:
    """What `operand` holds at `place` of `axis`; clamped into the axis, as all slices are, unless it is `inside`."""

    operand: str
    axis: int
    place: Expr
    inside: bool


def picks(segment: Segment) -> Mapping[str, Pick]:
    """By the name of the slice: those whose only use is the statement after them, which drops the axis."""
    uses = Counter(name for statement in walk(segment.body) for name in operands(statement))
    found = (pick for block, facts in _blocks(segment.body, ()) for pick in _in_block(block, facts))
    return {name: pick for name, pick in found if uses[name] == 1}


def _blocks(body: Block, facts: Facts) -> Iterator[tuple[Block, Facts]]:
    """Every block with what holds where it runs."""
    yield body, facts
    for statement in body:
        for block, fact in zip(nested(statement), _facts(statement)):
            yield from _blocks(block, (*facts, *fact))


def _facts(statement: Statement) -> tuple[Facts, ...]:
    """What holds in each of the blocks inside a statement beside what holds where it stands itself."""
    if isinstance(statement, Loop):
        return ((var(statement.var).ge(statement.lo), var(statement.var).lt(statement.hi)),)
    if isinstance(statement, Branch):
        return (statement.condition,), (~statement.condition,)
    return ((),)


def _in_block(block: Block, facts: Facts) -> Iterator[tuple[str, Pick]]:
    for cut, dropping in pairwise(block):
        if not (isinstance(cut, Compute) and isinstance(dropping, Compute)):
            continue
        if cut.op != "slice" or dropping.op != "reshape" or dropping.operands != (cut.result,):
            continue
        axis = _moving(cut)
        if axis is None or dropping.type.shape != cut.type.shape[:axis] + cut.type.shape[axis + 1 :]:
            continue
        place, size = starts(cut)[axis], cut.operand_types[0].shape[axis]
        inside = Context.of((), *facts).implies(place.ge(0) & place.lt(size))
        yield cut.result, Pick(cut.operands[0], axis, place, inside)


def _moving(cut: Compute) -> int | None:
    """The one axis of which one place is taken, where all others are whole."""
    axes = cut_axes(cut)
    return axes[0] if len(axes) == 1 and cut.type.shape[axes[0]] == as_expr(1) else None


def cut_axes(cut: Compute) -> tuple[int, ...]:
    """The axes that a slice does not take as they are."""
    axes = zip(starts(cut), cut.attrs["steps"], cut.type.shape, cut.operand_types[0].shape)
    return tuple(
        axis
        for axis, (start, step, length, size) in enumerate(axes)
        if step != 1 or length != size or start != as_expr(0)
    )


def starts(cut: Compute) -> tuple[Expr, ...]:
    """Where it runs, in the loops around it: the attribute is in the node's own coordinates."""
    return tuple(as_expr(start) for start in cut.scalars if isinstance(start, Expr))
