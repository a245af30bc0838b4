"""Linear algebra: contractions (`dot`, and what it is in NumPy), and operators on the matrices in the last two axes.

solve     a (..., n, n), b (..., n, k): the x (..., n, k) with a @ x = b; not finite where a is singular
cholesky  a (..., n, n), of which it reads the lower triangle: the lower L with L @ L^T = a; NaN where a is not
          positive definite
det       a (..., n, n): the determinant (...)

The axes before them are batches. Compiled code cannot raise, so what has no answer is not finite, as in JAX;
`tp.Options(check_finite=True)` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import (
    FLOAT,
    HALF,
    NUMBER,
    Attrs,
    Factor,
    Factors,
    Fold,
    Role,
    Shape,
    ShapeRule,
    after_a_new_one,
    check_axes,
    in_float32,
    only,
    show,
    typed,
    without,
)
from tempo.sdg.operators.making import Gradient, Reverse
from tempo.sdg.operators.operator import Builder, Function, Lifted, Operator
from tempo.symbolic import Expr

# dot {lhs_contract, rhs_contract, lhs_batch, rhs_batch}: axes of the result are batch, free ones of lhs, those of rhs.
# One may be int8 where the other is a float: numbers as they are stored, which no copy as floats need be made of.


def _contracted(attrs: Attrs, lhs: Shape, rhs: Shape) -> Shape:
    check_axes("dot", (*attrs["lhs_batch"], *attrs["lhs_contract"]), len(lhs))
    check_axes("dot", (*attrs["rhs_batch"], *attrs["rhs_contract"]), len(rhs))
    _check_pairs(attrs["lhs_contract"], attrs["rhs_contract"], lhs, rhs)
    _check_pairs(attrs["lhs_batch"], attrs["rhs_batch"], lhs, rhs)
    batch = tuple(lhs[axis] for axis in attrs["lhs_batch"])
    lhs_free = without(lhs, (*attrs["lhs_batch"], *attrs["lhs_contract"]))
    rhs_free = without(rhs, (*attrs["rhs_batch"], *attrs["rhs_contract"]))
    return batch + lhs_free + rhs_free


def _check_pairs(
    lhs_axes: Sequence[int], rhs_axes: Sequence[int], lhs: tuple[Expr, ...], rhs: tuple[Expr, ...]
) -> None:
    sizes = ([lhs[axis] for axis in lhs_axes], [rhs[axis] for axis in rhs_axes])
    if sizes[0] != sizes[1]:
        raise ShapeError(
            f"dot: axes {show(lhs_axes)} of {show(lhs)} and axes {show(rhs_axes)} of {show(rhs)} differ in size"
        )


def _dot_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    batch, contract = (list(zip(attrs[f"lhs_{kind}"], attrs[f"rhs_{kind}"])) for kind in ("batch", "contract"))
    lhs, rhs = (
        without(range(len(shape)), (*attrs[f"{side}_batch"], *attrs[f"{side}_contract"]))
        for side, shape in zip(("lhs", "rhs"), operands)
    )
    kept = [*batch, *((axis, None) for axis in lhs), *((None, axis) for axis in rhs)]
    folded = (Factor(Role.REDUCING, pair) for pair in contract)
    return (*folded, *(Factor(Role.PARALLEL, pair, axis) for axis, pair in enumerate(kept)))


def _lift_dot(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    moved = [side for side, is_lifted in zip(("lhs", "rhs"), lifted) if is_lifted]
    axes = [f"{side}_{kind}" for side in moved for kind in ("contract", "batch")]
    changed = {**attrs, **{key: after_a_new_one(attrs[key]) for key in axes}}
    batch = len(attrs["lhs_batch"])
    if all(lifted):
        changed["lhs_batch"] = (0, *changed["lhs_batch"])
        changed["rhs_batch"] = (0, *changed["rhs_batch"])
        return Lifted(changed)
    free = [rank - batch - len(attrs[f"{side}_contract"]) for side, rank in zip(("lhs", "rhs"), ranks)]
    if lifted[0] or free[1]:
        return Lifted(changed, axis=batch if lifted[0] else batch + free[0])
    # A matrix by vectors is the vectors by its transpose: the result lies as it is wanted.
    exchanged = {f"{to}_{kind}": changed[f"{of}_{kind}"] for to, of in _EXCHANGED for kind in ("contract", "batch")}
    return Lifted(exchanged, axis=batch, order=(1, 0))


_EXCHANGED = (("lhs", "rhs"), ("rhs", "lhs"))


def _dot_cost(call: Call) -> float:
    contracted: int = prod(call.operands[0].shape[axis] for axis in call.attrs["lhs_contract"])
    return float(2 * call.result.elements * contracted)


def _numpy_dot(call: Call) -> Function:
    axes = [tuple(call.attrs[name]) for name in ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")]
    lhs, rhs = (operand.shape for operand in call.operands)
    return in_float32(call.result.dtype, contraction(lhs, rhs, *axes))


def _dot_gradient(r: Reverse) -> tuple[Edge, Edge]:
    """Of each operand: the cotangent contracted with the other one along the other one's free axes."""
    return _dot_operand(r, 0), _dot_operand(r, 1)


def _dot_operand(r: Reverse, mine: int) -> Edge:
    """That of lhs is g . rhs, that of rhs is lhs . g; the order of the operands keeps axes near where they belong."""
    sides = ("lhs", "rhs")
    batch, contract = (tuple(r.attrs[f"{sides[mine]}_{kind}"]) for kind in ("batch", "contract"))
    other_batch, other_contract = (tuple(r.attrs[f"{sides[1 - mine]}_{kind}"]) for kind in ("batch", "contract"))
    other = r.operands[1 - mine]
    free = without(range(r.rank(r.operands[mine])), (*batch, *contract))
    other_free = tuple(without(range(r.rank(other)), (*other_batch, *other_contract)))
    start = len(batch) + (len(free) if mine == 0 else 0)  # of the other's free axes in g
    in_g, batch_of_g = tuple(range(start, start + len(other_free))), tuple(range(len(batch)))
    paired = [contract[other_contract.index(axis)] for axis in sorted(other_contract)]
    if mine == 0:
        found, order = r.dot(r.g, other, (in_g, other_free), (batch_of_g, other_batch)), (*batch, *free, *paired)
    else:
        found, order = r.dot(other, r.g, (other_free, in_g), (other_batch, batch_of_g)), (*batch, *paired, *free)
    return r.transpose(found, [order.index(axis) for axis in range(len(order))])


_of_one_dtype = typed("dot", 2, _contracted, NUMBER)


def _infer_dot(attrs: Attrs, operands: tuple[TensorType, ...]) -> TensorType:
    """Of one dtype; int8 beside a float counts as that float, which holds each of its numbers."""
    floats = [operand.dtype for operand in operands if dtypes.is_float(operand.dtype)]
    if len(floats) == 1:
        operands = tuple(replace(each, dtype=floats[0]) if each.dtype == "int8" else each for each in operands)
    return _of_one_dtype(attrs, operands)


DOT = Operator(
    name="dot",
    kind="contraction",
    infer=_infer_dot,
    axes=_dot_axes,
    cost=_dot_cost,
    numpy=_numpy_dot,
    fold=Fold(lambda dtype: 0, "add"),
    inserts=_lift_dot,
    gradient=_dot_gradient,
)


# In NumPy: one call of `np.dot` or `np.matmul`, with no step that changes nothing.

Axes = tuple[int, ...]
Ints = tuple[int, ...]


_TRANSPOSED = attrgetter("T")


def contraction(
    lhs: Ints, rhs: Ints, lhs_contract: Axes, rhs_contract: Axes, lhs_batch: Axes, rhs_batch: Axes
) -> Function:
    """A function of two arrays of the shapes `lhs` and `rhs`; the axes of the result are batch, free lhs, free rhs."""
    lhs_free = without(range(len(lhs)), (*lhs_batch, *lhs_contract))
    rhs_free = without(range(len(rhs)), (*rhs_batch, *rhs_contract))
    batch, left_free, right_free = (
        tuple(of[axis] for axis in axes) for of, axes in ((lhs, lhs_batch), (lhs, lhs_free), (rhs, rhs_free))
    )
    if not lhs_contract:  # the product of every free pair
        left = _arranged(lhs, (*lhs_batch, *lhs_free), (*batch, *left_free, *(1,) * len(rhs_free)))
        right = _arranged(rhs, (*rhs_batch, *rhs_free), (*batch, *(1,) * len(lhs_free), *right_free))
        return _combine(np.multiply, left, right)
    if not lhs_batch and len(lhs_contract) == 1 and len(lhs_free) <= 1 and len(rhs_free) <= 1:
        # Vectors and matrices; `np.dot` has the least overhead.
        turns = lhs_contract[0] != len(lhs) - 1, rhs_contract[0] != 0
        return _combine(np.dot, *(_TRANSPOSED if turn else None for turn in turns))
    rows, columns, between = prod(left_free), prod(right_free), prod(lhs[axis] for axis in lhs_contract)
    left = _arranged(lhs, (*lhs_batch, *lhs_free, *lhs_contract), (*batch, rows, between), for_blas=True)
    right = _arranged(rhs, (*rhs_batch, *rhs_contract, *rhs_free), (*batch, between, columns), for_blas=True)
    multiply, shape = _combine(np.matmul, left, right), (*batch, *left_free, *right_free)
    return multiply if (*batch, rows, columns) == shape else lambda x, y: multiply(x, y).reshape(shape)


def _arranged(shape: Ints, order: Axes, target: Ints, for_blas: bool = False) -> Function | None:
    """Axes in an order, seen in a shape of as many elements; None where an array already is as wanted."""
    moved, reshaped = order != tuple(range(len(shape))), target != tuple(shape[axis] for axis in order)
    # BLAS needs one of the last two axes to be contiguous: else matmul falls back to a slow loop.
    copied = moved and for_blas and not reshaped and len(shape) - 1 not in order[-2:]
    if not moved:
        return (lambda x: x.reshape(target)) if reshaped else None
    if reshaped:
        return lambda x: x.transpose(order).reshape(target)
    if copied:
        return lambda x: np.ascontiguousarray(x.transpose(order))
    return lambda x: x.transpose(order)


def _combine(function: Any, left: Function | None, right: Function | None) -> Function:
    """`function(left(x), right(y))`, where None is the identity."""
    if left is None and right is None:
        return function  # type: ignore[no-any-return]
    if right is None:
        return lambda x, y: function(left(x), y)  # type: ignore[misc]
    if left is None:
        return lambda x, y: function(x, right(y))
    return lambda x, y: function(left(x), right(y))


# solve, cholesky, det


def _square(op: str, shape: Shape) -> Shape:
    """The shape, checked."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"{op} of a tensor of shape {show(shape)}: its last two axes must be of one size")
    return shape


def _solved(attrs: Attrs, left: Shape, right: Shape) -> Shape:
    if right[:-1] != _square("solve", left)[:-1]:
        raise ShapeError(f"solve of shapes {show(left)} and {show(right)}")
    return right


def _matrices(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    """Batches are kept, and so are the columns of a right side; all else of a matrix hangs together."""
    count, rows = len(operands), len(operands[0]) - 2
    batches = [Factor(Role.PARALLEL, (axis,) * count, axis) for axis in range(rows)]
    inside = [Factor(Role.OPAQUE, only(0, axis, count)) for axis in (rows, rows + 1)]
    if count == 2:
        inside += [Factor(Role.OPAQUE, (None, rows)), Factor(Role.OPAQUE, (None, None), rows)]
        return (*batches, *inside, Factor(Role.PARALLEL, (None, rows + 1), rows + 1))
    made = [Factor(Role.OPAQUE, (None,) * count, axis) for axis in range(rows, len(result))]
    return (*batches, *inside, *made)


def _cost(factor: float) -> Callable[[Call], float]:
    """`factor * n**3` for each matrix, and 2 n**2 for each column of a right side."""

    def cost(call: Call) -> float:
        shape = call.operands[0].shape
        matrices, size = float(np.prod(shape[:-2])), shape[-1]
        columns = call.result.shape[-1] if len(call.operands) == 2 else 0
        return matrices * (factor * size**3 + 2 * size**2 * columns)

    return cost


def _numpy(function: Function) -> Builder:
    """Halves in float32. NumPy raises where one matrix of a batch has no answer; then each is asked for by itself."""

    def builder(call: Call) -> Function:
        result = call.result.numpy_dtype
        inner = np.dtype(np.float32) if call.result.dtype in HALF else result

        def run(*given: Any) -> Any:
            arrays = [each.astype(inner, copy=False) for each in given]
            try:
                return function(*arrays).astype(result, copy=False)
            except np.linalg.LinAlgError:
                made = np.full(call.result.shape, np.nan, result)
                for index in np.ndindex(call.operands[0].shape[:-2]):
                    made[index] = _or_nan(function, [each[index] for each in arrays])
                return made

        return run

    return builder


def _or_nan(function: Function, matrices: Sequence[Any]) -> Any:
    try:
        return function(*matrices)
    except np.linalg.LinAlgError:
        return np.nan


# Gradients: Giles 2008, "Collected matrix derivative results for forward and reverse mode", and for `cholesky`
# Murray 2016, "Differentiation of the Cholesky decomposition", section 3.2.


def _transposed(r: Reverse, edge: Edge) -> Edge:
    rank = r.rank(edge)
    return r.transpose(edge, (*range(rank - 2), rank - 1, rank - 2))


def _product(r: Reverse, a: Edge, b: Edge) -> Edge:
    rank = r.rank(a)
    return r.dot(a, b, ((rank - 1,), (rank - 2,)), (range(rank - 2), range(rank - 2)))


def _position(r: Reverse, edge: Edge, axis: int) -> Edge:
    shape = r.shape(edge)
    return r.apply("iota", shape=shape, axis=len(shape) + axis, dtype="int32")


def _solve_gradient(r: Reverse) -> tuple[Edge, Edge]:
    right = r.apply("solve", _transposed(r, r.x), r.g)
    return r.neg(_product(r, right, _transposed(r, r.result))), right


def _det_gradient(r: Reverse) -> tuple[Edge]:
    """g * det(a) * a^-T."""
    shape = r.shape(r.x)
    axes = (len(shape) - 2, len(shape) - 1)
    on_diagonal = r.compare("eq", _position(r, r.x, -1), _position(r, r.x, -2))
    scaled = r.spread(r.mul(r.g, r.result), axes, shape)
    return (r.apply("solve", _transposed(r, r.x), r.where(on_diagonal, scaled, 0)),)


def _cholesky_gradient(r: Reverse) -> tuple[Edge]:
    """With P = tril(L^T g), its diagonal halved, and S = L^-T P L^-1: the lower triangle of S + S^T."""
    row, column = _position(r, r.x, -2), _position(r, r.x, -1)
    below, diagonal = r.compare("gt", row, column), r.compare("eq", row, column)

    def lower(edge: Edge, on_diagonal: Edge) -> Edge:
        return r.where(below, edge, r.where(diagonal, on_diagonal, 0))

    up = _transposed(r, r.result)
    product = _product(r, up, r.g)
    left = r.apply("solve", up, lower(product, r.mul(product, 0.5)))
    inner = _transposed(r, r.apply("solve", up, _transposed(r, left)))
    return (lower(r.add(inner, _transposed(r, inner)), inner),)


def _operator(name: str, count: int, shape: ShapeRule, numpy: Function, factor: float, gradient: Gradient) -> Operator:
    infer = typed(name, count, shape, FLOAT)
    return Operator(name, "contraction", infer, _matrices, _cost(factor), _numpy(numpy), gradient=gradient)


LINALG = (
    _operator("solve", 2, _solved, np.linalg.solve, 2 / 3, _solve_gradient),
    _operator(
        "cholesky", 1, lambda attrs, shape: _square("cholesky", shape), np.linalg.cholesky, 1 / 3, _cholesky_gradient
    ),
    _operator("det", 1, lambda attrs, shape: _square("det", shape)[:-2], np.linalg.det, 2 / 3, _det_gradient),
)
