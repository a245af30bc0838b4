"""`tp.max` and `tp.min`: of index expressions they are index expressions, of a tensor they reduce it."""

from __future__ import annotations

from typing import Any

from tempo.errors import IndexExpressionError, user_location
from tempo.language.functions.reductions import amax, amin
from tempo.language.indexing import expression as index_expression
from tempo.language.indexing.expression import IndexExpression, is_integer


def max(x: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`tp.max(t - 3, 0)` is the largest of index expressions; `tp.max(x, axis=0)` the maximum of a tensor.

    The type of the arguments decides. Elementwise, of two tensors: `tp.maximum(a, b)`.
    """
    if _are_expressions(x, others, "max"):
        return index_expression.maximum(x, *others)
    return amax(x, axis=axis, keepdims=keepdims) if not others else amax(x, _axis(others, "max"), keepdims)


def min(x: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """`tp.min(t, 3)` is the smallest of index expressions; `tp.min(x, axis=0)` the minimum of a tensor.

    The type of the arguments decides. Elementwise, of two tensors: `tp.minimum(a, b)`.
    """
    if _are_expressions(x, others, "min"):
        return index_expression.minimum(x, *others)
    return amin(x, axis=axis, keepdims=keepdims) if not others else amin(x, _axis(others, "min"), keepdims)


def _are_expressions(x: Any, others: tuple[Any, ...], name: str) -> bool:
    if isinstance(x, IndexExpression):
        return True
    return bool(others) and (is_integer(x) or any(isinstance(other, IndexExpression) for other in others))


def _axis(others: tuple[Any, ...], name: str) -> Any:
    (axis, *rest) = others
    if rest or not (axis is None or is_integer(axis) or isinstance(axis, (tuple, list))):
        raise IndexExpressionError(
            f"tp.{name} of tensors takes one tensor and an axis",
            location=user_location(),
            hint=f"of two tensors elementwise, write tp.{name}imum(a, b)",
        )
    return axis
