"""What each kind of operator becomes when extents that vary are made static.

Operators whose axes are parallel, reduced or scanned follow from their roles. Those that move positions, or whose
operands must agree in size, have a rule of their own in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.passes.ragged.reshaping import reshaped
from tempo.passes.ragged.values import Situation, Value
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.rewriter import INDEX_DTYPE
from tempo.symbolic import Expr, as_expr, const, maximum

Rule = Callable[[Situation], Edge]


def static(situation: Situation) -> Edge:
    """The node with static extents, of the same value wherever the lengths of the node make it valid."""
    if OPERATORS[situation.node.op].kind == "elementwise":
        return elementwise(situation)
    return RULES.get(situation.node.op, by_roles)(situation)


def elementwise(situation: Situation) -> Edge:
    values = situation.values
    rank = len(situation.lengths)
    for axis, length in enumerate(situation.lengths):
        places = [
            (number, axis - rank + len(value.lengths))
            for number, value in enumerate(values)
            if axis - rank + len(value.lengths) >= 0
        ]
        spread = [place for place in places if values[place[0]].lengths[place[1]] != const(1)]
        values = situation.agreeing(values, spread, length)
    return situation.apply(values)


def by_roles(situation: Situation) -> Edge:
    """Padding is neutral where axes are reduced, and harmless where they are parallel or scanned."""
    values = tuple(_padded(situation, number, value) for number, value in enumerate(situation.values))
    return situation.apply(values, **_hulled(situation))


def _padded(situation: Situation, number: int, value: Value) -> Value:
    ranks = tuple(len(other.lengths) for other in situation.values)
    roles = OPERATORS[situation.node.op].roles(situation.attrs, ranks)[number]
    for axis in value.dynamic_axes:
        if roles[axis] in (Role.MOVING, Role.OPAQUE) or (roles[axis] is Role.REDUCING and len(ranks) > 1):
            raise situation.unsupported(f"cannot work along axis {axis}, whose extent {value.lengths[axis]} varies")
        if roles[axis] is Role.REDUCING:
            value = situation.masked(value, axis, situation.neutral(situation.dtype(value)))
    return value


def _hulled(situation: Situation) -> dict[str, Any]:
    """The lengths among the attributes, made static."""
    operator = OPERATORS[situation.node.op]
    return {key: _map(value, situation.hull) for key, value in situation.attrs.items() if key in operator.static_attrs}


def _map(value: Any, change: Callable[[Expr], Expr]) -> Any:
    if isinstance(value, tuple):
        return tuple(_map(item, change) for item in value)
    return change(value) if isinstance(value, Expr) else value


def dot(situation: Situation) -> Edge:
    """Both operands are masked: 0 times what happens to lie in the padding may be NaN."""
    attrs, values = situation.attrs, situation.values
    for kind in ("contract", "batch"):
        for left, right in zip(attrs[f"lhs_{kind}"], attrs[f"rhs_{kind}"], strict=True):
            values = situation.agreeing(values, [(0, left), (1, right)], situation.values[0].lengths[left])
    lhs, rhs = values
    for left, right in zip(attrs["lhs_contract"], attrs["rhs_contract"], strict=True):
        fill = situation.neutral(situation.dtype(lhs))
        lhs, rhs = situation.masked(lhs, left, fill), situation.masked(rhs, right, fill)
    return situation.apply((lhs, rhs))


def convolved(situation: Situation) -> Edge:
    """Axes of the data get their padding, then the size at which the result has its hull; channels are contracted."""
    attrs, values = situation.attrs, situation.values
    batch, channel = attrs.get("batch", 0), len(values[0].lengths) - len(attrs["strides"]) - 1
    for place in range(batch):
        values = situation.agreeing(values, [(0, place), (1, place)], values[0].lengths[place])
    values = situation.agreeing(values, [(0, channel), (1, batch + 1)], values[0].lengths[channel])
    fill = situation.neutral(situation.dtype(values[0]))
    data, kernel = situation.masked(values[0], channel, fill), situation.masked(values[1], batch + 1, fill)
    padding = list(attrs["padding"])
    for number, taps in enumerate(kernel.lengths[batch + 2 :]):
        axis = channel + 1 + number
        if taps.dims():
            raise situation.unsupported(f"with a kernel of {taps} taps comes apart in the pass 'decompose'")
        if not data.is_dynamic(axis):
            continue
        stride, dilation = attrs["strides"][number], attrs["dilation"][number]
        out = situation.hulls.sizes.simplify(maximum(situation.hull(situation.lengths[axis]), 1))
        size = (out - 1) * stride + (taps - 1) * dilation + 1
        low, high = padding[number]
        if low or high:
            data = situation.masked(data, axis, 0)
        edge = situation.tensors.resized(data.edge, axis, size, situation.hulls.sizes, const(low))
        data, padding[number] = replace(data, edge=edge), (0, 0)
    return situation.apply((data, kernel), padding=tuple(padding))


def attention(situation: Situation) -> Edge:
    """The operator is told how many keys count; operands agree in size along keys and rows."""
    values, attrs = situation.values, situation.attrs
    last = len(values[0].lengths) - 1
    keys = [(1, attrs["key_axes"][-2]), (2, attrs["value_axes"][-2])]
    rows = [(0, last - 1)]
    for number, extra in enumerate(values[3:], 3):
        keys += [(number, last)] if extra.lengths[last] != const(1) else []
        rows += [(number, last - 1)] if extra.lengths[last - 1] != const(1) else []
    for places in (keys, rows):
        number, axis = places[0]
        values = situation.agreeing(values, places, values[number].lengths[axis])
    return situation.apply(values)


def sorting(situation: Situation) -> Edge:
    """Padding sorts last, and behind equal elements, since sorts are stable. NaN sorts after infinity."""
    (value,) = situation.values
    dtype = situation.dtype(value)
    last = np.nan if dtypes.is_float(dtype) else dtypes.highest(dtype)
    return situation.apply([situation.masked(value, situation.attrs["axis"], last)])


def broadcast(situation: Situation) -> Edge:
    (value,) = situation.values
    target = list(_map(situation.attrs["shape"], situation.hull))
    batch = situation.attrs.get("batch", 0)
    for axis, size in enumerate(situation.physical(value)):
        if value.lengths[axis] != const(1):
            target[axis if axis < batch else axis + len(target) - len(value.lengths)] = size
    return situation.apply([value], shape=tuple(target))


def sliced(situation: Situation) -> Edge:
    """Lengths become hulls. A hull that may reach past the end of its axis is gathered, with clamped indices."""
    (value,) = situation.values
    starts, lengths, steps = (list(situation.attrs[key]) for key in ("starts", "lengths", "steps"))
    for axis, size in enumerate(situation.physical(value)):
        start, length, step = as_expr(starts[axis]), as_expr(lengths[axis]), steps[axis]
        if not length.dims():
            continue
        whole = start == const(0) and step == 1 and length == value.lengths[axis]
        lengths[axis] = extent = size if whole else situation.hull(length)
        ends = start, start + (extent - 1) * step
        least, most = ends if step > 0 else ends[::-1]
        if situation.implies(least.ge(0)) and situation.implies(most.lt(size)):
            continue
        value = replace(value, edge=_window(situation, value, axis, start, extent, step))
        starts[axis], steps[axis] = const(0), 1
    return situation.apply([value], starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))


def _window(situation: Situation, value: Value, axis: int, start: Expr, extent: Expr, step: int) -> Edge:
    tensors = situation.tensors
    offsets = tensors.times(tensors.iota((extent,), 0), step)
    data = tensors.never_empty(value.edge, axis, situation.hulls.sizes)
    return tensors.gather(data, tensors.add(offsets, tensors.number(start)), axis)


def padded(situation: Situation) -> Edge:
    (value,) = situation.values
    fill = situation.attrs.get("value", 0)
    low, high = ([as_expr(size) for size in situation.attrs[key]] for key in ("low", "high"))
    for axis in range(len(low)):
        if not (value.is_dynamic(axis) or low[axis].dims() or high[axis].dims()):
            continue
        if low[axis] == const(0) and high[axis] == const(0):
            continue
        value = situation.masked(value, axis, fill)
        if low[axis].dims():
            value = _padded_below(situation, value, axis, low[axis], fill)
            low[axis] = high[axis] = const(0)
        else:
            high[axis] = situation.hull(high[axis])
    return situation.apply([value], low=tuple(low), high=tuple(high))


def _padded_below(situation: Situation, value: Value, axis: int, low: Expr, fill: bool | int | float) -> Value:
    """One position of `fill` on either side, and all of the padding reads one of them: indices are clamped."""
    tensors = situation.tensors
    data = tensors.surrounded(value.edge, axis, const(1), const(1), fill)
    positions = tensors.iota((situation.hull(situation.lengths[axis]),), 0)
    return replace(value, edge=tensors.gather(data, tensors.add(positions, tensors.number(1 - low)), axis))


def concatenated(situation: Situation) -> Edge:
    """Where an operand other than the last varies, what follows it is gathered from behind its padding."""
    axis, values = situation.attrs["axis"], situation.values
    for other, length in enumerate(situation.lengths):
        if other != axis:
            values = situation.agreeing(values, [(number, other) for number in range(len(values))], length)
    joined = situation.apply(values)
    if not any(value.is_dynamic(axis) for value in values[:-1]):
        return joined
    tensors = situation.tensors
    positions = tensors.iota((situation.hull(situation.lengths[axis]),), 0)
    indices, end = positions, const(0)
    for value in values[:-1]:
        end = end + value.lengths[axis]
        behind = tensors.apply("cast", tensors.apply("ge", positions, tensors.number(end)), dtype=INDEX_DTYPE)
        padding = tensors.number(situation.physical(value)[axis] - value.lengths[axis])
        indices = tensors.add(indices, tensors.apply("mul", behind, padding))
    return tensors.gather(joined, indices, axis)


def flipped(situation: Situation) -> Edge:
    (value,) = situation.values
    tensors = situation.tensors
    edge = value.edge
    for axis in situation.attrs["axes"]:
        if not value.is_dynamic(axis):
            continue
        positions = tensors.iota((situation.physical(value)[axis],), 0)
        indices = tensors.apply("sub", tensors.number(value.lengths[axis] - 1), positions)
        edge = tensors.gather(edge, indices, axis)
    fixed = tuple(axis for axis in situation.attrs["axes"] if not value.is_dynamic(axis))
    return situation.apply([replace(value, edge=edge)], axes=fixed) if fixed else edge


def gathered(situation: Situation) -> Edge:
    """Indices stay inside the valid part of data; those in padding of the index arrays become 0."""
    attrs, (data, *indices) = situation.attrs, situation.values
    values: tuple[Value, ...] = (data, *indices)
    batch = attrs.get("batch", 0)
    for axis in range(len(indices[0].lengths)):
        places = [(number, axis) for number in range(0 if axis < batch else 1, len(values))]
        values = situation.agreeing(values, places, indices[0].lengths[axis])
    data, *indices = values
    for number, axis in enumerate(range(attrs["axis"], attrs["axis"] + attrs.get("count", 1))):
        if data.is_dynamic(axis):
            data = _repeating_last(situation, data, axis)
            indices[number] = _within(situation, indices[number], data, axis)
        for padded_axis in indices[number].dynamic_axes:
            indices[number] = situation.masked(indices[number], padded_axis, 0)
    return situation.apply((data, *indices))


def _repeating_last(situation: Situation, data: Value, axis: int) -> Value:
    """The padding of data repeats its last valid position, so that clamping at the end of either is the same."""
    tensors = situation.tensors
    positions = tensors.iota((situation.physical(data)[axis],), 0)
    last = tensors.number(data.lengths[axis] - 1)
    edge = tensors.gather(data.edge, tensors.apply("minimum", positions, last), axis)
    return replace(data, edge=edge)


def _within(situation: Situation, index: Value, data: Value, axis: int) -> Value:
    """An index past the valid part becomes one past the physical axis, so that a check finds it."""
    tensors, dtype = situation.tensors, situation.dtype(index)
    length = _number(situation, data.lengths[axis], dtype)
    size = _number(situation, situation.physical(data)[axis], dtype)
    outside = tensors.apply("ge", index.edge, length)
    return replace(index, edge=tensors.apply("where", outside, size, index.edge))


def _number(situation: Situation, expr: Expr, dtype: str) -> Edge:
    number = situation.tensors.number(expr)
    return number if dtype == INDEX_DTYPE else situation.tensors.apply("cast", number, dtype=dtype)


def scattered(situation: Situation) -> Edge:
    """Padding of indices and updates adds 0 at position 0. The base's axis is never longer than what it keeps."""
    attrs, values = situation.attrs, situation.values
    base, indices, updates = values
    axis, batch = attrs["axis"], attrs.get("batch", 0)
    for place in range(batch):
        values = situation.agreeing(values, [(0, place), (1, place), (2, place)], indices.lengths[place])
    added = len(indices.lengths) - batch
    for place in range(batch, len(indices.lengths)):
        values = situation.agreeing(values, [(1, place), (2, axis + place - batch)], indices.lengths[place])
    others = [(place, place if place < axis else place + added - 1) for place in range(batch, len(base.lengths))]
    for left, right in others:
        if left != axis:
            values = situation.agreeing(values, [(0, left), (2, right)], base.lengths[left])
    base, indices, updates = values
    if base.is_dynamic(axis):
        indices = _within(situation, indices, base, axis)
    for place in indices.dynamic_axes:
        indices = situation.masked(indices, place, 0)
    for place in range(axis, axis + added):
        updates = situation.masked(updates, place, 0)
    return situation.apply((base, indices, updates))


RULES: Mapping[str, Rule] = {
    "argsort": sorting,
    "attention": attention,
    "broadcast": broadcast,
    "concat": concatenated,
    "conv": convolved,
    "dot": dot,
    "flip": flipped,
    "gather": gathered,
    "gather_pairs": gathered,
    "pad": padded,
    "reshape": reshaped,
    "scatter_add": scattered,
    "slice": sliced,
    "sort": sorting,
}
