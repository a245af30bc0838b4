"""Definitions by cases: recurrent tensors, the left side of `h[b, t + 1] = ...`, and `tp.cases`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempo.errors import DefinitionError, IndexExpressionError, user_location
from tempo.language.conversion import (
    TensorLike,
    as_dtype,
    assigned,
    broadcast_together,
    dim_names,
    operand,
    promoted,
    to_shape,
)
from tempo.language.indexing.expression import IndexCondition, IndexExpression, to_condition, to_expr
from tempo.language.indexing.temporal import from_end, positions
from tempo.language.program import Program, check_name, current_program
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Case, TensorType
from tempo.symbolic import TRUE, Condition, Expr, Symbol, var

CASE_LEFT_SIDES = (
    "the left side is per dim a number, a size expression, the dim itself, or the dim plus or minus a constant; "
    "or one condition over dims, or True"
)


LeftSide = tuple[Condition, Mapping[Symbol, Expr]]
"""Where a case holds, and what is put in the right side for the dims that it shifts or fixes."""


def recurrent(name: str, shape: Any, dims: Any, dtype: Any = "float32") -> RecurrentTensor:
    """A tensor to be defined by cases, which may read the tensor itself.

    `shape` is spatial; `dims` in canonical order are its domain. Cases are tried in the order written.

    >>> import tempo as tp
    >>> with tp.Program("sum"):
    ...     t = tp.dim("t")
    ...     x = tp.input("x", shape=(), dims=(t,))
    ...     total = tp.recurrent("total", shape=(), dims=(t,))
    ...     total[0] = x
    ...     total[t + 1] = total + x[t + 1]
    >>> total
    RecurrentTensor(total, domain=(t,), shape=(), dtype=float32)
    """
    return declare_merge(name, shape, dims, dtype, "recurrent")


def declare_merge(name: str, shape: Any, dims: Any, dtype: Any, role: str) -> RecurrentTensor:
    program = current_program()
    check_name(name, "a tensor")
    domain = program.check_dims(dims, f"the dims of {name!r}")
    type = TensorType(to_shape(program, shape), as_dtype(dtype))
    outside = {symbol for size in type.shape for symbol in size.dims()} - set(domain)
    if outside:
        raise DefinitionError(
            f"the shape of {name!r} varies with {dim_names(outside)}, which is none of its dims",
            location=user_location(),
        )
    id = program.builder.nominal("merge", domain, (type,), attrs={"name": name, "role": role}, name=name)
    return RecurrentTensor(program, program.builder.identity(id))


def define(x: RecurrentTensor, key: Any, value: TensorLike) -> None:
    """`x[key] = value`: one more case. Raises `DefinitionError` where the left or right side is none."""
    program = current_program()
    program.require(x.program, x.label)
    node = x.node
    if not node.is_merge or node.attr("role") == "cases" or not x.is_identity:
        raise DefinitionError(
            f"{x.label} is computed, so it has no cases to define",
            location=user_location(),
            hint="only tensors declared with tp.recurrent or tp.parameter are defined by cases; others are values",
        )
    condition, substitution = _left_side(x, key)
    right = _right_side(x, condition, substitution, value)
    program.builder.add_case(x.edge.node, Case(condition, right.edge, user_location()))
    if node.attr("role") == "parameter":
        program.declared_parameters[x.name].time_dims.update(substitution)


def _left_side(x: RecurrentTensor, key: Any) -> LeftSide:
    if isinstance(key, (bool, IndexCondition)):
        return _condition_side(x, key)
    condition: Condition = TRUE
    substitution: dict[Symbol, Expr] = {}
    for symbol, item in positions(x, key, "the left side"):
        where, replacement = _left_position(x, symbol, item)
        condition = condition & where
        if replacement is not None:
            substitution[symbol] = replacement
    return condition, substitution


def _condition_side(x: RecurrentTensor, key: bool | IndexCondition) -> LeftSide:
    condition = to_condition(key, x.program)
    outside = set(condition.dims()) - set(x.symbols)
    if outside:
        raise DefinitionError(
            f"the condition {condition} of a case of {x.label} uses {dim_names(outside)}, which is none of its dims",
            location=user_location(),
        )
    return condition, {}


def _left_position(x: RecurrentTensor, symbol: Symbol, item: Any) -> tuple[Condition, Expr | None]:
    """The condition that one position states, and what it puts for the dim in the right side."""
    if isinstance(item, (slice, IndexCondition, bool)) or item is None or isinstance(item, RecurrentTensor):
        raise DefinitionError(
            f"{_left_item(item)} at {symbol.name} on the left of a case of {x.label}",
            location=user_location(),
            hint=f"{CASE_LEFT_SIDES}: for a range write the condition, x[(2 <= t) & (t < 5)] = ...",
        )
    size = x.program.builder.size(symbol)
    expr = from_end(to_expr(item, x.program, f"the position of {symbol.name} on the left side"), item, size)
    dim = var(symbol)
    if not expr.dims():
        return dim.eq(expr), expr
    shift = expr - dim
    if not shift.is_const:
        raise DefinitionError(
            f"{expr} at {symbol.name} on the left of a case of {x.label}",
            location=user_location(),
            hint=CASE_LEFT_SIDES,
        )
    if shift.as_int() == 0:
        return TRUE, None
    source = dim - shift
    return source.ge(0) if shift.as_int() > 0 else source.lt(size), source


def _left_item(item: Any) -> str:
    if isinstance(item, RecurrentTensor):
        return item.label
    return "a slice" if isinstance(item, slice) else str(item)


def _right_side(
    x: RecurrentTensor, condition: Condition, substitution: Mapping[Symbol, Expr], value: TensorLike
) -> RecurrentTensor:
    """The value after substitution, cast and broadcast as NumPy assigns."""
    what = f"the value of a case of {x.label}"
    tensor = operand(value)
    if isinstance(tensor, RecurrentTensor):
        tensor = RecurrentTensor(x.program, tensor.edge.substitute(substitution), tensor.weak)
    context = x.program.builder.context.assume(condition)
    hint = "read it at one point or reduce it along {}, or add that dim to the declaration"
    return assigned(tensor, x.type, what, x.symbols, context, ("with {}, which is none of its dims", hint))


def cases(*branches: Any) -> RecurrentTensor:
    """The value of the first branch whose condition holds: `tp.cases((t == 0, a), (t < 4, b), c)`.

    Branches are pairs of a condition over dims and a value; the last may be a value alone, the default. Dtypes promote
    and shapes broadcast. Only the branch chosen at a point is demanded there, so it guards reads out of range; to
    select by data use `tp.where`.
    """
    if not branches:
        raise DefinitionError("tp.cases without a branch", location=user_location())
    program = current_program()
    pairs = [_branch(program, branch, last=branch is branches[-1]) for branch in branches]
    tensors = broadcast_together(promoted(*(value for _, value in pairs)), "cases")
    found = tuple(Case(condition, tensor.edge) for (condition, _), tensor in zip(pairs, tensors))
    edge = program.builder.cases(found, tensors[0].type, locate=user_location)
    return RecurrentTensor(program, edge, tensors[0].weak)


def _branch(program: Program, branch: Any, last: bool) -> tuple[Condition, Any]:
    is_pair = isinstance(branch, tuple) and len(branch) == 2
    if last and not (is_pair and isinstance(branch[0], (bool, IndexCondition))):
        return TRUE, branch
    if not is_pair:
        raise DefinitionError(
            "a branch of tp.cases is no pair",
            location=user_location(),
            hint="write tp.cases((condition, value), ..., default)",
        )
    condition, value = branch
    if not isinstance(condition, (bool, IndexCondition)):
        raise IndexExpressionError(
            f"a branch of tp.cases has {_kind(condition)} for its condition",
            location=user_location(),
            hint="conditions compare dims and sizes (t == 0); to select by data use tp.where(mask, a, b)",
        )
    return to_condition(condition, program), value


def _kind(value: Any) -> str:
    if isinstance(value, RecurrentTensor):
        return "a tensor"
    return f"the index expression {value}" if isinstance(value, IndexExpression) else f"a {type(value).__name__}"
