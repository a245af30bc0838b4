"""Runs that end early: which loops are left, and which parts of the program are left out after that.

The order (`build_problem`) puts a stop after all that runs at its point, and before all that runs at the next. So what
varies along its dim is in loops over it at the top, of one point after another, and the run ends where a loop is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tempo.errors import UnsupportedError
from tempo.lowering.scheduling.clusters import Clustered
from tempo.schedule import tree
from tempo.schedule.tree import For, If, Run, ScheduleTree, runs
from tempo.sdg.graph import Output
from tempo.symbolic import Box, Condition, Context, Symbol, const, var

Trees = tuple[ScheduleTree, ...]
_HINT = "scheduler='greedy' keeps apart what ends early and what does not"


@dataclass(frozen=True)
class Stops:
    """By the cluster that computes it: the output that ends the run. `boxes` say where each cluster runs."""

    of_cluster: Mapping[str, Output]
    boxes: Mapping[str, Box]

    @staticmethod
    def of(program: Clustered) -> Stops:
        clusters = program.cluster_of()
        found = {clusters[output.edge.node].name: output for output in program.graph.stops.values()}
        return Stops(found, {cluster.name: program.box(cluster) for cluster in program.clusters})

    def leaves(self, loop: For) -> Output | None:
        """The stop that is found in the loop's body, not in a loop inside."""
        names = (run.statement for run in _runs_outside_loops(loop.body))
        return next((self.of_cluster[name] for name in names if name in self.of_cluster), None)

    def ends(self, parts: Sequence[Trees]) -> list[Output | None]:
        """For each part of the top the stop after which it is left out.

        Raises `UnsupportedError` where a part holds what ends with it and what does not.
        """
        found: list[Output | None] = []
        begun: set[str] = set()
        for part in parts:
            begun |= {run.statement for item in part for run in runs(item) if run.statement in self.of_cluster}
            found.append(self._ends(part, [self.of_cluster[name] for name in sorted(begun)]))
        return found

    def _ends(self, part: Trees, stops: Iterable[Output]) -> Output | None:
        """`stops`: those that may have been found before the part or in it."""
        found = [run for item in part for run in runs(item)]
        for output in stops:
            dim = output.domain[0]
            along = [run for run in found if dim in self._dims(run)]
            if all(self._is_first(run, dim) for run in along):
                continue
            first = [run for item in part for run in _at_the_first(item) if dim not in self._dims(run)]
            if len(along) + len(first) == len(found) and self._is_outermost(part, output):
                return output
            raise UnsupportedError(
                f"the schedule runs what ends early along {dim.name} together with what does not",
                location=output.location,
                hint=_HINT,
            )
        return None

    def _is_first(self, run: Run, dim: Symbol) -> bool:
        """Whether it runs at the first point alone, which is always kept."""
        end = self.boxes[run.statement].hi(dim)
        return run.point[self._dims(run).index(dim)] == const(0) or (end.is_const and end.as_int() <= 1)

    def _dims(self, run: Run) -> tuple[Symbol, ...]:
        return tuple(symbol for symbol, _, _ in self.boxes[run.statement].bounds)

    def _is_outermost(self, part: Trees, output: Output) -> bool:
        """No loop around the one that the stop leaves."""
        stops = {name for name, each in self.of_cluster.items() if each is output}
        inside = (run for item in part for run in runs(item) if run.statement in stops)
        own = [run for item in part for run in _runs_outside_loops(item.body if isinstance(item, For) else item)]
        return all(run in own for run in inside)


def _at_the_first(item: ScheduleTree) -> Iterator[Run]:
    """The runs under a guard that holds at the first point of the loop around it alone, which is always kept."""
    if isinstance(item, For) and item.direction == "forward":
        yield from _guarded(item.body, Context.of((), var(item.var).ge(item.lo)), var(item.var).eq(item.lo))


def _guarded(item: ScheduleTree, here: Context, wanted: Condition) -> Iterator[Run]:
    match item:
        case If(condition, body):
            inside = here.assume(condition)
            yield from runs(body) if inside.implies(wanted) else _guarded(body, inside, wanted)
        case For(body=body):
            yield from _guarded(body, here, wanted)
        case tree.Sequence(items):
            for inner in items:
                yield from _guarded(inner, here, wanted)


def _runs_outside_loops(item: ScheduleTree) -> Iterator[Run]:
    match item:
        case Run():
            yield item
        case If(body=body):
            yield from _runs_outside_loops(body)
        case tree.Sequence(items):
            for inner in items:
                yield from _runs_outside_loops(inner)
