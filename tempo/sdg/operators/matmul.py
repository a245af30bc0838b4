"""The general contraction in NumPy: one call of `np.dot` or `np.matmul`, with no step that changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tempo.sdg.operators.operator import Function
from tempo.sdg.operators.shapes import without

Axes = tuple[int, ...]
Ints = tuple[int, ...]


def contraction(
    lhs: Ints, rhs: Ints, lhs_contract: Axes, rhs_contract: Axes, lhs_batch: Axes, rhs_batch: Axes
) -> Function:
    """A function of two arrays of the shapes `lhs` and `rhs`; the axes of the result are batch, free lhs, free rhs."""
    lhs_free = without(range(len(lhs)), (*lhs_batch, *lhs_contract))
    rhs_free = without(range(len(rhs)), (*rhs_batch, *rhs_contract))
    shape = tuple(lhs[a] for a in (*lhs_batch, *lhs_free)) + tuple(rhs[a] for a in rhs_free)
    if not lhs_contract:
        return _product(lhs, rhs, (lhs_batch, lhs_free), (rhs_batch, rhs_free))
    if not lhs_batch and len(lhs_contract) == 1 and len(lhs_free) <= 1 and len(rhs_free) <= 1:
        return _plain(lhs_contract[0] == len(lhs) - 1, rhs_contract[0] == 0)
    left = _arranged(lhs, (lhs_batch, lhs_free, lhs_contract))
    right = _arranged(rhs, (rhs_batch, rhs_contract, rhs_free))
    batch = tuple(lhs[axis] for axis in lhs_batch)
    multiplied = (*batch, prod(lhs[axis] for axis in lhs_free), prod(rhs[axis] for axis in rhs_free))
    return _matmul(left, right, None if multiplied == shape else shape)


def _plain(lhs_last: bool, rhs_first: bool) -> Function:
    """Vectors and matrices; `np.dot` has the least overhead."""
    dot = np.dot
    if lhs_last and rhs_first:
        return dot
    if lhs_last:
        return lambda x, y: dot(x, y.T)
    if rhs_first:
        return lambda x, y: dot(x.T, y)
    return lambda x, y: dot(x.T, y.T)


def _product(lhs: Ints, rhs: Ints, lhs_axes: tuple[Axes, Axes], rhs_axes: tuple[Axes, Axes]) -> Function:
    """Nothing is contracted: the product of every free pair."""
    left = _arranged(lhs, lhs_axes, merge=False, ones_after=len(rhs_axes[1]))
    right = _arranged(rhs, rhs_axes, merge=False, ones_between=len(lhs_axes[1]))
    return _combine(np.multiply, left, right)


def _arranged(
    shape: Ints, groups: Sequence[Axes], merge: bool = True, ones_between: int = 0, ones_after: int = 0
) -> Function | None:
    """Axes in the order of the groups; the groups after the first (batch) become one axis each with `merge`.

    None where an array already is as wanted.
    """
    order = tuple(axis for group in groups for axis in group)
    batch = tuple(shape[axis] for axis in groups[0])
    if merge:
        target = (*batch, *(prod(shape[axis] for axis in group) for group in groups[1:]))
    else:
        free = tuple(shape[axis] for axis in groups[1])
        target = (*batch, *(1,) * ones_between, *free, *(1,) * ones_after)
    ordered = tuple(shape[axis] for axis in order)
    moved, reshaped = order != tuple(range(len(shape))), target != ordered
    # BLAS needs one of the last two axes to be contiguous: else matmul falls back to a slow loop.
    copied = moved and merge and not reshaped and len(shape) - 1 not in order[-2:]
    if not moved:
        return (lambda x: x.reshape(target)) if reshaped else None
    if reshaped:
        return lambda x: x.transpose(order).reshape(target)
    if copied:
        return lambda x: np.ascontiguousarray(x.transpose(order))
    return lambda x: x.transpose(order)


def _matmul(left: Function | None, right: Function | None, shape: Ints | None) -> Function:
    multiply = _combine(np.matmul, left, right)
    if shape is None:
        return multiply
    return lambda x, y: multiply(x, y).reshape(shape)


def _combine(function: Any, left: Function | None, right: Function | None) -> Function:
    """`function(left(x), right(y))`, where None is the identity."""
    if left is None and right is None:
        return function  # type: ignore[no-any-return]
    if right is None:
        return lambda x, y: function(left(x), y)  # type: ignore[misc]
    if left is None:
        return lambda x, y: function(x, right(y))
    return lambda x, y: function(left(x), right(y))
