"""A schedule tree as lowering wants it: no loop hides a variable, no sequence is in a sequence, no part is shared."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.errors import InternalError
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, sequence
from tempo.symbolic import Condition, Expr, Symbol, var

Renames = Mapping[Symbol, Expr]


def scoped(tree: ScheduleTree) -> ScheduleTree:
    """The same order. A loop whose variable belongs to a loop around it as well gets a name of its own.

    Every node is a new object, so that nodes can be told apart by identity. Raises `InternalError` where the tree uses
    a variable that no loop around has.
    """
    return _scoped(tree, {})


def _scoped(tree: ScheduleTree, names: Renames) -> ScheduleTree:
    match tree:
        case Run(statement, point):
            return Run(statement, tuple(_renamed(index, names, tree) for index in point))
        case If(condition, body):
            _check(condition, names, tree)
            return If(condition.substitute(names), _scoped(body, names))
        case Sequence(items):
            return sequence(_scoped(item, names) for item in items)
        case For(symbol, lo, hi, direction, body):
            lo, hi = _renamed(lo, names, tree), _renamed(hi, names, tree)
            own = _free(symbol, names)
            return For(own, lo, hi, direction, _scoped(body, {**names, symbol: var(own)}))


def _free(symbol: Symbol, names: Renames) -> Symbol:
    taken = {inner for expr in names.values() for inner in expr.symbols()}
    while symbol in taken:
        symbol = Symbol(f"{symbol.name}_inner", symbol.kind)
    return symbol


def _renamed(expr: Expr, names: Renames, tree: ScheduleTree) -> Expr:
    _check(expr, names, tree)
    return expr.substitute(names)


def _check(value: Expr | Condition, names: Renames, tree: ScheduleTree) -> None:
    unknown = sorted(symbol for symbol in value.dims() if symbol not in names)
    if unknown:
        what = f"{type(tree).__name__.lower()} {tree}" if isinstance(tree, Run) else type(tree).__name__.lower()
        raise InternalError(f"a schedule uses {unknown[0]} in the {what}, where no loop around has it")
