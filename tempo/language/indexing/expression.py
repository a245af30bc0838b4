"""What users write between brackets: dims, sizes, expressions and conditions over them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from tempo import symbolic
from tempo.errors import IndexExpressionError, ProgramError, user_location
from tempo.symbolic import FALSE, TRUE, Atom, Condition, Expr, Symbol

if TYPE_CHECKING:
    from tempo.language.program import Program

Result = TypeVar("Result")
Operator = Callable[[Any, Any], Result]


def both_ways(function: Operator[Result]) -> tuple[Operator[Result], Operator[Result]]:
    """An operator of Python, and with the operands exchanged."""

    def reflected(self: Any, other: Any) -> Result:
        return function(other, self)

    return function, reflected


def _arithmetic(operation: Operator[Any], symbol: str) -> Operator[Any]:
    """An expression; a tensor where an array takes part; NotImplemented leaves the work to a tensor."""

    def computed(left: Any, right: Any) -> Any:
        other = right if isinstance(left, IndexExpression) else left
        if isinstance(other, np.ndarray):
            return _with_array(operation, left, right)
        if not _belongs(other):
            return NotImplemented
        text = f"({_text(left)}) {symbol} ({_text(right)})"
        if not isinstance(other, IndexExpression) and not is_integer(other):
            given = _text(left if other is right else right)
            fail(
                f"{text} is no index expression: {show(other)} is no integer",
                f"as a tensor, write tp.as_tensor({given}) {symbol} ...; as an index, use integers",
            )
        program = common_program(left, right)
        a, b = _operand(left, "an operand"), _operand(right, "an operand")
        _check_affine(symbol, a, b, text)
        return IndexExpression(program, operation(a, b))

    return computed


def _comparison(operation: Operator[Any]) -> Operator[Any]:
    def compared(left: Any, right: Any) -> Any:
        if isinstance(right, np.ndarray):
            return _with_array(operation, left, right)
        if not _belongs(right):
            return NotImplemented
        if not isinstance(right, IndexExpression) and not is_integer(right):
            fail(
                f"({left}) is compared with {show(right)}",
                f"compare it with an integer; as tensors, write tp.as_tensor({left}) < ...",
            )
        method = getattr(left.expr, operation.__name__)  # an `==` of expressions is not a condition
        return IndexCondition(common_program(left, right), method(_operand(right, "an operand")))

    return compared


def _connection(operation: Operator[Any]) -> Operator[Any]:
    def connected(left: Any, right: Any) -> Any:
        other = right if isinstance(left, IndexCondition) else left
        if isinstance(other, np.ndarray):
            return _with_array(operation, left, right)
        if not isinstance(other, (IndexCondition, bool, np.bool_)):
            return NotImplemented
        program = common_program(left, right)
        return IndexCondition(program, operation(to_condition(left), to_condition(right)))

    return connected


class IndexExpression:
    """An integer expression of dims and sizes: `t - 1`, `2 * t.size`, `tp.max(t - 3, 0)`, `t // 2`.

    `+ - *` by constants, `//` and `%` by positive constants, `tp.min` and `tp.max`. Comparisons give conditions.
    Where a tensor is wanted it is its value at the point, a weak int32.
    """

    __slots__ = ("program", "expr")
    __array_ufunc__ = None

    def __init__(self, program: Program | None, expr: Expr) -> None:
        self.program = program
        self.expr = expr

    def __repr__(self) -> str:
        return str(self.expr)

    def __hash__(self) -> int:
        return hash(self.expr)

    __add__, __radd__ = both_ways(_arithmetic(operator.add, "+"))
    __sub__, __rsub__ = both_ways(_arithmetic(operator.sub, "-"))
    __mul__, __rmul__ = both_ways(_arithmetic(operator.mul, "*"))
    __floordiv__, __rfloordiv__ = both_ways(_arithmetic(operator.floordiv, "//"))
    __mod__, __rmod__ = both_ways(_arithmetic(operator.mod, "%"))
    __truediv__, __rtruediv__ = both_ways(_arithmetic(operator.truediv, "/"))
    __pow__, __rpow__ = both_ways(_arithmetic(operator.pow, "**"))

    def __neg__(self) -> IndexExpression:
        return IndexExpression(self.program, -self.expr)

    def __pos__(self) -> IndexExpression:
        return IndexExpression(self.program, self.expr)

    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)

    def __index__(self) -> int:
        if self.expr.is_const:
            return self.expr.as_int()
        fail(
            f"{self} has no single value while the program is written",
            "a program has no loops over a dim: index by it (x[t - 1]), and read a constant array by it with "
            "tp.constant(array).spatial[t]",
        )

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __bool__(self) -> bool:
        return bool(self.__index__())

    def __iter__(self) -> NoReturn:
        fail(
            f"{self} cannot be iterated over while the program is written",
            "a program has no loops over a dim: write what holds at each of its points, x[t - 1] + y[t]",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        fail(f"{self} is no array", f"its value at each point is the tensor tp.as_tensor({self})")


class Dim(IndexExpression):
    """A temporal dimension, as an index expression."""

    __slots__ = ()
    program: Program

    @property
    def symbol(self) -> Symbol:
        (symbol,) = self.expr.symbols()
        return symbol

    @property
    def name(self) -> str:
        return self.symbol.name

    @property
    def size(self) -> IndexExpression:
        """The bound: `0 <= t < t.size`."""
        return IndexExpression(self.program, self.program.builder.size(self.symbol))

    @property
    def last(self) -> IndexExpression:
        """The last point: `t.size - 1`, and of a dim of which rows have lengths of their own that of a row.

        After `tp.stop_when(t, ...)` the last point that is kept, of a row where each ends by itself.
        """
        if self.program.builder.ends_early(self.symbol):
            return IndexExpression(self.program, symbolic.var(self.symbol.of_kind("last")))
        return IndexExpression(self.program, last_point(self.program, self.symbol))


class IndexCondition:
    """A condition over dims and sizes: `t == 0`, `(t > 0) & (t < 4)`, `~(t < i)`. Where a tensor is wanted, a bool."""

    __slots__ = ("program", "condition")
    __array_ufunc__ = None

    def __init__(self, program: Program | None, condition: Condition) -> None:
        self.program = program
        self.condition = condition

    def __repr__(self) -> str:
        return str(self.condition)

    __and__, __rand__ = both_ways(_connection(operator.and_))
    __or__, __ror__ = both_ways(_connection(operator.or_))

    def __invert__(self) -> IndexCondition:
        return IndexCondition(self.program, ~self.condition)

    def __bool__(self) -> bool:
        if self.condition in (TRUE, FALSE):
            return self.condition == TRUE
        fail(
            f"whether {self} holds differs from point to point",
            "instead of `if`, write cases: h[t == 0] = ..., or tp.cases((t == 0, a), b); combine conditions with & | ~ "
            "and parentheses, (0 <= t) & (t < 4)",
        )


def minimum(*values: Any) -> IndexExpression:
    """The smallest of index expressions and integers."""
    return _extremum(symbolic.minimum, "min", values)


def maximum(*values: Any) -> IndexExpression:
    """The largest of index expressions and integers."""
    return _extremum(symbolic.maximum, "max", values)


def _extremum(of: Callable[..., Expr], name: str, values: tuple[Any, ...]) -> IndexExpression:
    program = common_program(*values)
    return IndexExpression(program, of(*(_operand(value, f"an argument of tp.{name}", name) for value in values)))


def common_program(*values: Any) -> Program | None:
    """The one program that the expressions among `values` belong to. Raises `ProgramError` where there are two."""
    owners = [v.program for v in values if isinstance(v, (IndexExpression, IndexCondition)) and v.program is not None]
    if any(owner is not owners[0] for owner in owners):
        raise ProgramError(
            f"dims of the programs {owners[0].name!r} and {owners[-1].name!r} meet in one expression",
            location=user_location(),
            hint="declare the dims of a program inside it",
        )
    return owners[0] if owners else None


def is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def show(value: Any) -> str:
    """The value as messages name it."""
    kind = type(value).__name__
    return f"the {kind} {value}" if isinstance(value, (int, float, str, np.generic)) else f"a {kind}"


def to_expr(value: Any, program: Program, what: str, last: bool = False) -> Expr:
    """The expression that `value` is. Raises `IndexExpressionError`, or `ProgramError` for one of another program.

    `last`: whether it may be one of the last point of a row.
    """
    if isinstance(value, IndexExpression):
        program.require(value.program, f"the index expression {value}")
    expr = _operand(value, what)
    if not last and (found := lasts(expr)):
        fail(
            f"{what} is {value}, and {found[0]} differs from row to row", "read at it, x[b, t.last], or compare with it"
        )
    return expr


def last_point(program: Program, symbol: Symbol) -> Expr:
    builder = program.builder
    return symbolic.var(symbol.of_kind("last")) if symbol in builder.lengths else builder.size(symbol) - 1


def lasts(value: Expr | Condition | Atom) -> list[Symbol]:
    """What it has of last points of rows."""
    return sorted(symbol for symbol in value.symbols() if symbol.kind == "last")


def _operand(value: Any, what: str, name: str = "") -> Expr:
    if isinstance(value, IndexExpression):
        return value.expr
    if is_integer(value):
        return symbolic.const(operator.index(value))
    if isinstance(value, (float, np.floating)):
        fail(f"{what} is {show(value)}", "an index expression is made of integers and dims: round it first, int(...)")
    if isinstance(value, (bool, np.bool_, IndexCondition)):
        fail(f"{what} is the condition {value}", "write an integer expression, or select by cases: tp.cases(...)")
    if hasattr(value, "edge"):
        hint = (
            f"for tensors elementwise write tp.{name}imum(a, b)"
            if name
            else "read at a tensor's values with x.gather(t, index)"
        )
        fail(f"{what} is a tensor", hint)
    fail(f"{what} is {show(value)}", "write an integer, a dim, or an expression of them such as t - 1")


def _check_affine(symbol: str, left: Expr, right: Expr, text: str) -> None:
    as_tensors = f"as a tensor, write tp.as_tensor({left}) {symbol} ({right})"
    if symbol in ("/", "**"):
        instead = "//, which rounds down" if symbol == "/" else "a product with a constant"
        fail(f"{text} is no index expression", f"use {instead}; {as_tensors}")
    if symbol == "*" and not (left.is_const or right.is_const):
        fail(f"{text} is a product of two varying expressions", f"one factor must be an integer; {as_tensors}")
    if symbol in ("//", "%") and not (right.is_const and right.as_int() > 0):
        fail(f"{text} divides by what is no positive integer", f"the divisor must be a positive integer; {as_tensors}")


def to_condition(value: IndexCondition | bool | np.bool_, program: Program | None = None) -> Condition:
    """The condition that `value` is. Raises `ProgramError` for one of another program than `program`."""
    if not isinstance(value, IndexCondition):
        return TRUE if value else FALSE
    if program is not None:
        program.require(value.program, f"the condition {value}")
    return value.condition


def _belongs(value: Any) -> bool:
    """Whether an expression meets `value` as a number: otherwise the other operand decides."""
    return isinstance(value, (IndexExpression, int, float, np.generic))


def _with_array(operation: Operator[Any], left: Any, right: Any) -> Any:
    from tempo.language.conversion import as_tensor  # tensors hold index expressions, so it imports this module

    return operation(as_tensor(left), as_tensor(right))


def _text(value: Any) -> str:
    return str(value.expr) if isinstance(value, IndexExpression) else str(value)


def fail(message: str, hint: str) -> NoReturn:
    raise IndexExpressionError(message, location=user_location(), hint=hint)
