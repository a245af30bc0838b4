"""Linear algebra, as `tp.linalg`: matrices lie in the last two axes, and the axes before them broadcast.

What has no answer (a singular matrix, one that is not positive definite) gives what is not finite, since compiled code
cannot raise; `tp.Options(check_finite=True)` names the tensor and the point. Integers become floats; halves are
computed in float32.
"""

from __future__ import annotations

from tempo.errors import ShapeError, user_location
from tempo.language.conversion import TensorLike, broadcast_together, promoted, reshaped, show
from tempo.language.functions.creation import eye
from tempo.language.functions.movement import swapaxes
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import const

__all__ = ["cholesky", "det", "inv", "solve"]


def solve(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The x with `a @ x = b`: a (..., n, n), b (..., n, k) gives (..., n, k), and b (n,) gives (..., n).

    Not finite where `a` is singular. Raises `ShapeError`.
    """
    left, right = promoted(a, b, to_float=True)
    if not right.ndim:
        raise ShapeError("solve with a right side that has no axes", location=user_location())
    if right.ndim == 1:
        column = reshaped(right, (*right.type.shape, const(1)))
        return solve(left, column).squeeze(-1)
    left, right = broadcast_together([left, right], "solve", but_last=2)
    return apply("solve", left, right, weak=left.weak and right.weak)


def inv(a: TensorLike) -> RecurrentTensor:
    """The inverse (..., n, n); not finite where `a` is singular. To solve, `solve` is faster and closer."""
    (matrix,) = promoted(a, to_float=True)
    _check_square(matrix, "inv")
    return solve(matrix, eye(matrix.shape[-1], dtype=matrix.dtype))


def cholesky(a: TensorLike) -> RecurrentTensor:
    """The lower triangular L (..., n, n) with `L @ L^T = (a + a^T) / 2`. NaN where that is not positive definite."""
    (matrix,) = promoted(a, to_float=True)
    _check_square(matrix, "cholesky")
    return apply("cholesky", (matrix + swapaxes(matrix, -1, -2)) / 2, weak=matrix.weak)


def det(a: TensorLike) -> RecurrentTensor:
    """The determinant, (...) of (..., n, n). Its gradient is not finite where `a` is singular."""
    (matrix,) = promoted(a, to_float=True)
    return apply("det", matrix, weak=matrix.weak)


def _check_square(x: RecurrentTensor, what: str) -> None:
    shape = x.type.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"{what} of a tensor of shape {show(shape)}: its last two axes must be of one size",
            location=user_location(),
        )
