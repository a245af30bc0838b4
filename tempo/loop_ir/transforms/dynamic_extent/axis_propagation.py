"""Which axis of a value is the one whose extent varies, through operators; and the operators with another extent there.

For every operator the question is the same: where does the axis lie in the result, or is it folded? What is not known
to work position by position along the axis, or to fold it, has no answer here (`None`), and is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tempo.errors import TempoError
from tempo.loop_ir.ir import Compute
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import cut_attrs, pad_attrs
from tempo.symbolic import Expr, as_expr, const

Axes = Sequence[int | None]
"""Per operand the axis of varying extent; None: it has none."""

FOLDED = -1
_ZERO = const(0)


@dataclass(frozen=True)
class Tracked:
    """An operator along the axis: `axis` of the result, or `FOLDED`; `attrs` of a given extent.

    `operands` has the axis of each operand, `cut` says which of them are known at full extent: of these the first
    positions are taken. `more` is by how much the axis is longer than the extent in each operand, and last in the
    result: what is padded or convolved is longer or shorter than what is read.
    """

    compute: Compute
    operands: tuple[int | None, ...]
    axis: int
    attrs: Callable[[int], Mapping[str, Any]]
    more: tuple[int, ...]
    cut: tuple[int, ...] = ()

    @property
    def least(self) -> int:
        """The least extent at which every axis has a position."""
        return 1 - min(self.more)

    @property
    def by_position(self) -> bool:
        """Whether a position of the result sees one position of the operands, the same."""
        if self.compute.op not in _ACROSS:
            return True
        return _ACROSS[self.compute.op](self.compute, self.operands[0])

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
        made = replace(self.compute, attrs=self.attrs(made_of), operands=names, operand_types=types, type=type)
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


def tracked(compute: Compute, axes: Axes, resolve: Callable[[Expr], int], extent: int | None = None) -> Tracked | None:
    """What `compute` does along the axis that at least one of its operands has; None where that is not known.

    `extent`: what the axis has where it is read. Else it is taken to be as long in all values.
    """
    shapes = [tuple(resolve(size) for size in type.shape) for type in compute.operand_types]
    result = tuple(resolve(size) for size in compute.type.shape)
    kind = OPERATORS[compute.op].kind
    rule = _elementwise if kind == "elementwise" else _RULES.get(compute.op)
    if rule is None:
        return None
    full = _at_full_extent(compute, axes, shapes)
    along = tuple(full.get(number, axis) for number, axis in enumerate(axes))
    found = rule(_AxisRequest(compute, along, shapes, result))
    if found is None:
        return None
    places = [*zip(shapes, along), (result, None if found[0] == FOLDED else found[0])]
    more = tuple(0 if axis is None or extent is None else shape[axis] - extent for shape, axis in places)
    answer = Tracked(compute, along, *found, more, tuple(sorted(full)))
    return answer if _is_consistent(answer, resolve) else None


def _at_full_extent(compute: Compute, axes: Axes, shapes: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """The operands that meet the axis with one of their own that is known in full, and which it is."""
    if compute.op == "dot":
        left, right = axes
        pairs = [pair for kind in ("contract", "batch") for pair in _pairs(compute.attrs, kind)]
        met = {0: next((a for a, b in pairs if b == right), None), 1: next((b for a, b in pairs if a == left), None)}
        return {number: axis for number, axis in met.items() if axes[number] is None and axis is not None}
    if OPERATORS[compute.op].kind != "elementwise":
        return {}
    place = max(axis - len(shape) for axis, shape in zip(axes, shapes) if axis is not None)
    others = (number for number, axis in enumerate(axes) if axis is None and len(shapes[number]) >= -place)
    return {number: len(shapes[number]) + place for number in others if shapes[number][place] != 1}


def _pairs(attrs: Mapping[str, Any], kind: str) -> list[tuple[int, int]]:
    return list(zip(attrs[f"lhs_{kind}"], attrs[f"rhs_{kind}"], strict=True))


@dataclass(frozen=True)
class _AxisRequest:
    compute: Compute
    axes: tuple[int | None, ...]
    shapes: list[tuple[int, ...]]
    result: tuple[int, ...]

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.compute.attrs

    def same(self, extent: int) -> Mapping[str, Any]:
        """The attributes do not mention the axis."""
        return self.compute.attrs

    def one(self) -> int:
        """The axis of a single operand."""
        assert self.axes[0] is not None
        return self.axes[0]

    def resized(self, key: str, axis: int) -> Callable[[int], Mapping[str, Any]]:
        """The attributes with the entry for the axis in a tuple of sizes replaced."""

        def attrs(extent: int) -> Mapping[str, Any]:
            sizes = list(self.compute.attrs[key])
            sizes[axis] = const(extent)
            return {**self.compute.attrs, key: tuple(sizes)}

        return attrs


Answer = tuple[int, Callable[[int], Mapping[str, Any]]] | None


def _elementwise(s: _AxisRequest) -> Answer:
    """Aligned from the right; an operand without the axis repeats along it."""
    places = {axis - len(shape) for axis, shape in zip(s.axes, s.shapes) if axis is not None}
    return (len(s.result) + places.pop(), s.same) if len(places) == 1 else None


def _same_axis(s: _AxisRequest) -> Answer:
    return s.one(), s.same


def _reduction(s: _AxisRequest) -> Answer:
    axes = s.attrs["axes"] if "axes" in s.attrs else (s.attrs["axis"],)
    axis = s.one()
    return (FOLDED if axis in axes else axis - sum(each < axis for each in axes)), s.same


def _transpose(s: _AxisRequest) -> Answer:
    return tuple(s.attrs["axes"]).index(s.one()), s.same


def _reshape(s: _AxisRequest) -> Answer:
    """The axis stays one where as many elements lie before and behind it as did."""
    axis, shape = s.one(), s.shapes[0]
    before = math.prod(shape[:axis])
    for at, size in enumerate(s.result):
        if size == shape[axis] and math.prod(s.result[:at]) == before:
            return at, s.resized("shape", at)
    return None


def _broadcast(s: _AxisRequest) -> Answer:
    axis, batch = s.one(), s.attrs.get("batch", 0)
    at = axis if axis < batch else axis + len(s.result) - len(s.shapes[0])
    return (at, s.resized("shape", at)) if s.result[at] == s.shapes[0][axis] else None


def _slice(s: _AxisRequest) -> Answer:
    axis = s.one()
    start = as_expr(s.attrs["starts"][axis])
    if start != const(0) or s.attrs["steps"][axis] != 1 or s.result[axis] != s.shapes[0][axis]:
        return None
    return axis, s.resized("lengths", axis)


def _concat(s: _AxisRequest) -> Answer:
    axes = set(s.axes)
    return None if len(axes) != 1 or s.attrs["axis"] in axes else _same_axis(s)


def _flip(s: _AxisRequest) -> Answer:
    return None if s.one() in s.attrs["axes"] else _same_axis(s)


def _dot(s: _AxisRequest) -> Answer:
    """The result is batch axes, free axes of the left, free axes of the right."""
    left, right = s.axes
    for kind in ("contract", "batch"):
        for position, pair in enumerate(_pairs(s.attrs, kind)):
            if (left, right) == pair:
                return (FOLDED if kind == "contract" else position), s.same
            if left == pair[0] or right == pair[1]:
                return None
    if left is not None and right is not None:
        return None
    batch = len(s.attrs["lhs_batch"])
    free = [_free(len(shape), s.attrs, side) for shape, side in zip(s.shapes, ("lhs", "rhs"))]
    if left is not None:
        return batch + free[0].index(left), s.same
    assert right is not None
    return batch + len(free[0]) + free[1].index(right), s.same


def _pad(s: _AxisRequest) -> Answer:
    """As much is added whatever the extent."""
    return s.one(), s.same


def _conv(s: _AxisRequest) -> Answer:
    """The result is batch axes, samples, filters, and along space what the steps leave."""
    data, kernel = s.axes
    batch, channel = s.attrs.get("batch", 0), _channel(s.attrs, s.shapes[0])
    if data is None:
        return (channel, s.same) if kernel == batch else None
    if data < batch or data == channel:
        shared = kernel == (data if data < batch else batch + 1)
        return ((FOLDED if data == channel else data), s.same) if shared else None
    return (data, s.same) if kernel is None else None


def _channel(attrs: Mapping[str, Any], data: Sequence[Any]) -> int:
    return len(data) - len(attrs["strides"]) - 1


def _free(rank: int, attrs: Mapping[str, Any], side: str) -> list[int]:
    taken = {*attrs[f"{side}_contract"], *attrs[f"{side}_batch"]}
    return [axis for axis in range(rank) if axis not in taken]


def _along_another(compute: Compute, axis: int | None) -> bool:
    return bool(axis != compute.attrs["axis"] % len(compute.type.shape))


def _unpadded(compute: Compute, axis: int | None) -> bool:
    return axis is None or all(as_expr(compute.attrs[side][axis]) == const(0) for side in ("low", "high"))


def _not_spatial(compute: Compute, axis: int | None) -> bool:
    return axis is None or axis <= _channel(compute.attrs, compute.operand_types[0].shape)


_ACROSS: Mapping[str, Callable[[Compute, int | None], bool]] = {
    **dict.fromkeys(("sort", "argsort", "cumsum"), _along_another),
    "pad": _unpadded,
    "conv": _not_spatial,
}
"""Whether an operator that looks at other positions, too, looks along another axis than that of its first operand."""

_REDUCTIONS = ("sum", "max", "min", "prod", "any", "all")
_RULES: Mapping[str, Callable[[_AxisRequest], Answer]] = {
    **{f"reduce_{name}": _reduction for name in _REDUCTIONS},
    "argmax": _reduction,
    "argmin": _reduction,
    "mask": _same_axis,
    "cumsum": _same_axis,
    "sort": _same_axis,
    "argsort": _same_axis,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "flip": _flip,
    "dot": _dot,
    "pad": _pad,
    "conv": _conv,
}


def _is_consistent(found: Tracked, resolve: Callable[[Expr], int]) -> bool:
    """Whether the operator itself says the same of an extent that no other axis has."""
    *_, compute = found.at(_ODD)
    try:
        inferred = OPERATORS[compute.op].infer(compute.attrs, compute.operand_types)
    except TempoError:
        return False
    return [resolve(size) for size in inferred.shape] == [resolve(size) for size in compute.type.shape]


_ODD = 104_729  # a prime


def _with(type: TensorType, axis: int, extent: int) -> TensorType:
    return replace(type, shape=(*type.shape[:axis], const(extent), *type.shape[axis + 1 :]))
