"""A problem for every size, from one in which some dims have numbers as sizes.

Numbers make isl slow, and two lengths of one program two problems. So a dim of N points is treated as one of `size`
points, and a number c near N that is compared with its index is taken for `size + (c - N)`: at `size = N`, the only one
that is run, both mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tempo.schedule import Dependence, Interval, ScheduleTree, SchedulingProblem, Statement
from tempo.symbolic import Condition, Expr, Max, Min, Symbol, const, maximum, minimum, var
from tempo.symbolic.expr import of_atom
from tempo_polyhedral.trees import substituted

Fixed = Mapping[Symbol, int]  # dims, and their sizes that are numbers


@dataclass(frozen=True)
class General:
    """The problem with a symbol for every size, and the numbers that the new ones stand for."""

    problem: SchedulingProblem
    numbers: Mapping[Symbol, int]

    @staticmethod
    def forms(problem: SchedulingProblem) -> tuple[General, ...]:
        """The general problem, and the one that was given, should an order exist at its numbers alone."""
        general = General.of(problem)
        return (general, General(problem, {})) if general.numbers else (general,)

    @staticmethod
    def of(problem: SchedulingProblem) -> General:
        fixed = {dim.symbol: dim.size.as_int() for dim in problem.dims if dim.size.is_const}
        if not fixed:
            return General(problem, {})
        general = replace(
            problem,
            dims=tuple(
                replace(dim, size=var(_size(dim.symbol))) if dim.symbol in fixed else dim for dim in problem.dims
            ),
            statements=tuple(_statement(each, fixed) for each in problem.statements),
            dependences=tuple(_dependence(problem, each, fixed) for each in problem.dependences),
        )
        return General(general, {_size(dim): number for dim, number in fixed.items()})

    def at_numbers(self, tree: ScheduleTree) -> ScheduleTree:
        """A tree of the general problem as one of the problem that was given."""
        return substituted(tree, {symbol: const(number) for symbol, number in self.numbers.items()})


def _size(dim: Symbol) -> Symbol:
    return Symbol(dim.name, "size")


def _statement(statement: Statement, fixed: Fixed) -> Statement:
    box = statement.box
    for dim, lo, hi in statement.box.bounds:
        if dim in fixed:  # the box stays within the dim at every size
            hi = minimum(_general(hi, [dim], fixed, -1), var(_size(dim)))
            box = box.replace(dim, _general(lo, [dim], fixed, -1), hi)
    return replace(statement, box=box, condition=_condition(statement.condition, fixed))


def _dependence(problem: SchedulingProblem, dependence: Dependence, fixed: Fixed) -> Dependence:
    dims = problem.by_name[dependence.source].dims
    relation = tuple(
        Interval(_general(each.lo, [dim], fixed, -1), _general(each.hi, [dim], fixed, -1))
        for dim, each in zip(dims, dependence.relation, strict=True)
    )
    return replace(dependence, relation=relation, condition=_condition(dependence.condition, fixed))


def _condition(condition: Condition, fixed: Fixed) -> Condition:
    return condition.map_exprs(lambda expr: _general(expr, expr.dims(), fixed, 0))


def _general(expr: Expr, dims: Iterable[Symbol], fixed: Fixed, beside: int, times: int = 1) -> Expr:
    """The expression with its constants as sizes of the dims that it is compared with, where they are near them.

    The comparison is of `times` the expression with something of the degree `-beside` in the dims. A comparison of
    degree 0, such as one of s with t - 2, holds or fails wherever both are: its constant is a distance, and no end.
    """
    near = [dim for dim in sorted(dims) if dim in fixed]
    own = sum(factor for atom, factor in expr.terms if isinstance(atom, Symbol) and atom.kind == "dim")
    degree = beside + times * own
    found = _number(expr.const, near, fixed) if degree else const(expr.const)
    for atom, factor in expr.terms:
        if isinstance(atom, Min | Max):
            args = (_general(arg, near, fixed, degree, times * factor) for arg in atom.args)
            found = found + (minimum(*args) if isinstance(atom, Min) else maximum(*args)) * factor
        else:
            found = found + of_atom(atom) * factor
    return found


def _number(number: int, dims: list[Symbol], fixed: Fixed) -> Expr:
    """Its sign does not matter: `t - (N - 1) >= 0` has it too."""
    distance = {dim: abs(abs(number) - fixed[dim]) for dim in dims}
    nearest = min(distance, key=distance.__getitem__, default=None)
    if nearest is None or 2 * distance[nearest] >= fixed[nearest]:
        return const(number)
    sign = 1 if number > 0 else -1
    return (var(_size(nearest)) + (abs(number) - fixed[nearest])) * sign
