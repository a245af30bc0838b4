"""From a `SchedulingProblem` to a tree: the levels of Allen and Kennedy, each written down as it is found.

`tempo.schedule.levels` finds the strongly connected components of the dependences, sources first, in each a loop
that carries some of its dependences, then the components of what is left inside. What is left to do here is to write
loops around them. Nothing is fused, so every value that leaves a component is kept for all of its points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tempo.errors import UnsupportedError
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Statement, sequence
from tempo.schedule.levels import Level, levels
from tempo.symbolic import TRUE, Context, Expr, Symbol, maximum, minimum, var
from tempo_unfused.links import Link, links_of


@dataclass(frozen=True)
class Around:
    """The loops around a place: what holds there, and the index of each statement along each of their dims."""

    context: Context
    points: Mapping[str, Mapping[Symbol, Expr]]

    def inside(self, loop: For, indices: Mapping[str, Expr]) -> Around:
        """Within `loop`, in which each of the statements has an index of its own along the loop's dim."""
        context = self.context.assume(var(loop.var).ge(loop.lo), var(loop.var).lt(loop.hi))
        moved = {name: {**self.points.get(name, {}), loop.var: index} for name, index in indices.items()}
        return Around(context, {**self.points, **moved})


class UnfusedScheduler:
    """`schedule(problem)` returns the tree; `UnsupportedError` where no loop serves a cycle of dependences."""

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        names = {statement.name: _dims(problem, statement) for statement in problem.statements}
        around = Around(Context.of((), problem.facts), {})
        return sequence(_tree(problem, level, around) for level in levels(names, list(links_of(problem))))


def _dims(problem: SchedulingProblem, statement: Statement) -> tuple[Symbol, ...]:
    """Outermost first: the dim that results are streamed along, where it is one of them."""
    return tuple(sorted(statement.dims, key=lambda dim: dim != problem.outermost))


def _tree(problem: SchedulingProblem, level: Level[str], around: Around) -> ScheduleTree:
    if level.stuck:
        raise _unsupported(problem, level)
    if level.loop is None:
        return _nest(problem, problem.by_name[level.names[0]], around)
    dim, forward = level.loop.dim, level.loop.direction == "forward"
    behind = {name: delay if forward else -delay for name, delay in level.loop.delays.items()}
    members = [problem.by_name[name] for name in level.names]
    lo = minimum(*(member.box.lo(dim) + behind[member.name] for member in members))
    hi = maximum(*(member.box.hi(dim) + behind[member.name] for member in members))
    loop = For(dim, lo, hi, level.loop.direction, sequence(()))
    inner = around.inside(loop, {name: var(dim) - behind[name] for name in level.names})
    return For(dim, lo, hi, loop.direction, sequence(_tree(problem, each, inner) for each in level.inner))


def _nest(problem: SchedulingProblem, statement: Statement, around: Around) -> ScheduleTree:
    """The statement in loops over the dims that have none yet, and under what those around it do not guarantee."""
    point = dict(around.points.get(statement.name, {}))
    missing = [dim for dim in _dims(problem, statement) if dim not in point]
    loops: list[For] = []
    for dim in missing:
        lo, hi = (bound.substitute(point) for bound in (statement.box.lo(dim), statement.box.hi(dim)))
        loops.append(For(dim, lo, hi, "forward", sequence(())))
        around = around.inside(loops[-1], {statement.name: var(dim)})
        point[dim] = var(dim)
    return _wrapped(loops, _guarded(statement, point, around.context))


def _guarded(statement: Statement, point: Mapping[Symbol, Expr], context: Context) -> ScheduleTree:
    run = Run(statement.name, tuple(point[dim] for dim in statement.dims))
    inside = statement.condition & statement.box.contains(dict(zip(statement.dims, map(var, statement.dims))))
    condition = context.simplify_condition(inside.substitute(point))
    return run if condition == TRUE else If(condition, run)


def _wrapped(loops: Sequence[For], body: ScheduleTree) -> ScheduleTree:
    for loop in reversed(loops):
        body = For(loop.var, loop.lo, loop.hi, loop.direction, body)
    return body


def _unsupported(problem: SchedulingProblem, level: Level[str]) -> UnsupportedError:
    links = [link for link in level.stuck if isinstance(link, Link)]
    lines = dict.fromkeys(problem.describe(link.dependence) for link in links)
    return UnsupportedError(
        "the scheduler 'unfused' finds no dim along which all of these dependences point one way:\n"
        + "\n".join(f"    {line}" for line in lines),
        hint='try scheduler="greedy"',
        statements=level.names,
    )
