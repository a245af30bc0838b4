"""Which axis of a value is the one whose extent varies, through operators; and the operators with another extent there.

The operator's own axis rule answers where the axis lies in the result, or whether it is folded. What moves positions,
or is not known to do any of these, has no answer here (`None`), and is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tempo.loop_ir.ir import Compute
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import Factor, Role, Shape
from tempo.sdg.operators.making import cut_attrs, pad_attrs
from tempo.symbolic import Expr, const

Axes = Sequence[int | None]
"""Per operand the axis of varying extent; None: it has none."""

FOLDED = -1
_ZERO = const(0)


@dataclass(frozen=True)
class Tracked:
    """An operator along the axis, which is that of `factor`.

    `cut` says which operands are known at full extent: of these the first positions are taken. `more` is by how much
    the axis is longer than the extent in each operand, and last in the result: what is padded or convolved is longer or
    shorter than what is read.
    """

    compute: Compute
    factor: Factor
    more: tuple[int, ...]
    cut: tuple[int, ...] = ()

    @property
    def operands(self) -> tuple[int | None, ...]:
        return self.factor.operands

    @property
    def axis(self) -> int:
        """That of the result, or `FOLDED`."""
        return FOLDED if self.factor.result is None else self.factor.result

    @property
    def least(self) -> int:
        """The least extent at which every axis has a position."""
        return 1 - min(self.more)

    @property
    def by_position(self) -> bool:
        """Whether a position of the result sees one position of the operands, the same."""
        return self.factor.role in (Role.PARALLEL, Role.REDUCING)

    def at(self, extent: int, start: Expr = _ZERO) -> tuple[Compute, ...]:
        """The same with another extent of the axis: the operator, last, and what it needs beside.

        `start` is the position, among those of the full extent, of the first.
        """
        cuts = {number: self._cut(number, extent + self.more[number], start) for number in self.cut}
        types = tuple(
            type if axis is None else _with(type, axis, extent + more)
            for type, axis, more in zip(self.compute.operand_types, self.operands, self.more)
        )
        made_of = extent + self.more[-1]
        type = self.compute.type if self.axis == FOLDED else _with(self.compute.type, self.axis, made_of)
        names = tuple(
            cuts[number].result if number in cuts else name for number, name in enumerate(self.compute.operands)
        )
        attrs = OPERATORS[self.compute.op].resized(self.compute.attrs, type.shape)
        made = replace(self.compute, attrs=attrs, operands=names, operand_types=types, type=type)
        return (*cuts.values(), made)

    def lengthened(self, extent: int) -> tuple[tuple[Compute, ...], Tracked]:
        """With the operands that are cut made so long first, by statements that come before."""
        pads = {number: self._pad(number, extent) for number in self.cut}
        operands, types = list(self.compute.operands), list(self.compute.operand_types)
        for number, pad in pads.items():
            operands[number], types[number] = pad.result, pad.type
        compute = replace(self.compute, operands=tuple(operands), operand_types=tuple(types))
        return tuple(pads.values()), replace(self, compute=compute)

    def _cut(self, number: int, extent: int, start: Expr) -> Compute:
        shape, axis = self.compute.operand_types[number].shape, self._axis_of(number)
        return self._resized("slice", number, extent, cut_attrs(shape, axis, start, const(extent)))

    def _pad(self, number: int, extent: int) -> Compute:
        shape, axis = self.compute.operand_types[number].shape, self._axis_of(number)
        return self._resized("pad", number, extent, pad_attrs(len(shape), axis, _ZERO, const(extent) - shape[axis]))

    def _resized(self, op: str, number: int, extent: int, attrs: Mapping[str, Any]) -> Compute:
        name, type = f"{self.compute.result}__{op}_{number}", self.compute.operand_types[number]
        operands, result = (self.compute.operands[number],), _with(type, self._axis_of(number), extent)
        return Compute(name, op, attrs, operands, (type,), result, OPERATORS[op].scalars(attrs))

    def _axis_of(self, number: int) -> int:
        axis = self.operands[number]
        assert axis is not None
        return axis


def factor_along(compute: Compute, axes: Axes, resolve: Callable[[Expr], int]) -> Factor | None:
    """The factor that lies at the axis of every operand that has it; None where there is no such one."""
    shapes = [_numbers(type, resolve) for type in compute.operand_types]
    factors = OPERATORS[compute.op].axes(compute.attrs, shapes, _numbers(compute.type, resolve))
    wanted = {(number, axis) for number, axis in enumerate(axes) if axis is not None}
    return next((factor for factor in factors if wanted <= set(factor.places)), None)


def _numbers(type: TensorType, resolve: Callable[[Expr], int]) -> Shape:
    return tuple(const(resolve(size)) for size in type.shape)


def tracked(compute: Compute, axes: Axes, resolve: Callable[[Expr], int], extent: int | None = None) -> Tracked | None:
    """What `compute` does along the axis that at least one of its operands has; None where that is not known.

    `extent`: what the axis has where it is read. Else it is taken to be as long in all values.
    """
    factor = factor_along(compute, axes, resolve)
    if factor is None or not _has_any_extent(compute, factor):
        return None
    types = (*compute.operand_types, compute.type)
    places = zip(types, (*factor.operands, factor.result))
    more = (0 if axis is None or extent is None else resolve(type.shape[axis]) - extent for type, axis in places)
    cut = tuple(number for number, _ in factor.places if axes[number] is None)
    return Tracked(compute, factor, tuple(more), cut)


def _has_any_extent(compute: Compute, factor: Factor) -> bool:
    """Whether the operator can be given another extent, padded, and nothing else changes.

    What is told at run time how many positions count has nothing of another extent; a check must see all that it did.
    """
    if compute.attrs.get("checked"):
        return False
    if factor.role is Role.REDUCING:
        fold = OPERATORS[compute.op].fold
        return fold is not None and fold.neutral is not None
    return factor.role in (Role.PARALLEL, Role.SCANNING) or (factor.role is Role.WINDOW and factor.stride == 1)


def _with(type: TensorType, axis: int, extent: int) -> TensorType:
    return replace(type, shape=(*type.shape[:axis], const(extent), *type.shape[axis + 1 :]))
