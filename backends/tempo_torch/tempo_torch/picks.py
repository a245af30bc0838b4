"""One place along an axis: a slice of length 1 and the reshape that drops its axis are one view, not two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch

from tempo.lowering.loop_ir import Compute, Segment, Statement, walk
from tempo.lowering.releases import blocks, used
from tempo.symbolic import Expr, as_expr

Statements = tuple[Statement, ...]

_MANY = 1024  # places beyond which views of all of them would cost memory that matters


@dataclass(frozen=True)
class Pick:
    """What `operand` holds at `place` of `axis`, clamped into the axis, as all slices are."""

    operand: str
    axis: int
    place: Expr


def picks(segment: Segment) -> Mapping[str, Pick]:
    """By the name of the slice: those whose only use is the statement after them, which drops the axis."""
    body: Statements = (segment.loop,) if segment.loop else segment.body
    uses = Counter(name for statement in walk(body) for name in used(statement))
    found = (pick for block in blocks(body) for pick in _in_block(block))
    return {name: pick for name, pick in found if uses[name] == 1}


def _in_block(block: Statements) -> Iterator[tuple[str, Pick]]:
    for cut, dropping in pairwise(block):
        if not (isinstance(cut, Compute) and isinstance(dropping, Compute)):
            continue
        if cut.op != "slice" or dropping.op != "reshape" or dropping.operands != (cut.result,):
            continue
        axis = _moving(cut)
        if axis is not None and dropping.type.shape == cut.type.shape[:axis] + cut.type.shape[axis + 1 :]:
            yield cut.result, Pick(cut.operands[0], axis, _starts(cut)[axis])


def _moving(cut: Compute) -> int | None:
    """The one axis of which one place is taken, where all others are whole."""
    axes = zip(_starts(cut), cut.attrs["steps"], cut.type.shape, cut.operand_types[0].shape)
    partial = [
        axis
        for axis, (start, step, length, size) in enumerate(axes)
        if step != 1 or length != size or start != as_expr(0)
    ]
    if len(partial) != 1 or cut.type.shape[partial[0]] != as_expr(1):
        return None
    return partial[0]


def _starts(cut: Compute) -> tuple[Expr, ...]:
    """Where it runs, in the loops around it: the attribute is in the node's own coordinates."""
    return tuple(as_expr(start) for start in cut.scalars if isinstance(start, Expr))


def picked(tensor: torch.Tensor, axis: int, place: int) -> torch.Tensor:
    """The place of the axis, clamped into it; a view. Of an axis without places: something that nobody looks at."""
    if not tensor.shape[axis]:
        return tensor.new_zeros((*tensor.shape[:axis], *tensor.shape[axis + 1 :]))
    return tensor.select(axis, min(max(place, 0), tensor.shape[axis] - 1))


@cache
def picker(axis: int) -> Callable[[torch.Tensor], Callable[[int], torch.Tensor]]:
    """What makes of a tensor the function `picked` along one axis, its views made in advance where they are few."""

    def places(tensor: torch.Tensor) -> Callable[[int], torch.Tensor]:
        if not 0 < tensor.shape[axis] <= _MANY:
            return lambda place: picked(tensor, axis, place)
        views = tensor.unbind(axis)
        last = len(views) - 1
        return lambda place: views[min(max(place, 0), last)]

    places.__name__ = f"places_of_axis_{axis}"  # the source names what is made in advance by it
    return places
