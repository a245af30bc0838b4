"""Linear algebra: each operator works on the matrices in the last two axes; the axes before them are batches.

solve     a (..., n, n), b (..., n, k): the x (..., n, k) with a @ x = b; not finite where a is singular
cholesky  a (..., n, n), of which it reads the lower triangle: the lower L with L @ L^T = a; NaN where a is not
          positive definite
det       a (..., n, n): the determinant (...)

Compiled code cannot raise, so what has no answer is not finite, as in JAX; `tp.Options(check_finite=True)` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge
from tempo.sdg.operators.axes import FLOAT, HALF, Attrs, Factor, Factors, Role, Shape, ShapeRule, only, show, typed
from tempo.sdg.operators.making import Gradient, Reverse
from tempo.sdg.operators.operator import Builder, Function, Operator


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
