"""Gradients: `tp.grad`, `tp.stop_gradient`, `tp.custom_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tempo import dtypes
from tempo.errors import DefinitionError, DTypeError, IndexExpressionError, ShapeError, user_location
from tempo.language.conversion import TensorLike, as_tensor, assigned, show
from tempo.language.indexing.expression import show as show_value
from tempo.language.tensor import RecurrentTensor, apply, open_program
from tempo.sdg.graph import Edge, TensorType


def grad(loss: RecurrentTensor, wrt: Any) -> Any:
    """The gradient of the sum of `loss` over its domain, with respect to `wrt`.

    `loss` has shape () and a floating dtype. `wrt` is a tensor, or a list, tuple or dict of such, nested as you like
    (a module stands for the dict of its `parameters()`); the result is built alike, of tensors with the domains, shapes
    and dtypes of those in `wrt`. A parameter is a leaf:
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
        raise IndexExpressionError(f"the loss is {show_value(loss)}, which is no tensor", location=user_location())
    open_program(loss)
    if loss.type.shape:
        raise ShapeError(
            f"the loss has shape {show(loss.type.shape)}, not ()",
            location=user_location(),
            hint="reduce it to one number per point: loss.sum() or loss.mean()",
        )
    _check_float(loss, "the loss")
    return _mapped(loss, wrt)


def _mapped(loss: RecurrentTensor, wrt: Any) -> Any:
    if callable(getattr(wrt, "parameters", None)):
        wrt = wrt.parameters()
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
            f"a gradient with respect to {show_value(wrt)}, which is no tensor",
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
    return RecurrentTensor(program, program.builder.identity(id))


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


Pullback = Callable[[RecurrentTensor], Any]


def custom_gradient(function: Callable[..., Any]) -> Callable[..., RecurrentTensor]:
    """A function of tensors with a gradient of its own.

    `function(*operands)` returns the value, a tensor, and a function from the cotangent of the value (the derivative of
    the loss with respect to it, at the same points, of its shape and dtype) to that of each operand: one, or a tuple
    with None for operands that it is constant in. Nothing is differentiated through the value itself, nor with respect
    to tensors that the function uses and is not given. Gradients of higher order go through what it returns.

    Raises `DefinitionError`, and what an assignment to the shape of an operand raises.

    >>> import tempo as tp
    >>> @tp.custom_gradient
    ... def clipped(x):
    ...     return x, lambda g: tp.clip(g, -1.0, 1.0)
    >>> with tp.Program("clipped"):
    ...     x = tp.input("x", shape=(3,), dims=())
    ...     slope = tp.grad((clipped(x) * 5).sum(), x)
    """

    @functools.wraps(function)
    def applied(*operands: TensorLike) -> RecurrentTensor:
        tensors = [as_tensor(operand) for operand in operands]
        returned = function(*tensors)
        if not (isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1])):
            raise DefinitionError(
                f"{function.__name__} has a gradient of its own and returned {show_value(returned)}",
                location=user_location(),
                hint="return the value and a function from its cotangent to those of the operands",
            )
        value = as_tensor(returned[0])
        _check_float(value, f"the value of {function.__name__}")
        return _with_gradient(function.__name__, value, tensors, returned[1])

    return applied


def _with_gradient(
    name: str, value: RecurrentTensor, operands: list[RecurrentTensor], pullback: Pullback
) -> RecurrentTensor:
    program = open_program(value, *operands)
    builder = program.builder
    edges = (value.edge, *(operand.edge for operand in operands))
    domain = builder.canonical({symbol for edge in edges for symbol in edge.dims()})
    type = TensorType(value.type.shape, value.dtype)
    cotangent = builder.placeholder("cotangent", domain, type, {"of": edges}, name=f"cotangent of {name}")
    found = pullback(RecurrentTensor(program, builder.identity(cotangent)))
    given = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(given) != len(operands):
        raise DefinitionError(
            f"the gradient of {name} gives {len(given)} cotangents for {len(operands)} operands",
            location=user_location(),
            hint="one for each, in a tuple; None for those that it is constant in",
        )
    gradients = tuple(
        None if g is None else _operand_cotangent(name, g, operand, value) for g, operand in zip(given, operands)
    )
    attrs = {"cotangent": cotangent, "gradients": gradients}
    return RecurrentTensor(program, builder.pure("custom_gradient", edges, attrs, user_location), value.weak)


def _operand_cotangent(name: str, given: TensorLike, operand: RecurrentTensor, value: RecurrentTensor) -> Edge | None:
    what = f"the cotangent that the gradient of {name} gives for {operand.label}"
    if not dtypes.is_float(operand.dtype):
        return None
    says = ("with {}, along which neither the operands nor the value vary", "sum it over {}")
    dims = (*operand.symbols, *value.symbols)
    return assigned(given, operand.type, what, dims, operand.program.builder.context, says).edge
