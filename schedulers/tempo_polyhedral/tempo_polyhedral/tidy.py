"""Loops as people write them: over a dim itself, in its own direction, the first statement at the loop's own point.

isl counts every loop upwards from what its schedule says, so that a loop that goes back through t runs over -t, and
one that a shift has moved starts elsewhere. A loop in which some coordinate is its variable up to sign and an offset
becomes a loop over that coordinate's dim; a skewed one keeps a variable of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence, Statement, runs, sequence
from tempo.symbolic import FALSE, TRUE, Context, Expr, Symbol, const, var
from tempo_polyhedral.trees import substituted

_WAVE = "wave"


@dataclass(frozen=True)
class _Use:
    """A coordinate that is `sign * variable + offset`."""

    dim: Symbol
    sign: int
    offset: Expr


def tidy(problem: SchedulingProblem, tree: ScheduleTree) -> ScheduleTree:
    """The same order with loops named, turned and moved; statements that never run are in it too."""
    ordered = _Tidier(problem).tree(tree, (), Context.of((), problem.facts))
    placed = {run.statement for run in runs(tree)}
    idle = [_in_its_box(statement) for statement in problem.statements if statement.name not in placed]
    return sequence((*idle, ordered))


def reached(problem: SchedulingProblem, tree: ScheduleTree) -> ScheduleTree:
    """The same order without branches that are never taken, as there are where sizes became numbers."""
    kept = _reached(tree, Context.of((), problem.facts))
    placed = {run.statement for run in runs(kept)}
    idle = [_in_its_box(statement) for statement in problem.statements if statement.name not in placed]
    return sequence((*idle, kept))


def _reached(tree: ScheduleTree, context: Context) -> ScheduleTree:
    nothing = sequence(())
    if isinstance(tree, Sequence):
        return sequence(_reached(item, context) for item in tree.items)
    if isinstance(tree, If):
        condition = context.simplify_condition(tree.condition)
        body = nothing if condition == FALSE else _reached(tree.body, context.assume(condition))
        return body if condition == TRUE or body == nothing else If(condition, body)
    if isinstance(tree, Run):
        return tree
    inner = context.assume(var(tree.var).ge(tree.lo), var(tree.var).lt(tree.hi))
    body = _reached(tree.body, inner)
    return body if body == nothing else replace(tree, body=body)


def _in_its_box(statement: Statement) -> ScheduleTree:
    """A statement in loops of its own: isl leaves out what has no instances, but others may name it as read."""
    run = Run(statement.name, tuple(var(dim) for dim in statement.dims))
    tree: ScheduleTree = run if statement.condition == TRUE else If(statement.condition, run)
    for dim, lo, hi in reversed(statement.box.bounds):
        tree = For(dim, lo, hi, "forward", tree)
    return tree


@dataclass(frozen=True)
class _Tidier:
    problem: SchedulingProblem

    def tree(self, tree: ScheduleTree, around: tuple[Symbol, ...], context: Context) -> ScheduleTree:
        if isinstance(tree, Sequence):
            return sequence(self.tree(item, around, context) for item in tree.items)
        if isinstance(tree, If):
            condition = context.simplify_condition(tree.condition)
            body = self.tree(tree.body, around, context.assume(condition))
            return body if condition == TRUE else If(condition, body)
        if isinstance(tree, Run):
            return Run(tree.statement, tuple(context.simplify(index) for index in tree.point))
        return self._loop(tree, around, context)

    def _loop(self, loop: For, around: tuple[Symbol, ...], context: Context) -> ScheduleTree:
        uses = list(self._uses(loop, around))
        backward = bool(uses) and all(use.sign < 0 for use in uses)
        sign = -1 if backward else 1
        offset = _earliest([use.offset for use in uses if use.sign == sign], sign)
        name = self._name([use.dim for use in uses if use.sign == sign], around)
        body = substituted(loop.body, {loop.var: (var(name) - offset) * sign})
        lo, hi = loop.lo * sign + offset, (loop.hi - 1) * sign + offset
        lo, hi = (hi, lo + 1) if backward else (lo, hi + 1)
        lo, hi = context.simplify(lo), context.simplify(hi)
        inner = context.assume(var(name).ge(lo), var(name).lt(hi))
        return For(name, lo, hi, "backward" if backward else "forward", self.tree(body, (*around, name), inner))

    def _uses(self, loop: For, around: tuple[Symbol, ...]) -> Iterator[_Use]:
        for run in runs(loop.body):
            for dim, index in zip(self.problem.by_name[run.statement].dims, run.point, strict=True):
                sign = index.coefficient(loop.var)
                offset = index - var(loop.var) * sign
                if sign in (1, -1) and offset.dims() <= set(around):
                    yield _Use(dim, sign, offset)

    def _name(self, dims: list[Symbol], around: tuple[Symbol, ...]) -> Symbol:
        """The dim that most of the coordinates are of, else a name that no dim and no loop around has."""
        free = Counter(dim for dim in dims if dim not in around)
        if free:
            return free.most_common(1)[0][0]
        taken = {dim.symbol for dim in self.problem.dims} | set(around)
        names = (Symbol(f"{_WAVE}{number or ''}", "dim") for number in range(len(taken) + 1))
        return next(name for name in names if name not in taken)


def _earliest(offsets: list[Expr], sign: int) -> Expr:
    """The offset of the statement that comes first to a point, as far as they can be compared."""
    best = offsets[0] if offsets else const(0)
    for offset in offsets[1:]:
        ahead = (offset - best) * sign
        if ahead.is_const and ahead.as_int() > 0:
            best = offset
    return best
