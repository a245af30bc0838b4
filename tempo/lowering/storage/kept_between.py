"""Loops beside one another of which one keeps all points of a value for another, which may be elsewhere in between.

In between may also be the next iteration of a loop around them: a cache that is read and written layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tempo.lowering.scheduling.clusters import Clustered, Value, ValueReads
from tempo.lowering.scheduling.places import Place
from tempo.lowering.storage.assignment import Storage
from tempo.schedule.tree import For
from tempo.symbolic import Expr

Use = tuple[Place, tuple[Expr, ...]]
"""Where a buffer is written or read, and at which indices."""


def kept_between(
    program: Clustered,
    places: Mapping[str, tuple[Place, ...]],
    storage: Mapping[Value, Storage],
    everything: bool = False,
) -> frozenset[int]:
    """Such loops, by identity, that stand in others, without those that stand in one another. Within a strip of a dim
    little is kept. `everything`: also of what is given, and of what the iterations of a loop around hand on."""
    found: dict[int, For] = {}
    strips = {dim.symbol for dim in program.graph.dims if dim.sequential}
    for uses in _uses(program, places, storage, everything).values():
        if everything:
            found.update(each for use in uses if (each := _moving(use)) is not None)
            continue
        common = min(uses[0][0].shared_loops(place) for place, _ in uses)
        if not common or any(loop.var in strips for _, loop in uses[0][0].loops[:common]):
            continue
        beside = {place.loops[common] for place, _ in uses if len(place.loops) > common}
        apart = {each for each in beside if any(_moves(use, each[1]) for use in uses if each in use[0].loops)}
        is_between = len(beside) + any(len(place.loops) == common for place, _ in uses) > 1
        if is_between and apart:
            found.update(apart)
    return frozenset(id(loop) for number, loop in found.items() if not _is_inside(number, found, places))


def _is_inside(number: int, found: Mapping[int, For], places: Mapping[str, tuple[Place, ...]]) -> bool:
    """Whether a loop around it is one of them."""
    around = (place.loops for each in places.values() for place in each)
    paths = ([each for each, _ in loops] for loops in around)
    return any(outer in found for path in paths if number in path for outer in path[: path.index(number)])


def _moving(use: Use) -> tuple[int, For] | None:
    """The outermost loop in another one that moves over the points."""
    return next((each for each in use[0].loops[1:] if _moves(use, each[1])), None)


def _moves(use: Use, loop: For) -> bool:
    return any(loop.var in index.symbols() for index in use[1])


def _uses(
    program: Clustered, places: Mapping[str, tuple[Place, ...]], storage: Mapping[Value, Storage], given: bool
) -> dict[Value, list[Use]]:
    """By value that has a buffer with all points along an axis, who writes and reads it. `given`: inputs, too."""
    reads, clusters, found = ValueReads(program, places), program.cluster_of(), dict[Value, list[Use]]()
    for value, decided in storage.items():
        written = [] if decided.moved else [value]
        written += [] if decided.home is None else [(decided.home.owner, 0)]
        uses: list[Use] = [(place, place.point) for place in places.get(clusters[value[0]].name, ())]
        for buffer in written:
            found.setdefault(buffer, []).extend(uses)
        found.setdefault(written[-1 if decided.moved else 0], []).extend(_seen(reads, value))
    full = {value for value, each in storage.items() if any(axis.kind == "full" for axis in each.axes)}
    if given:
        inputs = [(id, 0) for id, node in program.graph.nodes.items() if node.is_input and node.domain]
        found |= {value: list(_seen(reads, value)) for value in inputs}
        full.update(inputs)
    return {value: uses for value, uses in found.items() if value in full and uses}


def _seen(reads: ValueReads, value: Value) -> Iterator[Use]:
    return ((read.place, tuple(each.lo for each in read.relation)) for read in reads.of.get(value, []))
