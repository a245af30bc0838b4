"""What a group of axes of a reshape is where extents vary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tempo.passes.ragged.values import Situation, Value
from tempo.sdg.graph import Edge
from tempo.sdg.operators.movement import Group, groups
from tempo.symbolic import Expr, NonAffineError, const, maximum


def product(sizes: Sequence[Expr]) -> Expr:
    """Raises NonAffineError for a product of two sizes that are no numbers."""
    return reduce(lambda a, b: a * b, sizes, const(1))


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
        rest = product([n for n in before if not n.dims()])
        total = _product(situation, sizes)
        if rest.is_const and _multiple(total, rest.as_int()):
            return sizes, situation.sized(value, leading, _divided(total, rest.as_int())), len(left)
    return _gathered(situation, value, left, lengths)


def _dynamic_leads(lengths: Sequence[Expr]) -> bool:
    """Whether the first axis that is longer than 1 is the only dynamic one, and the others are numbers."""
    rest = [n for n in lengths if n != const(1)][1:]
    return all(n.is_const for n in rest)


def _multiple(total: Expr, number: int) -> bool:
    return number != 0 and total.const % number == 0 and all(factor % number == 0 for _, factor in total.terms)


def _divided(total: Expr, number: int) -> Expr:
    return Expr(tuple((atom, factor // number) for atom, factor in total.terms), total.const // number)


def _product(situation: Situation, sizes: Sequence[Expr]) -> Expr:
    try:
        return product(sizes)
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
