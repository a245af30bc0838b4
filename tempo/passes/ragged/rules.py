"""What each kind of operator becomes when extents that vary are made static.

The axis rule of an operator says which operands agree in size and what is masked, and with what. What moves positions
has a rule of its own in `RULES`, which steps over the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from tempo import dtypes
from tempo.passes.ragged.reshaping import reshaped
from tempo.passes.ragged.values import Fills, Situation, Value
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS, Operator, Role
from tempo.sdg.operators.axes import Factor, Factors
from tempo.sdg.operators.gradients import Formula
from tempo.sdg.rewriter import INDEX_DTYPE
from tempo.symbolic import Expr, as_expr, const, maximum

Rule = Callable[[Situation], Edge]


def static(situation: Situation) -> Value:
    """The node with static extents, of the same value wherever the lengths of the node make it valid."""
    operator = OPERATORS[situation.node.op]
    lengths = [value.lengths for value in situation.values]
    factors = operator.axes(situation.attrs, lengths, situation.lengths)
    for factor in factors:
        situation = situation.given(_alike(situation, operator, factor))
    rule = RULES.get(situation.node.op)
    if rule is not None:
        edge = rule(situation)
    else:
        edge = situation.apply(situation.values, **operator.resized({}, _physical(situation, factors)))
    return Value(edge, situation.lengths, _fills(situation, operator, factors))


def _alike(situation: Situation, operator: Operator, factor: Factor) -> tuple[Value, ...]:
    """The operands, which have as many positions along a factor, of which those do nothing that are not valid."""
    values, places = situation.values, factor.places
    if not any(values[number].is_dynamic(axis) for number, axis in places):
        return values
    if factor.role in (Role.MOVING, Role.WINDOW, Role.OPAQUE):
        if situation.node.op not in RULES:
            number, axis = places[0]
            raise situation.unsupported(
                f"cannot work along axis {axis}, whose extent {values[number].lengths[axis]} varies"
            )
        return values
    found = list(situation.agreeing(values, places, values[places[0][0]].lengths[places[0][1]]))
    for number, axis in places if factor.role is not Role.PARALLEL else ():
        fill = operator.padding(situation.dtype(found[number]))
        if fill is not None and found[number].fills.get(axis) != fill:
            found[number] = situation.masked(found[number], axis, fill)
    return tuple(found)


def _fills(situation: Situation, operator: Operator, factors: Factors) -> Fills:
    """What is known to lie behind the result's valid lengths: weights of 0, and what is made of such by itself."""
    if situation.node.op == "softmax":
        axes = (axis for axis in situation.attrs["axes"] if situation.implies(situation.lengths[axis].ge(1)))
        return dict.fromkeys(axes, 0.0)
    if len(situation.values) != 1 or any(factor.role is Role.WINDOW for factor in factors):
        return {}
    known = situation.values[0].fills
    kept = {f.places[0][1]: f.result for f in factors if f.role is Role.PARALLEL and f.places and not f.ordered}
    found = {kept[axis]: _made_of(situation, operator, fill) for axis, fill in known.items() if axis in kept}
    return {axis: fill for axis, fill in found.items() if axis is not None and fill is not None}


def _made_of(situation: Situation, operator: Operator, fill: bool | int | float) -> bool | int | float | None:
    """What the operator makes of padding; None where it is not known, or NaN does not stay NaN."""
    if operator.kind != "elementwise":
        return fill if operator.kind == "movement" else None
    dtype, result = situation.dtype(situation.values[0]), situation.node.dtype
    if not dtypes.is_float(dtype) or not dtypes.is_float(result):
        return None
    types = [StaticType((2,), each) for each in (dtype, result)]
    given = np.array([fill, np.nan], types[0].numpy_dtype)
    with np.errstate(all="ignore"):
        made, undefined = operator.numpy(Call(operator.name, situation.attrs, tuple(types[:1]), types[1]))(given)
    return float(made) if np.isnan(undefined) else None


def normalised(situation: Situation) -> Edge:
    """Padding of minus infinity has a weight of 0. (NaN where all have it: where all are infinite, or one is NaN.)"""
    (value,) = situation.values
    if not any(map(value.is_dynamic, situation.attrs["axes"])):
        return situation.apply([value])
    for axis in situation.attrs["axes"]:
        value = situation.masked(value, axis, -math.inf)
    decompose = OPERATORS[situation.node.op].decompose
    assert decompose is not None, "a composite"
    return cast(Edge, decompose(Formula(situation.attrs, (value.edge,), situation.tensors)))


def _physical(situation: Situation, factors: Factors) -> tuple[Expr, ...]:
    """The shape of the result: where an axis is kept, as long as it is in the operands."""
    shape = list(map(situation.hull, situation.lengths))
    kept = ((factor.result, place) for factor in factors for place in factor.places[:1])
    for result, (number, axis) in kept:
        if result is not None:
            shape[result] = situation.physical(situation.values[number])[axis]
    return tuple(shape)


def convolved(situation: Situation) -> Edge:
    """Axes of the data get their padding, then the size at which the result has its hull."""
    attrs, values = situation.attrs, situation.values
    batch, padding, (data, kernel) = attrs.get("batch", 0), list(attrs["padding"]), values
    channel = len(data.lengths) - len(padding) - 1
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
    """Indices stay inside the valid part of data; where they are checked, those in their own padding become 0."""
    attrs, (data, *indices) = situation.attrs, situation.values
    for number, axis in enumerate(range(attrs["axis"], attrs["axis"] + attrs.get("count", 1))):
        if data.is_dynamic(axis):
            indices[number] = _inside(situation, indices[number], data, axis)
        if data.is_dynamic(axis) and attrs.get("checked"):
            data = _repeating_last(situation, data, axis)
        indices[number] = _checkable(situation, indices[number])
    return situation.apply((data, *indices))


def _checkable(situation: Situation, index: Value) -> Value:
    """A check would fail on what lies in padding; what is clamped reads something."""
    for axis in index.dynamic_axes if situation.attrs.get("checked") else ():
        index = situation.masked(index, axis, 0)
    return index


def _repeating_last(situation: Situation, data: Value, axis: int) -> Value:
    """The padding of data repeats its last valid position: what is checked is clamped where checks are off."""
    tensors = situation.tensors
    positions = tensors.iota((situation.physical(data)[axis],), 0)
    last = tensors.number(data.lengths[axis] - 1)
    edge = tensors.gather(data.edge, tensors.apply("minimum", positions, last), axis)
    return replace(data, edge=edge)


def _inside(situation: Situation, index: Value, data: Value, axis: int) -> Value:
    """An index past the valid part becomes the last one of it, or one past the physical axis, so that a check finds it.

    Compared in a dtype that holds all lengths.
    """
    tensors, dtype, edge = situation.tensors, situation.dtype(index), index.edge
    if dtypes.itemsize(dtype) < dtypes.itemsize(INDEX_DTYPE):
        dtype, edge = INDEX_DTYPE, tensors.apply("cast", edge, dtype=INDEX_DTYPE)
    if not situation.attrs.get("checked"):
        last = _number(situation, maximum(data.lengths[axis] - 1, 0), dtype)
        return replace(index, edge=tensors.apply("minimum", edge, last))
    outside = tensors.apply("ge", edge, _number(situation, data.lengths[axis], dtype))
    size = _number(situation, situation.physical(data)[axis], dtype)
    return replace(index, edge=tensors.apply("where", outside, size, edge))


def _number(situation: Situation, expr: Expr, dtype: str) -> Edge:
    number = situation.tensors.number(expr)
    return number if dtype == INDEX_DTYPE else situation.tensors.apply("cast", number, dtype=dtype)


def scattered(situation: Situation) -> Edge:
    """Padding of indices and updates adds 0 at position 0, which the base has, whatever its length."""
    (base, indices, updates), axis = situation.values, situation.attrs["axis"]
    if base.is_dynamic(axis):
        indices = _checkable(situation, _inside(situation, indices, base, axis))
    return situation.apply((base, indices, updates))


RULES: Mapping[str, Rule] = {
    "concat": concatenated,
    "conv": convolved,
    "flip": flipped,
    "gather": gathered,
    "gather_pairs": gathered,
    "pad": padded,
    "reshape": reshaped,
    "scatter_add": scattered,
    "slice": sliced,
    "softmax": normalised,
}
