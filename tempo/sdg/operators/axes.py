"""The axis rule of an operator: how the axes of its operands reach those of its result, as *factors*.

A factor is one index of what the operator ranges over, as in `bij,bjk->bik` (the name is that of sharding propagation).
It lies at an axis of some operands and at one of the result, or at none where it is folded. What is lifted, padded,
masked, cut into blocks or followed from statement to statement is an axis; all who ask what an operator does to it ask
here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tempo.symbolic import Expr

Attrs = Mapping[str, Any]
Shape = tuple[Expr, ...]


class Role(enum.Enum):
    """What an operator does along a factor.

    PARALLEL   position i of the operands reaches position i of the result, and no other
    REDUCING   the positions are folded; padding with `Fold.neutral` changes nothing
    SCANNING   as many positions, each of which may see others; behind padding at the end with `Fold.neutral` (with
               anything, where there is none) the ones before it are unchanged
    WINDOW     position i sees a fixed number from position `stride * i` on, or so many are added in front and behind
    MOVING     positions are moved, dropped or inserted, by an amount that attributes and sizes of other operands say
    OPAQUE     none of these
    """

    PARALLEL = "parallel"
    REDUCING = "reducing"
    SCANNING = "scanning"
    WINDOW = "window"
    MOVING = "moving"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Factor:
    """`operands`: its axis in each operand, None in those that repeat along it. `result`: that of the result, or None.

    Every axis is that of one factor, but for those of size 1 that repeat. `ordered`: what happens at a position depends
    on which one it is.
    """

    role: Role
    operands: tuple[int | None, ...]
    result: int | None = None
    ordered: bool = False
    stride: int = 1

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The numbers of the operands that have it, each with its axis."""
        return tuple((number, axis) for number, axis in enumerate(self.operands) if axis is not None)


Factors = tuple[Factor, ...]
AxisRule = Callable[[Attrs, Sequence[Shape], Shape], Factors]
"""From the attributes, the shapes of the operands and that of the result."""


@dataclass(frozen=True)
class Fold:
    """How positions come together along a REDUCING factor (a SCANNING one is padded with the same).

    neutral   from the dtype of an operand: padding with it changes nothing. None: the operator tells padding by itself
    combine   the operator that makes the whole of what two parts gave; None: none does
    """

    neutral: Callable[[str], bool | int | float] | None
    combine: str | None = None


SIZE = "size"
"""In `Operator.entries`: what an axis has in the attribute is its size."""


def matching(given: Shape, result: Shape, batch: int = 0) -> Iterator[int | None]:
    """For each axis of a result that of an operand which broadcasts to it; the first `batch` axes correspond."""
    more = len(result) - len(given)
    for place, size in enumerate(result):
        axis = place if place < batch else place - more
        found = axis >= 0 and not batch <= place < batch + more and given[axis] == size
        yield axis if found else None


def broadcast_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """All axes are kept, aligned as NumPy does behind the first `batch`."""
    found = [tuple(matching(shape, result, attrs.get("batch", 0))) for shape in operands]
    return tuple(Factor(Role.PARALLEL, tuple(of[axis] for of in found), axis) for axis in range(len(result)))


def along(key: str, role: Role, removed: bool = False, ordered: bool = False) -> AxisRule:
    """`role` along the axes of all operands that an attribute names, which the result lacks where `removed`."""

    def rule(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
        given = attrs[key]
        named = (given,) if isinstance(given, int) else given
        kept = iter(range(len(result)))
        factors = []
        for axis in range(len(operands[0])):
            places = (axis,) * len(operands)
            if axis not in named:
                factors.append(Factor(Role.PARALLEL, places, next(kept)))
            else:
                factors.append(Factor(role, places, None if removed else next(kept), ordered))
        return tuple(factors)

    return rule


def no_axes_known(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Every axis by itself, OPAQUE."""
    count = len(operands)
    found = [
        Factor(Role.OPAQUE, only(number, axis, count))
        for number, shape in enumerate(operands)
        for axis in range(len(shape))
    ]
    return (*found, *(Factor(Role.OPAQUE, (None,) * count, axis) for axis in range(len(result))))


def only(number: int, axis: int, count: int) -> tuple[int | None, ...]:
    """An axis of one of `count` operands."""
    return tuple(axis if at == number else None for at in range(count))


def after_a_new_one(axes: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """The same axes behind a new leading one."""
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)
