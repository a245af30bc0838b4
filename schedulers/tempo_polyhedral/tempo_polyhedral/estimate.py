"""What a tree is worth, from the problem alone: bytes that are kept, then how much of it there is.

A value is kept for one point of a dim where all its readers share the loop over that dim, for d + 1 points where some
are d iterations behind, and for all of them where one is in another loop or ever farther behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tempo.schedule import Dependence, For, If, Interval, Run, ScheduleTree, SchedulingProblem, Sequence, walk
from tempo.symbolic import Context, Expr, Symbol, var

_UNKNOWN_SIZE = 64  # what a size that is no number counts as; only magnitudes are compared

Loops = tuple[tuple[int, For], ...]  # outermost first, each with a number of its own


@dataclass(frozen=True)
class _Place:
    run: Run
    loops: Loops


def estimate(problem: SchedulingProblem, tree: ScheduleTree) -> tuple[float, int]:
    """(bytes kept, loops and conditionals): less is better, the first first."""
    places: dict[str, list[_Place]] = {statement.name: [] for statement in problem.statements}
    for place in _places(tree, ()):
        places[place.run.statement].append(place)
    model = _Model(problem, places)
    return model.bytes(), sum(isinstance(node, For | If) for node in walk(tree))


def _places(tree: ScheduleTree, loops: Loops) -> Iterator[_Place]:
    if isinstance(tree, Run):
        yield _Place(tree, loops)
    elif isinstance(tree, Sequence):
        for item in tree.items:
            yield from _places(item, loops)
    elif isinstance(tree, For):
        yield from _places(tree.body, (*loops, (id(tree), tree)))
    else:
        yield from _places(tree.body, loops)


@dataclass(frozen=True)
class _Model:
    problem: SchedulingProblem
    places: Mapping[str, list[_Place]]
    contexts: dict[tuple[int, ...], Context] = field(default_factory=dict)

    def bytes(self) -> float:
        kept: dict[tuple[str, Symbol], float] = {}
        for dependence in self.problem.dependences:
            if dependence.kind == "data":
                for dim, points in self._kept(dependence):
                    key = dependence.source, dim
                    kept[key] = max(kept.get(key, 1.0), points)
        total = 0.0
        for statement in self.problem.statements:
            points = 1.0
            for dim in statement.dims:
                points *= kept.get((statement.name, dim), 1.0)
            total += max(statement.bytes, 1.0) * points
        return total

    def _kept(self, dependence: Dependence) -> Iterator[tuple[Symbol, float]]:
        """How many points of each dim of the source are kept for this reader."""
        target = self.problem.by_name[dependence.target]
        for position, dim in enumerate(self.problem.by_name[dependence.source].dims):
            size = self.problem.dim(dim).size
            everything = float(size.as_int() if size.is_const else _UNKNOWN_SIZE)
            for source in self.places[dependence.source]:
                for reader in self.places[dependence.target]:
                    read = dict(zip(target.dims, reader.run.point))
                    behind = self._behind(source, position, reader, dependence.relation[position], read)
                    yield dim, everything if behind is None else min(everything, behind + 1.0)

    def _behind(
        self, source: _Place, position: int, reader: _Place, interval: Interval, read: Mapping[Symbol, Expr]
    ) -> int | None:
        """How many iterations the reader is behind at most; None: no bound, or no loop that both share."""
        index = source.run.point[position]
        shared = [loop for loop, other in zip(source.loops, reader.loops) if loop[0] == other[0]]
        for _, loop in shared:
            sign = index.coefficient(loop.var)
            offset = index - var(loop.var) * sign
            if sign in (1, -1) and not offset.dims():
                ends = (var(loop.var) - (end.substitute(read) - offset) * sign for end in (interval.lo, interval.hi))
                return self._greatest(reader.loops, list(ends))
        return None

    def _greatest(self, loops: Loops, steps: list[Expr]) -> int | None:
        """The greatest absolute value of the steps."""
        found = 0
        for step in steps:
            lo, hi = (step.const, step.const) if step.is_const else self._context(loops).constant_bounds(step)
            if lo is None or hi is None:
                return None
            found = max(found, abs(lo), abs(hi))
        return found

    def _context(self, loops: Loops) -> Context:
        key = tuple(number for number, _ in loops)
        if key not in self.contexts:
            facts = [fact for _, loop in loops for fact in (var(loop.var).ge(loop.lo), var(loop.var).lt(loop.hi))]
            self.contexts[key] = Context.of((), self.problem.facts, *facts)
        return self.contexts[key]
