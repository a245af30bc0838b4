"""What each kind of operator becomes when extents that vary are made static.

The axis rule of an operator says which operands agree in size and what is masked, and with what. What moves positions
has a rule of its own in `RULES`, which steps over the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar, cast

import numpy as np

from tempo import dtypes
from tempo.passes.ragged.values import Fills, Situation, Value
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS, Operator, Role
from tempo.sdg.operators.axes import Factor, Factors
from tempo.sdg.operators.making import INDEX_DTYPE, Formula
from tempo.sdg.operators.movement import Group, groups
from tempo.symbolic import Expr, NonAffineError, as_expr, const, maximum, minimum

Rule = Callable[[Situation], Edge]
S = TypeVar("S", bound=Situation)


def static(situation: S, rules: Mapping[str, Callable[[S], Edge]]) -> Value:
    """The node with static extents, of the same value wherever the lengths of the node make it valid."""
    operator = OPERATORS[situation.node.op]
    lengths = [value.lengths for value in situation.values]
    factors = operator.axes(situation.attrs, lengths, situation.lengths)
    for factor in factors:
        values = _alike(situation, operator, factor, rules)
        situation = situation if values is situation.values else replace(situation, values=values)
    rule = rules.get(situation.node.op)
    if rule is not None:
        edge = rule(situation)
    else:
        edge = situation.apply(situation.values, **operator.resized({}, _physical(situation, factors)))
    return Value(edge, situation.lengths, _fills(situation, operator, factors))


def _alike(situation: Situation, operator: Operator, factor: Factor, rules: Collection[str]) -> tuple[Value, ...]:
    """The operands, which have as many positions along a factor, of which those do nothing that are not valid."""
    values, places = situation.values, factor.places
    if not any(values[number].is_dynamic(axis) for number, axis in places):
        return values
    if factor.role in (Role.MOVING, Role.WINDOW, Role.MAJOR, Role.OPAQUE):
        if operator.name not in rules:
            number, axis = places[0]
            raise situation.unsupported(
                f"cannot work along axis {axis}, whose extent {values[number].lengths[axis]} varies"
            )
        return values
    found = list(situation.agreeing(values, places, values[places[0][0]].lengths[places[0][1]]))
    for number, axis in places if factor.role is not Role.PARALLEL else ():
        fill = operator.padding(situation.tensors.dtype(found[number].edge))
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
    dtype, result = situation.tensors.dtype(situation.values[0].edge), situation.node.dtype
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
    shape = list(map(situation.extent, range(len(situation.lengths))))
    alike = (factor for factor in factors if factor.role in (Role.PARALLEL, Role.SCANNING))
    kept = ((factor.result, place) for factor in alike for place in factor.places[:1])
    for result, (number, axis) in kept:
        if result is not None:
            shape[result] = situation.physical(situation.values[number])[axis]
    return tuple(shape)


def convolved(situation: Situation) -> Edge:
    """Axes of the data get their padding, then the size at which the result has its hull."""
    attrs, values = situation.attrs, situation.values
    batch, padding, (data, kernel) = attrs.get("batch", 0), list(attrs["padding"]), values
    extents: dict[int, Expr] = {}
    channel = len(data.lengths) - len(padding) - 1
    for number, taps in enumerate(kernel.lengths[batch + 2 :]):
        axis = channel + 1 + number
        if taps.varies:
            raise situation.unsupported(f"with a kernel of {taps} taps comes apart in the pass 'decompose'")
        if not data.is_dynamic(axis):
            continue
        extents[axis] = situation.extent(axis)
        some = situation.hulls.sizes.simplify(maximum(extents[axis], 1))
        size = (some - 1) * attrs["strides"][number] + (taps - 1) * attrs["dilation"][number] + 1
        low, high = padding[number]
        if low or high:
            data = situation.masked(data, axis, 0)
        edge = situation.tensors.resized(data.edge, axis, size, situation.hulls.sizes, const(low))
        data, padding[number] = replace(data, edge=edge), (0, 0)
    made = situation.apply((data, kernel), padding=tuple(padding))
    for axis, extent in extents.items():
        made = situation.tensors.cut(made, axis, const(0), extent)
    return made


def sliced(situation: Situation) -> Edge:
    """Lengths become hulls. A hull that may reach past the end of its axis is gathered, with clamped indices."""
    (value,) = situation.values
    starts, lengths, steps = (list(situation.attrs[key]) for key in ("starts", "lengths", "steps"))
    for axis, size in enumerate(situation.physical(value)):
        start, length, step = as_expr(starts[axis]), as_expr(lengths[axis]), steps[axis]
        if not length.varies:
            continue
        whole = start == const(0) and step == 1 and length == value.lengths[axis]
        lengths[axis] = extent = size if whole else situation.hull(length)
        ends = start, start + (extent - 1) * step
        least, most = ends if step > 0 else ends[::-1]
        if situation.implies(least.ge(0)) and situation.implies(most.lt(size)):
            continue
        value = situation.window(value, axis, start, extent, step)
        starts[axis], steps[axis] = const(0), 1
    return situation.apply([value], starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))


def padded(situation: Situation) -> Edge:
    (value,) = situation.values
    fill = situation.attrs.get("value", 0)
    low, high = ([as_expr(size) for size in situation.attrs[key]] for key in ("low", "high"))
    for axis in range(len(low)):
        if not (value.is_dynamic(axis) or low[axis].varies or high[axis].varies):
            continue
        if low[axis] == const(0) and high[axis] == const(0):
            continue
        value = situation.masked(value, axis, fill)
        if low[axis].varies:
            value = _padded_below(situation, value, axis, low[axis], fill)
            low[axis] = high[axis] = const(0)
        else:
            high[axis] = situation.hull(high[axis])
    return situation.apply([value], low=tuple(low), high=tuple(high))


def _padded_below(situation: Situation, value: Value, axis: int, low: Expr, fill: bool | int | float) -> Value:
    """One position of `fill` on either side, and all of the padding reads one of them: indices are clamped."""
    data = situation.tensors.surrounded(value.edge, axis, const(1), const(1), fill)
    return situation.window(replace(value, edge=data), axis, 1 - low, situation.extent(axis))


def concatenated(situation: Situation) -> Edge:
    """Where an operand other than the last varies, what follows it is gathered from behind its padding."""
    axis, values = situation.attrs["axis"], situation.values
    joined = situation.apply(values)
    if not any(value.is_dynamic(axis) for value in values[:-1]):
        return joined
    tensors = situation.tensors
    positions = tensors.iota((situation.extent(axis),), 0)
    indices, end = positions, const(0)
    for value in values[:-1]:
        end = end + value.lengths[axis]
        behind = tensors.apply("cast", tensors.apply("ge", positions, tensors.number(end)), dtype=INDEX_DTYPE)
        padding = tensors.number(situation.physical(value)[axis] - value.lengths[axis])
        indices = tensors.add(indices, tensors.apply("mul", behind, padding))
    return tensors.gather(joined, indices, axis)


def flipped(situation: Situation) -> Edge:
    (value,), axes = situation.values, situation.attrs["axes"]
    for axis in filter(value.is_dynamic, axes):
        value = situation.window(value, axis, value.lengths[axis] - 1, situation.physical(value)[axis], -1)
    fixed = tuple(axis for axis in axes if not value.is_dynamic(axis))
    return situation.apply([value], axes=fixed) if fixed else value.edge


def shifted(situation: Situation) -> Edge:
    """What comes in from behind the valid part is 0, as what comes in from the end is."""
    (value,), axis = situation.values, situation.attrs["axis"]
    if value.is_dynamic(axis) and situation.attrs["distance"] < 0:
        value = situation.masked(value, axis, 0)
    return situation.apply([value])


def gathered(situation: Situation) -> Edge:
    """Indices stay inside the valid part of data; where they are checked, those in their own padding become 0."""
    attrs, (data, *indices) = situation.attrs, situation.values
    axes = range(attrs["axis"], attrs["axis"] + attrs.get("count", 1))
    values = (data, *(_checkable(situation, index) for index in indices))
    if not any(map(data.is_dynamic, axes)):
        return situation.apply(values)
    lengths = [data.lengths[axis] for axis in axes]
    return situation.apply(values, lengths=tuple(map(minimum, lengths, attrs.get("lengths", lengths))))


def _checkable(situation: Situation, index: Value) -> Value:
    """A check would fail on what lies in padding; what is clamped reads something."""
    for axis in index.dynamic_axes if situation.attrs.get("checked") else ():
        index = situation.masked(index, axis, 0)
    return index


def scattered(situation: Situation) -> Edge:
    """Padding of indices and updates adds 0 at position 0, which the base has, whatever its length."""
    (base, *indices, updates), first = situation.values, situation.attrs["axis"]
    for number, index in enumerate(indices):
        if base.is_dynamic(first + number):
            last = maximum(base.lengths[first + number] - 1, 0)
            indices[number] = replace(index, edge=situation.tensors.at_most(index.edge, last))
    return situation.apply((base, *indices, updates))


def reshaped(situation: Situation) -> Edge:
    """A reshape: prefixes of leading axes stay prefixes; other groups are gathered."""
    value = situation.values[0]
    target: list[Expr] = []
    position = 0
    for group in groups(value.lengths, situation.lengths):
        left = tuple(position + axis - group.left[0] for axis in group.left) if group.left else ()
        sizes, value, width = _group(situation, value, left, group)
        target += sizes
        position += width
    return situation.tensors.reshape(value.edge, target)


def _group(situation: Situation, value: Value, left: tuple[int, ...], group: Group) -> tuple[list[Expr], Value, int]:
    """The physical sizes of the group's axes in the result, the value so far, and how many of its axes these are."""
    lengths = [situation.lengths[axis] for axis in group.right]
    before = [value.lengths[axis] for axis in left]
    if not any(value.is_dynamic(axis) for axis in left):
        return lengths, value, len(left)
    one = const(1)
    if [n for n in before if n != one] == [n for n in lengths if n != one]:
        kept = iter([situation.physical(value)[axis] for axis, n in zip(left, before) if n != one])
        return [one if n == one else next(kept) for n in lengths], value, len(left)
    if _dynamic_leads(before) and _dynamic_leads(lengths):
        sizes = [situation.hull(n) for n in lengths]
        leading = next(axis for axis, n in zip(left, before) if n != one)
        rest = _product(situation, [n for n in before if not n.varies]).as_int()
        total = _product(situation, sizes)
        if rest and total % rest == const(0):
            return sizes, situation.sized(value, leading, total // rest), len(left)
    return _gathered(situation, value, left, lengths)


def _dynamic_leads(lengths: Sequence[Expr]) -> bool:
    """Whether the first axis that is longer than 1 is the only dynamic one, and the others are numbers."""
    rest = [n for n in lengths if n != const(1)][1:]
    return all(n.is_const for n in rest)


def _product(situation: Situation, sizes: Sequence[Expr]) -> Expr:
    try:
        return reduce(lambda a, b: a * b, sizes, const(1))
    except NonAffineError:
        raise situation.unsupported("merges two axes whose extents are no numbers") from None


def _gathered(
    situation: Situation, value: Value, left: tuple[int, ...], lengths: Sequence[Expr]
) -> tuple[list[Expr], Value, int]:
    """Position by position: row-major number within the valid lengths, then where that lies physically."""
    tensors = situation.tensors
    sizes = tuple(situation.hull(n) for n in lengths)
    number = tensors.number(0)
    for axis, length in enumerate(lengths):
        number = tensors.add(tensors.apply("mul", number, tensors.number(length)), tensors.iota(sizes, axis))
    flat = _physical_number(situation, value, left, number)
    physical = situation.physical(value)
    merged = _product(situation, [physical[axis] for axis in left])
    data = tensors.reshape(value.edge, (*physical[: left[0]], merged, *physical[left[-1] + 1 :]))
    edge = tensors.gather(data, flat, left[0])
    lengths_now = (*value.lengths[: left[0]], *lengths, *value.lengths[left[-1] + 1 :])
    return list(sizes), Value(edge, lengths_now), len(sizes)


def _physical_number(situation: Situation, value: Value, left: tuple[int, ...], number: Edge) -> Edge:
    """Where the element with a row-major number among the valid ones lies among all of the group's elements."""
    tensors = situation.tensors
    positions = []
    for axis in reversed(left[1:]):
        length = tensors.number(maximum(value.lengths[axis], const(1)))
        positions.append(tensors.apply("mod", number, length))
        number = tensors.apply("floordiv", number, length)
    flat = number
    for axis, position in zip(left[1:], reversed(positions)):
        size = tensors.number(situation.physical(value)[axis])
        flat = tensors.add(tensors.apply("mul", flat, size), position)
    return flat


def banded(situation: Situation) -> Edge:
    """The band is as it was where no point sees a key behind the length. Values there are zero, since whether all are
    finite is looked at.
    """
    attrs, values = situation.attrs, situation.values
    lengths = [value.lengths for value in values]
    for factor in OPERATORS[situation.node.op].axes(attrs, lengths, situation.lengths):
        if factor.role is Role.OPAQUE:
            number, axis = factor.places[0]
            values = situation.agreeing(values, factor.places, values[number].lengths[axis])
    query, key, value, *extras = values
    if query.is_dynamic(width := len(query.lengths) - 1):
        raise situation.unsupported(f"cannot work along axis {width}, whose extent {query.lengths[width]} varies")
    last, keys = query.lengths[-3] - 1, attrs["value_axes"][-2]
    if not (query.is_dynamic(width - 2) or value.is_dynamic(keys)):
        return situation.apply(values)
    if not situation.implies((last + as_expr(attrs["high"])).le(value.lengths[keys])):
        raise situation.unsupported("cannot work along axis -3, of points that see keys behind the length of these")
    value = situation.masked(value, keys, 0)
    low = as_expr(attrs["low"])
    if low.varies and not situation.implies(low.le(-last)):
        raise situation.unsupported(f"with a band from {low} on, which varies")
    points = situation.physical(query)[-3]
    return situation.apply((query, key, value, *extras), low=const(1) - points if low.varies else low)


RULES: Mapping[str, Rule] = {
    "banded_attention": banded,
    "concat": concatenated,
    "conv": convolved,
    "flip": flipped,
    "gather": gathered,
    "gather_pairs": gathered,
    "pad": padded,
    "reshape": reshaped,
    "scatter_add": scattered,
    "shift": shifted,
    "slice": sliced,
    "softmax": normalised,
}
