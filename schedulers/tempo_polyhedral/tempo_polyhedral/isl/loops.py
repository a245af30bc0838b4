"""From isl's schedule to loops: its AST builder, and what that emits as a `ScheduleTree`.

Statements are named as their domains are. Loop variables are new symbols, `%c0` for the outermost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import islpy as isl

from tempo.schedule import For, If, Run, ScheduleTree, sequence
from tempo.symbolic import (
    FALSE,
    TRUE,
    Condition,
    Expr,
    Symbol,
    as_expr,
    conjunction,
    const,
    disjunction,
    maximum,
    minimum,
    var,
)
from tempo_polyhedral.isl.errors import IslError, told
from tempo_polyhedral.isl.orders import Order

Cases = list[tuple[Condition, Expr]]
"""A value in pieces: the first element says where; the pieces do not overlap."""

_OP: Any = isl.ast_expr_op_type
_NODE: Any = isl.ast_node_type
_VALUES: dict[Any, Callable[..., Expr]] = {
    _OP.add: lambda a, b: a + b,
    _OP.sub: lambda a, b: a - b,
    _OP.minus: lambda a: -a,
    _OP.mul: lambda a, b: b * a.as_int() if a.is_const else a * b.as_int(),
    _OP.max: maximum,
    _OP.min: minimum,
    # isl emits the division only where it is exact, and the others for a nonnegative dividend or with floor.
    _OP.div: lambda a, b: a // b,
    _OP.fdiv_q: lambda a, b: a // b,
    _OP.pdiv_q: lambda a, b: a // b,
    _OP.pdiv_r: lambda a, b: a % b,
    _OP.zdiv_r: lambda a, b: a % b,  # only compared with zero
}
_COMPARISONS: dict[Any, Callable[[Expr, Expr], Condition]] = {
    _OP.eq: Expr.eq,
    _OP.le: Expr.le,
    _OP.lt: Expr.lt,
    _OP.ge: Expr.ge,
    _OP.gt: Expr.gt,
}


def loops(order: Order, separate: bool) -> ScheduleTree:
    """The loops that run through the order; `separate`: several over one range rather than guards inside of one."""
    kind = isl.ast_loop_type.separate if separate else isl.ast_loop_type.atomic
    with told():
        tree = order.tree.map_schedule_node_bottom_up(lambda node: _with_loops(node, kind))
        root = isl.AstBuild.from_context(order.context).node_from_schedule(tree)
        names = {str(symbol): var(symbol) for symbol in order.parameters.symbols}
        return _Reader(names).tree(root)


def _with_loops(node: Any, kind: Any) -> Any:
    if node.get_type() == isl.schedule_node_type.band:
        for member in range(node.band_n_member()):
            node = node.band_member_set_ast_loop_type(member, kind)
    return node


@dataclass(frozen=True)
class _Reader:
    """Reads nodes and expressions; `names` has what the identifiers around stand for."""

    names: Mapping[str, Expr]

    def tree(self, node: Any) -> ScheduleTree:
        kind = node.get_type()
        if kind == _NODE.for_:
            return self._loop(node)
        if kind == _NODE.if_:
            return sequence(self._branches(node))
        if kind == _NODE.block:
            children = node.block_get_children()
            return sequence(self.tree(children.get_at(place)) for place in range(children.n_ast_node()))
        if kind == _NODE.user:
            return self._run(node.user_get_expr())
        raise IslError(f"no loop for a node of the kind {kind}")

    def _branches(self, node: Any) -> Iterator[ScheduleTree]:
        condition = self.condition(node.if_get_cond())
        yield If(condition, self.tree(node.if_get_then_node()))
        if node.if_has_else_node():
            yield If(~condition, self.tree(node.if_get_else_node()))

    def _run(self, call: Any) -> ScheduleTree:
        name = call.op_get_arg(0).id_get_id().get_name()
        arguments = [self.cases(call.op_get_arg(place)) for place in range(1, call.op_get_n_arg())]
        return _guarded((where, Run(name, tuple(point))) for where, point in _together(arguments))

    def _loop(self, node: Any) -> ScheduleTree:
        name = node.for_get_iterator().id_get_id().get_name()
        first = self.cases(node.for_get_init())
        if node.for_is_degenerate():
            return _guarded((where, self._with(name, lo).tree(node.for_get_body())) for where, lo in first)
        step = self._number(node.for_get_inc())
        bounds = _together([first, self._end(node.for_get_cond(), name)])
        return _guarded((where, self._for(name, lo, hi, step, node.for_get_body())) for where, (lo, hi) in bounds)

    def _for(self, name: str, lo: Expr, hi: Expr, step: int, body: Any) -> For:
        symbol = Symbol(f"%{name}", "dim")  # no identifier, so no dim of the program
        if step == 1:
            return For(symbol, lo, hi, "forward", self._with(name, var(symbol)).tree(body))
        count = (hi - lo + step - 1) // step
        return For(symbol, const(0), count, "forward", self._with(name, lo + var(symbol) * step).tree(body))

    def _end(self, condition: Any, name: str) -> Cases:
        """What the loop's variable stays below."""
        kind = condition.op_get_type()
        if kind not in (_OP.le, _OP.lt) or condition.op_get_arg(0).get_type() != isl.ast_expr_type.id:
            raise IslError(f"a loop over {name} ends at no bound: {condition}")
        beyond = 1 if kind == _OP.le else 0
        return [(where, bound + beyond) for where, bound in self.cases(condition.op_get_arg(1))]

    def _with(self, name: str, value: Expr) -> _Reader:
        return _Reader({**self.names, name: value})

    def _number(self, expression: Any) -> int:
        return self.cases(expression)[0][1].as_int()

    def cases(self, expression: Any) -> Cases:
        """The value of an expression, in as many pieces as its selections make."""
        kind = expression.get_type()
        if kind == isl.ast_expr_type.int:
            return [(TRUE, const(expression.int_get_val().to_python()))]
        if kind == isl.ast_expr_type.id:
            return [(TRUE, self.names[expression.id_get_id().get_name()])]
        operation = expression.op_get_type()
        arguments = [expression.op_get_arg(place) for place in range(expression.op_get_n_arg())]
        if operation in (_OP.select, _OP.cond):
            return self._selected(*arguments)
        if operation not in _VALUES:
            raise IslError(f"no value of {expression}")
        pieces = _together([self.cases(argument) for argument in arguments])
        return [(where, as_expr(_VALUES[operation](*values))) for where, values in pieces]

    def _selected(self, condition: Any, then: Any, otherwise: Any) -> Cases:
        chosen = self.condition(condition)
        first = [(chosen & where, value) for where, value in self.cases(then)]
        return first + [(~chosen & where, value) for where, value in self.cases(otherwise)]

    def condition(self, expression: Any) -> Condition:
        if expression.get_type() == isl.ast_expr_type.int:
            return TRUE if self._number(expression) else FALSE
        operation = expression.op_get_type()
        arguments = [expression.op_get_arg(place) for place in range(expression.op_get_n_arg())]
        if operation in (_OP.and_, _OP.and_then):
            return conjunction(self.condition(argument) for argument in arguments)
        if operation in (_OP.or_, _OP.or_else):
            return disjunction(self.condition(argument) for argument in arguments)
        if operation not in _COMPARISONS:
            raise IslError(f"no condition of {expression}")
        pieces = _together([self.cases(argument) for argument in arguments])
        return disjunction(where & _COMPARISONS[operation](*values) for where, values in pieces)


def _together(values: list[Cases]) -> list[tuple[Condition, list[Expr]]]:
    """All combinations of the pieces of several values."""
    found = []
    for combination in itertools.product(*values):
        where = conjunction(where for where, _ in combination)
        found.append((where, [value for _, value in combination]))
    return found


def _guarded(parts: Any) -> ScheduleTree:
    return sequence(tree if where == TRUE else If(where, tree) for where, tree in parts if where != FALSE)
