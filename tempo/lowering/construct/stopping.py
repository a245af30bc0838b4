"""Runs that end early: which loops are left, and which parts of the program are left out after that.

The order (`build_problem`) puts a stop after all that runs at its point, and before all that runs at the next. So what
varies along its dim is in loops over it at the top, of one point after another, and the run ends where a loop is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tempo.errors import UnsupportedError
from tempo.lowering.scheduling.clusters import Clustered
from tempo.lowering.scheduling.places import Place, top_items
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence
from tempo.sdg.graph import Output
from tempo.symbolic import Box, Context, Symbol, const, var

_HINT = "scheduler='greedy' keeps apart what ends early and what does not"


@dataclass(frozen=True)
class Stops:
    """The places that compute what ends the run, each with that output. `boxes` say where each cluster runs."""

    found: tuple[tuple[Place, Output], ...]
    boxes: Mapping[str, Box]

    @staticmethod
    def of(program: Clustered, places: Mapping[str, tuple[Place, ...]]) -> Stops:
        clusters = program.cluster_of()
        names = {clusters[output.edge.node].name: output for output in program.graph.stops.values()}
        found = ((place, names[name]) for name in sorted(names) for place in places.get(name, ()))
        return Stops(tuple(found), {cluster.name: program.box(cluster) for cluster in program.clusters})

    def leaves(self, loop: For) -> Output | None:
        """The stop that is found in the loop's body, not in a loop inside."""
        return next((output for place, output in self.found if place.loops and place.loops[-1][1] is loop), None)

    def known(self, loop: For) -> int:
        """Behind how many items of the loop's body the stop that is found in it is known."""
        found = {place.statement for place, _ in self.found}
        return max(at for at, item in enumerate(top_items(loop.body), 1) if found.intersection(_run_in(item)))

    def ends(self, item: int, places: Iterable[Place]) -> Output | None:
        """The stop after which a part of the top is left out; `places` are those in it.

        Raises `UnsupportedError` where it holds what ends with it and what does not.
        """
        here = [place for place in places if place.item == item] if self.found else []
        for output in dict.fromkeys(output for place, output in self.found if place.item <= item):
            dim = output.domain[0]
            along = [place for place in here if dim in self._dims(place)]
            if all(self._is_first(place, dim) for place in along):
                continue
            others = (place for place in here if dim not in self._dims(place))
            own = (place for place, each in self.found if each is output and place.item == item)
            if all(map(_is_at_the_first, others)) and all(len(place.loops) <= 1 for place in own):
                return output
            raise UnsupportedError(
                f"the schedule runs what ends early along {dim.name} together with what does not",
                location=output.location,
                hint=_HINT,
            )
        return None

    def _is_first(self, place: Place, dim: Symbol) -> bool:
        """Whether it runs at the first point alone, which is always kept."""
        end = self.boxes[place.statement].hi(dim)
        return place.point[self._dims(place).index(dim)] == const(0) or (end.is_const and end.as_int() <= 1)

    def _dims(self, place: Place) -> tuple[Symbol, ...]:
        return tuple(symbol for symbol, _, _ in self.boxes[place.statement].bounds)


def _run_in(tree: ScheduleTree) -> Iterator[str]:
    """The statements that are run in it, but for those in loops."""
    match tree:
        case Run(statement):
            yield statement
        case If(_, body):
            yield from _run_in(body)
        case Sequence(items):
            for item in items:
                yield from _run_in(item)


def _is_at_the_first(place: Place) -> bool:
    """Whether guards hold at the first point of the loop around alone, which is always kept."""
    loop = place.loops[0][1] if place.loops else None
    if loop is None or loop.direction != "forward":
        return False
    return Context.of((), var(loop.var).ge(loop.lo), place.condition).implies(var(loop.var).eq(loop.lo))
