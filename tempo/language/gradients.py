"""Gradients: `tp.grad`, `tp.stop_gradient`, `tp.custom_gradient`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempo import dtypes
from tempo.errors import DTypeError, IndexExpressionError, ShapeError, user_location
from tempo.language.apply import apply, open_program, view
from tempo.language.conversion import TensorLike, as_tensor
from tempo.language.index_expression import show
from tempo.language.shapes import show as show_shape
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import TensorType


def grad(loss: RecurrentTensor, wrt: Any) -> Any:
    """The gradient of the sum of `loss` over its domain, with respect to `wrt`.

    `loss` has shape () and a floating dtype. `wrt` is a tensor, or a list, tuple or dict of such, nested as you like;
    the result is built alike, of tensors with the domains, shapes and dtypes of those in `wrt`. A parameter is a leaf:
    nothing is differentiated through its definition. A recurrent tensor is differentiated through its cases, so through
    time, and with respect to one the result counts every way in which its values reach the loss. What the loss does not
    reach has gradient zero. Host calls, random draws, integers and conditions are constants.

    Raises `ShapeError`, `DTypeError`, and `IndexExpressionError` where `wrt` holds what is no tensor that was declared
    or computed. What it cannot expand is raised where the program is compiled, with the line of this call.

    >>> import tempo as tp
    >>> with tp.Program("slope"):
    ...     t = tp.dim("t")
    ...     x = tp.input("x", shape=(3,), dims=(t,))
    ...     slope = tp.grad((x**2).sum(), x)
    >>> slope
    RecurrentTensor(gradient, domain=(t,), shape=(3,), dtype=float32)
    """
    if not isinstance(loss, RecurrentTensor):
        raise IndexExpressionError(f"the loss is {show(loss)}, which is no tensor", location=user_location())
    open_program(loss)
    if loss.type.shape:
        raise ShapeError(
            f"the loss has shape {show_shape(loss.type.shape)}, not ()",
            location=user_location(),
            hint="reduce it to one number per point: loss.sum() or loss.mean()",
        )
    _check_float(loss, "the loss")
    return _mapped(loss, wrt)


def _mapped(loss: RecurrentTensor, wrt: Any) -> Any:
    if isinstance(wrt, Mapping):
        return {key: _mapped(loss, item) for key, item in wrt.items()}
    if isinstance(wrt, tuple) and hasattr(wrt, "_fields"):
        return type(wrt)(*(_mapped(loss, item) for item in wrt))
    if isinstance(wrt, (list, tuple)):
        return type(wrt)(_mapped(loss, item) for item in wrt)
    return _gradient(loss, wrt)


def _gradient(loss: RecurrentTensor, wrt: Any) -> RecurrentTensor:
    if not isinstance(wrt, RecurrentTensor):
        raise IndexExpressionError(
            f"a gradient with respect to {show(wrt)}, which is no tensor",
            location=user_location(),
            hint="give a tensor, or a list, tuple or dict of tensors",
        )
    program = open_program(loss, wrt)
    _check_float(wrt, wrt.label)
    if not wrt.is_identity:
        raise IndexExpressionError(
            f"a gradient with respect to {wrt}, which only reads {wrt.label} elsewhere",
            location=user_location(),
            hint="differentiate with respect to the tensor itself, and index the gradient",
        )
    attrs = {"loss": loss.edge, "over": loss.symbols, "wrt": (wrt.edge.node, wrt.edge.result)}
    node = wrt.node
    type = node.results[wrt.edge.result]
    id = program.builder.placeholder("gradient", node.domain, TensorType(type.shape, type.dtype), attrs)
    return view(program, program.builder.identity(id))


def _check_float(x: RecurrentTensor, what: str) -> None:
    if not dtypes.is_float(x.dtype):
        raise DTypeError(
            f"{what} is of {x.dtype}, which has no gradient",
            location=user_location(),
            hint="cast it to a floating dtype: x.astype(tp.float32)",
        )


def stop_gradient(x: TensorLike) -> RecurrentTensor:
    """`x`, as a constant to every gradient.

    >>> import tempo as tp
    >>> with tp.Program("target"):
    ...     value = tp.input("value", shape=(), dims=())
    ...     error = value - tp.stop_gradient(value)
    """
    tensor = as_tensor(x)
    return apply("stop_gradient", tensor, weak=tensor.weak)
