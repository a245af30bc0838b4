"""A plan that holds no more than a limit: which were looked at, what each holds and what it takes, and which it is.

The plan as it is comes first; where it fits, nothing changes. Else what keeps less is planned, what costs less time
first: what loops keep in the host pool, if there may be one; strips of a dim along which one loop keeps what a later
one reads, and shorter ones; blocks of an axis that only folds remove; then a loop over every dim, sums added up step by
step; then that and strips; then strips of strips. The first that fits is taken. What a plan holds is told as
`run.memory` tells it, for a backend that must compile for that by what the core's code would hold; what is taken is
then looked at itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo.compiler.plan import Plan
from tempo.costs import Cost, Costs, LikelySizes
from tempo.errors import InputError, MemoryLimitError, UnsupportedError, user_location
from tempo.loop_ir.analysis.heap import Heap
from tempo.passes.recompute.axes import regions
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.runtime.host_pool import planned_traffic
from tempo.runtime.memory import buffers_of
from tempo.runtime.trial import heap_of
from tempo.schedule.tree import For, If, ScheduleTree, Sequence
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.runtime.compiled import Ready
    from tempo.runtime.engine import CompiledEngine

Sizes = Mapping[Symbol, int]

_UNITS = {"": 1, "b": 1, **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_LESS = 0.98
"""A plan that holds more than this part of another is no better."""
_MOST_COMPILED = 4
"""Of plans that a backend must compile to say what they hold."""


def limit_in_bytes(limit: Any) -> int | None:
    """`2_000_000`, `"2GiB"` or `"1.5 GB"` as bytes. Raises InputError for what is no size."""
    if limit is None:
        return None
    if isinstance(limit, int | np.integer) and not isinstance(limit, bool) and limit > 0:
        return int(limit)
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", limit) if isinstance(limit, str) else None
    bytes = 0 if found is None else int(float(found[1]) * _UNITS.get(found[2].lower(), 0))
    if bytes > 0:
        return bytes
    raise InputError(
        f"memory_limit={limit!r} is no size",
        location=user_location(),
        hint='write bytes, or a text: memory_limit="2GiB", "500MB"',
    )


@dataclass(frozen=True)
class Choice:
    """A plan that was looked at: `how` it is made, the most bytes that live at once, the seconds of a run by the model
    of costs (they compare plans, and say little of a clock), and whether it fits."""

    how: str
    peak_bytes: int
    seconds: float
    fits: bool

    def __str__(self) -> str:
        time = f"{self.seconds * 1e3:.3g} ms by the model"
        return f"{self.how:<52} {self.peak_bytes:>14} B  {time}{', fits' * self.fits}"


@dataclass(frozen=True)
class Chosen:
    """The plan that is run, and all that were looked at, in order."""

    plan: Plan
    choices: tuple[Choice, ...] = ()


def chosen(engine: CompiledEngine, sizes: Sizes, limit: int | None) -> Chosen:
    """The plan of the scheduler whose plan holds least, or the first within the limit. Raises MemoryLimitError where
    none is found."""
    return _Search(engine, sizes, limit).found()


@dataclass(frozen=True)
class _Candidate:
    """A plan of an engine, and what it holds, by an estimate where the backend must compile to say it."""

    how: str
    engine: CompiledEngine
    plan: Plan
    heap: Heap


class _Search:
    def __init__(self, engine: CompiledEngine, sizes: Sizes, limit: int | None) -> None:
        self.engine, self.sizes, self.limit = engine, sizes, limit
        self.may_offload = engine.compiler.offload is not None
        self.choices: list[Choice] = []
        self.compiled = 0
        self.least: Heap | None = None
        self.is_estimate = False  # what is said of the least

    def found(self) -> Chosen:
        *others, start = self.of_schedulers()
        self.choices += [self.choice(each, each.heap, True) for each in others]
        if self.limit is None:
            return Chosen(start.plan, (*self.choices, self.choice(start, start.heap, True)))
        self.check(start.plan, self.limit)
        if self.fits(start, self.limit):
            return Chosen(start.plan, tuple(self.choices))
        for way in self.others(start.plan):
            how = ", ".join(f"{name}={value!r}" for name, value in way.items())
            try:
                other = self.candidate(how, start.engine.varied(**way))
            except UnsupportedError:
                continue  # it cannot be run so
            if self.fits(other, self.limit):
                return Chosen(other.plan, tuple(self.choices))
        raise self.too_much()

    def of_schedulers(self) -> list[_Candidate]:
        """A plan of each that finds one. The last is the one that holds least; that of the first, where it holds about
        as much."""
        rivals = self.engine.compiler.rivals
        offload = self.engine.compiler.offload if self.limit is None else None
        first = self.engine.varied() if self.may_offload and offload is None else self.engine
        if not rivals:
            return [self.candidate("as it is", first)]
        engines = {self.engine.scheduler_name: first}
        engines |= {name: self.engine.varied(rival, offload) for name, rival in rivals.items()}
        found, refused = list[_Candidate](), list[UnsupportedError]()
        for name, engine in engines.items():
            try:
                found.append(self.candidate(f"scheduler={name!r}", engine))
            except UnsupportedError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        best = min(found, key=lambda each: each.heap.peak)
        best = best if best.heap.peak < _LESS * found[0].heap.peak else found[0]
        return [*(each for each in found if each is not best), best]

    def candidate(self, how: str, engine: CompiledEngine) -> _Candidate:
        plan = engine.planned(self.sizes)
        ready = self.engine.at(plan, self.sizes)
        return _Candidate(how, engine, plan, heap_of(ready, estimate=True) if _compiles(ready) else ready.heap)

    def choice(self, candidate: _Candidate, heap: Heap, fits: bool) -> Choice:
        cost = cost_of(candidate.plan, self.sizes, self.engine.backend.costs)
        moved = planned_traffic(self.engine.at(candidate.plan, self.sizes).compiled.program, self.sizes)
        cost = replace(cost, bytes=cost.bytes + moved.evicted + moved.fetched)
        return Choice(candidate.how, heap.peak, cost.seconds, fits)

    def check(self, plan: Plan, limit: int) -> None:
        """Raises MemoryLimitError where what is given and returned is more than the limit."""
        buffers = buffers_of(plan.loops, self.sizes)
        held = ("constant",) if self.may_offload else ("constant", "input")  # else inputs may stay where they are
        given = sum(each.bytes for each in buffers if each.role in held)
        returned = sum(each.bytes for each in buffers if each.role == "output")
        if given + returned > limit:
            raise MemoryLimitError(
                f"a run is given {given} B and returns {returned} B, and may hold at most {limit} B",
                location=user_location(),
                hint="use smaller sizes, or a larger memory_limit",
            )

    # -- what a plan holds -------------------------------------------------------------------------------------------

    def fits(self, candidate: _Candidate, limit: int) -> bool:
        """Looks at a plan."""
        ready, heap = self.engine.at(candidate.plan, self.sizes), candidate.heap
        is_estimate = _compiles(ready)
        if heap.peak <= limit and is_estimate:
            heap, is_estimate = self.told(ready), False
        fits = heap.peak <= limit
        self.choices.append(self.choice(candidate, heap, fits))
        if self.least is None or heap.peak < self.least.peak:
            self.least, self.is_estimate = heap, is_estimate
        return fits

    def told(self, ready: Ready) -> Heap:
        """What the backend says when it has compiled."""
        if self.compiled == _MOST_COMPILED:
            raise self.too_much(f"; {_MOST_COMPILED} plans that were compiled hold more than was estimated")
        self.compiled += 1
        return ready.heap

    # -- what else there is ------------------------------------------------------------------------------------------

    def others(self, plan: Plan) -> Iterator[Mapping[str, Any]]:
        """Options that keep less, one after the other; those that the user has chosen stay. A pool is used first, if
        there may be one, and then with all others."""
        pools: list[Mapping[str, Any]] = [{"offload": each} for each in ("kept", "all")] if self.may_offload else []
        yield from pools
        yield from ({**way, **pool} for pool in pools[:1] or [{}] for way in self.without_pool(plan))

    def without_pool(self, plan: Plan) -> Iterator[Mapping[str, Any]]:
        options = self.engine.compiler.options
        strips = [] if options.recompute else [{"recompute": each} for each in self.strips(plan)]
        sequential = {"mapping": "sequential"} if options.mapping is None else {}
        twice = [each for each in strips if len(*each["recompute"].values()) > 1]
        once = [each for each in strips if each not in twice]
        yield from once
        yield from self.blocks()
        if sequential:
            yield sequential
            yield from ({**way, **sequential} for way in once[-1:])
        yield from ({**way, **sequential} for way in twice)

    def strips(self, plan: Plan) -> list[Mapping[str, tuple[int, ...]]]:
        """Of the dims over which loops stand one behind another that with the most points: in strips, in shorter ones
        (what enters each is often less than what a point within takes), and in strips of strips."""
        dims = {dim.symbol: int(dim.size.evaluate(self.sizes)) for dim in self.engine.graph.dims}
        found = {symbol: dims[symbol] for symbol in _looped_again(plan.tree) if symbol in dims}
        symbol = max(sorted(found), key=found.__getitem__, default=None)
        if symbol is None or found[symbol] < 4:
            return []
        points = found[symbol]
        once, larger, smaller = (_near(points, round(points**power)) for power in (1 / 2, 2 / 3, 1 / 3))
        if not 2 <= smaller < once < larger < points:
            return [{symbol.name: (once,)}]
        return [{symbol.name: lengths} for lengths in ((once,), (smaller,), (larger, smaller))]

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """Blocks of the axis between whose folds the most bytes lie, where these are a good part of the peak."""
        assert self.least is not None, "the plan as it is was looked at"
        if self.engine.compiler.options.fold_blocks is None:
            sizes = LikelySizes(self.sizes)
            held = max((region.bytes(sizes) for region in regions(without_dead_nodes(self.engine.graph))), default=0)
            yield from ({"fold_blocks": count} for count in (8, 64) if held * 4 > self.least.peak)

    def too_much(self, more: str = "") -> MemoryLimitError:
        heap = self.least
        assert heap is not None, "one was looked at"
        parts = {role: sum(each.bytes for each in heap.at_peak if each.role == role) for role in ("given", "returned")}
        largest = sorted(heap.at_peak, key=lambda piece: -piece.bytes)[:3]
        how = next(choice.how for choice in self.choices if choice.peak_bytes == heap.peak)
        named = "".join(f"\n    {piece}" for piece in largest)
        about = "by an estimate, without compiling it, " if self.is_estimate else ""
        return MemoryLimitError(
            f"no plan was found that holds at most {self.limit} B: the least holds {about}{heap.peak} B ({how}), "
            f"of which {parts['given']} B are given and {parts['returned']} B returned{more}",
            location=user_location(),
            hint=f"use smaller sizes, or a larger memory_limit; the largest there are{named}",
        )


def _compiles(ready: Ready) -> bool:
    """Whether the backend must compile to say what a run holds."""
    return any(segment.compiles for segment in ready.compiled.segments)


def _near(points: int, wanted: int) -> int:
    """A length of strips that divides the points, if one is near, so that no strip is shorter."""
    divisors = [size for size in range(2, points) if points % size == 0 and wanted <= 2 * size <= 4 * wanted]
    return min(divisors, key=lambda size: abs(math.log(size / wanted)), default=max(2, wanted))


def _looped_again(tree: ScheduleTree) -> set[Symbol]:
    """The dims over which several loops stand side by side."""
    if isinstance(tree, For | If):
        return _looped_again(tree.body)
    if not isinstance(tree, Sequence):
        return set()
    here = [item.var for item in tree.items if isinstance(item, For)]
    return {var for var in here if here.count(var) > 1}.union(*map(_looped_again, tree.items))


def cost_of(plan: Plan, sizes: Sizes, rates: Costs) -> Cost:
    """What a run does, by the model: every statement at all of its points."""
    operations = bytes = launches = 0.0
    nodes = {cluster.name: len(cluster.nodes) for cluster in plan.program.clusters}
    for statement in plan.problem.statements:
        points = math.prod(max(0, int((hi - lo).evaluate(sizes))) for _, lo, hi in statement.box.bounds)
        operations += statement.cost * points
        bytes += statement.bytes * points
        launches += nodes[statement.name] * points
    return Cost(rates, operations, bytes, launches)
