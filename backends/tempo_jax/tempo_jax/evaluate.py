"""Index expressions and conditions on numbers and traced values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import jax.numpy as jnp

from tempo.symbolic import And, Condition, Eq, Expr, FloorDiv, Ge, Max, Min, Mod, Or, Symbol

Values = Mapping[Symbol, Any]
"""Numbers, or traced scalars: int32, or int64 where indices need that (`SegmentRequest.index_bits`)."""


def expression(expr: Expr, values: Values) -> Any:
    """A number where everything in it is one, else a traced scalar."""
    total: Any = expr.const
    for atom, factor in expr.terms:
        value = _atom(atom, values)
        total = total + (value if factor == 1 else factor * value)
    return total


def _atom(atom: Any, values: Values) -> Any:
    if isinstance(atom, Symbol):
        return values[atom]
    if isinstance(atom, FloorDiv):
        return expression(atom.expr, values) // atom.divisor
    if isinstance(atom, Mod):
        return expression(atom.expr, values) % atom.divisor
    assert isinstance(atom, Min | Max)
    arguments = [expression(argument, values) for argument in atom.args]
    if all(isinstance(argument, int) for argument in arguments):
        return min(arguments) if isinstance(atom, Min) else max(arguments)
    return reduce(jnp.minimum if isinstance(atom, Min) else jnp.maximum, arguments)


def condition(value: Condition, values: Values) -> Any:
    """A bool where it is decided, else a traced one."""
    if isinstance(value, Ge):
        return expression(value.expr, values) >= 0
    if isinstance(value, Eq):
        return expression(value.expr, values) == 0
    if isinstance(value, And):
        return _combined(value.args, values, jnp.logical_and, absorbing=False)
    if isinstance(value, Or):
        return _combined(value.args, values, jnp.logical_or, absorbing=True)
    return bool(value)


def _combined(args: Any, values: Values, operator: Callable[[Any, Any], Any], absorbing: bool) -> Any:
    found = [condition(arg, values) for arg in args]
    if any(each is absorbing for each in found):
        return absorbing
    open_ones = [each for each in found if not isinstance(each, bool)]
    return reduce(operator, open_ones) if open_ones else not absorbing


def scalar(value: Expr | Condition, values: Values) -> Any:
    return expression(value, values) if isinstance(value, Expr) else condition(value, values)


def fits(value: Any, bits: int) -> bool:
    """Whether an integer, traced or not, is one of so many bits."""
    if isinstance(value, int):
        return -(1 << (bits - 1)) <= value < 1 << (bits - 1)
    return bool(value.dtype.itemsize * 8 <= bits)
