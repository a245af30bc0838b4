"""Definitions by cases: recurrent tensors, the left side of `h[b, t + 1] = ...`, `tp.cases`, and parameters.

Parameters are recurrent tensors that start from state, and whose value at the end is state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import (
    AtUserLine,
    DefinitionError,
    DTypeError,
    IndexExpressionError,
    Location,
    ProgramError,
    ShapeError,
    TempoError,
    UnsupportedError,
    user_location,
)
from tempo.language.conversion import (
    TensorLike,
    as_dtype,
    assigned,
    broadcast_together,
    dim_names,
    operand,
    promoted,
    show,
    to_shape,
)
from tempo.language.indexing.expression import IndexCondition, IndexExpression, last_point, lasts, to_condition
from tempo.language.indexing.temporal import point_of, positions
from tempo.language.program import Program, check_name, current_program
from tempo.language.rows import check_known, dims_of, without_lasts
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Case, Edge, Node, Output, Point, Port, TensorType
from tempo.symbolic import TRUE, Condition, Expr, Symbol, disjunction, over_counts, var

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
    check_known(program, condition)
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
    outside = dims_of(x.program, condition) - set(x.symbols)
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
    expr = point_of(x, symbol, item, f"the position of {symbol.name} on the left side")
    dim = var(symbol)
    if not expr.dims():
        return dim.eq(expr), None if lasts(expr) else expr
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
    return source.ge(0) if shift.as_int() > 0 else source.le(last_point(x.program, symbol)), source


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
    context = x.program.builder.context.assume(over_counts(condition))
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
    domain = {symbol for case in found for symbol in (*dims_of(program, case.condition), *case.edge.dims())}
    found = without_lasts(program, found, domain)
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
    found = to_condition(condition, program)
    check_known(program, found)
    return found, value


def _kind(value: Any) -> str:
    if isinstance(value, RecurrentTensor):
        return "a tensor"
    return f"the index expression {value}" if isinstance(value, IndexExpression) else f"a {type(value).__name__}"


# Parameters.

_INIT_DECLARATIONS = 1 << 24
_DECLARATIONS_PER_INIT = 1 << 8


@dataclass(frozen=True)
class ParameterSpec:
    """What the runtime must know of a parameter.

    `node` is its merge, `state` the input node that holds the value where no case does, over the dims that are not
    `time_dims`. `init` is what it holds at the start: an array (the other dims in front, or of one point), or an edge
    that the reference evaluator reads at every point of the other dims (it may vary along fewer).
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    node: int
    state: int
    time_dims: tuple[Symbol, ...]
    init: np.ndarray[Any, Any] | Edge


@dataclass
class Parameter:
    """A parameter while its program is written. Along `time_dims` a case shifts it or fixes it by a number."""

    name: str
    node: int
    state: int
    declaration: int
    init: Any
    time_dims: set[Symbol] = field(default_factory=set)
    made: tuple[frozenset[Symbol], np.ndarray[Any, Any] | Edge] | None = None

    def finished(self, program: Program) -> tuple[tuple[Node, Node], Output, ParameterSpec]:
        """The node of its state, its own closed with the read of that, its value at the end as an output, the spec."""
        node = program.builder.nodes[self.node]
        others = tuple(symbol for symbol in node.domain if symbol not in self.time_dims)
        time_dims = tuple(symbol for symbol in node.domain if symbol in self.time_dims)
        layout = (*others, *range(len(node.shape)))
        attrs = (("layout", layout), ("name", self.name), ("role", "state"))
        state = replace(
            node, id=self.state, op="input", domain=others, attrs=attrs, cases=(), declaration=self.declaration
        )
        init = _initial_value(program, self, node, others)
        spec = ParameterSpec(self.name, node.shape, node.dtype, node.id, state.id, time_dims, init)
        return (state, _closed(program, node, state)), _final_value(program, self.name, node, time_dims), spec


def parameter(name: str, shape: Any, init: Any, dims: Any = (), dtype: Any = "float32") -> RecurrentTensor:
    """A recurrent tensor with `init` as the value where no case holds; its value at the end is in `.state` of a run.

    `init` is an array (of one point, or with all dims in front that are no time dims), a number, a tensor expression,
    or a function `init(shape, dims=..., dtype=...)` that gives one of them. Time dims are those along which a case
    shifts or which a case fixes by a number.

    >>> import tempo as tp
    >>> with tp.Program("train") as program:
    ...     i = tp.dim("i")
    ...     w = tp.parameter("w", (3,), init=lambda shape, dims, dtype: tp.random.normal(shape, dims=dims), dims=(i,))
    ...     w[i + 1] = w * 0.9
    >>> program.parameters["w"].time_dims
    (i,)
    """
    program = current_program()
    check_name(name, "a parameter")
    if name in program.declared_parameters:
        raise ProgramError(f"the program {program.name!r} has a parameter {name!r} already", location=user_location())
    type = TensorType(to_shape(program, shape), as_dtype(dtype))
    if any(size.dims() for size in type.shape):
        raise ShapeError(f"the shape {show(type.shape)} of the parameter {name!r} varies", location=user_location())
    value = init if callable(init) else _given(init, type.dtype, name, user_location())
    tensor, builder = declare_merge(name, shape, dims, dtype, "parameter"), program.builder
    if ragged := [symbol.name for symbol in tensor.symbols if symbol in builder.lengths]:
        raise UnsupportedError(
            f"the parameter {name!r} has the dim {ragged[0]}, along which rows have lengths of their own",
            location=user_location(),
            hint="its last value differs from row to row: define it with tp.recurrent, and read it at t.last",
        )
    program.declared_parameters[name] = Parameter(
        name, tensor.edge.node, builder.new_number(), builder.new_declaration(), value
    )
    return tensor


def _given(init: Any, dtype: str, name: str, location: Location | None) -> Any:
    """A tensor as it is; else a number or an array, of `dtype`. Raises `DTypeError`."""
    if isinstance(init, RecurrentTensor):
        return init
    what = f"the initial value of {name!r}"
    try:
        given = np.asarray(init)
        array = np.array(dtypes.convert(given if given.dtype != object else init, dtype))
    except TempoError as error:
        raise type(error)(f"{what}: {error.message}", location=location, hint=error.hint) from None
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{what} is no array of numbers: {error}", location=location) from error
    source = dtypes.from_numpy(given.dtype)
    if not dtypes.same_kind(source, dtype):
        with AtUserLine(location):
            dtypes.check_cast(source, dtype, what)
    return array.item() if array.ndim == 0 else array


def _closed(program: Program, node: Node, state: Node) -> Node:
    """With the state as the last case; without, where the user's cases leave no point to it."""
    if program.builder.context.excludes(~disjunction(case.condition for case in node.cases)):
        return node
    edge = Edge(state.id, tuple(Point(var(symbol)) for symbol in state.domain))
    return replace(node, cases=(*node.cases, Case(TRUE, edge)))


def _final_value(program: Program, name: str, node: Node, time_dims: tuple[Symbol, ...]) -> Output:
    """The value at the last point of the time dims, at every point of the others.

    Along a dim that a run may end along early, every point may be the last (see `Graph.stops`).
    """
    last = [symbol for symbol in time_dims if Port("stop", symbol.name) not in program.builder.outputs]
    map = tuple(Point(program.builder.size(symbol) - 1 if symbol in last else var(symbol)) for symbol in node.domain)
    domain = tuple(symbol for symbol in node.domain if symbol not in last)
    layout = (*(symbol for symbol in domain if symbol not in time_dims), *range(len(node.shape)))
    return Output(name, Edge(node.id, map), domain, node.type, layout, "state", node.location)


def _initial_value(
    program: Program, parameter: Parameter, node: Node, others: tuple[Symbol, ...]
) -> np.ndarray[Any, Any] | Edge:
    """Made once for each set of time dims, so that making the graph twice makes no second draw."""
    key = frozenset(others)
    if parameter.made is None or parameter.made[0] != key:
        numbers = _INIT_DECLARATIONS + parameter.declaration * _DECLARATIONS_PER_INIT
        with program.builder.declarations_from(numbers):
            value = _make(program, parameter, node, others)
        parameter.made = (key, value)
    return parameter.made[1]


def _make(
    program: Program, parameter: Parameter, node: Node, others: tuple[Symbol, ...]
) -> np.ndarray[Any, Any] | Edge:
    what = f"the initial value of {parameter.name!r}"
    init = _called(program, parameter, node, others, what) if callable(parameter.init) else parameter.init
    if isinstance(init, np.ndarray):
        return _checked_array(program, init, node, others, what)
    says = (
        "along {}, which is none of its dims or a time dim",
        "declare draws with the dims= that the initialiser is given",
    )
    return assigned(init, node.type, what, others, program.builder.context, says, node.location).edge


def _called(program: Program, parameter: Parameter, node: Node, others: tuple[Symbol, ...], what: str) -> Any:
    dims = tuple(program.dim_of(symbol) for symbol in others)
    shape = tuple(size.as_int() if size.is_const else IndexExpression(program, size) for size in node.shape)
    try:
        made = parameter.init(shape, dims=dims, dtype=node.dtype)
    except TempoError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"the initialiser that makes {what} failed: {type(error).__name__}: {error}",
            location=node.location,
            hint="it is called as init(shape, dims=..., dtype=...)",
        ) from error
    return _given(made, node.dtype, parameter.name, node.location)


def _checked_array(
    program: Program, init: np.ndarray[Any, Any], node: Node, others: tuple[Symbol, ...], what: str
) -> np.ndarray[Any, Any]:
    """Of one point, or with the other dims in front. Sizes that are not numbers are checked when they are known."""
    full = (*(program.builder.size(symbol) for symbol in others), *node.shape)
    for wanted in (node.shape, full):
        fits = len(wanted) == init.ndim
        if fits and all(not size.is_const or size.as_int() == given for size, given in zip(wanted, init.shape)):
            return init
    raise ShapeError(
        f"{what} has shape {init.shape}; it needs {show(node.shape)}" + (f" or {show(full)}" if others else ""),
        location=node.location,
    )
