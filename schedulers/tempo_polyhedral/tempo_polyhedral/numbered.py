"""Problems and trees with statements called by their position, so that names make no two problems differ."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tempo.schedule import ScheduleTree, SchedulingProblem
from tempo_polyhedral.trees import renamed


@dataclass(frozen=True)
class Numbered:
    """A problem whose statements are called `s0`, `s1`, ..., and the problem that was given."""

    problem: SchedulingProblem
    original: SchedulingProblem

    @staticmethod
    def of(problem: SchedulingProblem) -> Numbered:
        number = {statement.name: f"s{place}" for place, statement in enumerate(problem.statements)}
        statements = tuple(replace(each, name=number[each.name]) for each in problem.statements)
        dependences = tuple(
            replace(each, source=number[each.source], target=number[each.target])
            for each in dict.fromkeys(problem.dependences)
        )
        return Numbered(replace(problem, statements=statements, dependences=dependences), problem)

    def named(self, tree: ScheduleTree) -> ScheduleTree:
        """A tree of the numbered problem as one of the problem that was given."""
        return renamed(tree, {f"s{place}": each.name for place, each in enumerate(self.original.statements)})

    def digest(self) -> str:
        """The same for problems of the same structure: dims, domains, dependences, bytes, what is known and asked."""
        problem = self.problem
        lines = [str(problem), f"facts {problem.facts}", f"outermost {problem.outermost}"]
        lines += [f"{statement.bytes:g}" for statement in problem.statements]
        lines += [str(dependence.reduction) for dependence in problem.dependences]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
