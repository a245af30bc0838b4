"""What the schedulers take for synthetic problems: greedy up to 2,000 statements, polyhedral up to 200."""

from __future__ import annotations

import gc
import importlib.util
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from tempo_greedy.scheduler import GreedyScheduler

from benchmarks.harness import Benchmark, Session
from benchmarks.measure import rounds
from tempo.schedule import Dependence, For, If, Interval, Scheduled, SchedulingProblem, Statement, walk
from tempo.symbolic import Box, Dim, Expr, Symbol, const, maximum, minimum, size, var

I, T = Symbol("i", "dim"), Symbol("t", "dim")
DIMS = (Dim(I, size("i")), Dim(T, size("t")))
CHAIN = 25  # statements between two recurrences, in problems that have as many
COUNTS = {"greedy": (250, 500, 1000, 2000), "polyhedral": (10, 30, 60, 100, 200)}


def problem(count: int, seed: int) -> SchedulingProblem:
    """Chains over (i, t) that read one another at temporal distances, with slices of the past and the future.

    Some have a recurrence of one statement, some of the whole chain. Each ends in a sum over t; one statement over i
    gathers the sums, and the next point of i starts from it.
    """
    chooser = random.Random(seed)
    full, outer = Box.full(DIMS), Box.full(DIMS[:1])
    length = min(CHAIN, count)
    chains = max(1, count // length)
    statements = [Statement("start", (I,), outer, bytes=4.0)]
    dependences = [Dependence("end", "start", (_at(var(I) - 1),), var(I).ge(1))]
    for chain in range(chains):
        names = [f"s{chain}_{place}" for place in range(length)]
        statements += [Statement(name, (I, T), full, bytes=4.0 * chooser.randint(1, 64)) for name in names]
        statements.append(Statement(f"sum{chain}", (I,), outer, bytes=4.0))
        dependences.append(Dependence("start", names[0], (_at(var(I)),)))
        dependences += _chain(names, chain, chooser)
        dependences.append(Dependence(names[-1], f"sum{chain}", (_at(var(I)), Interval(const(0), size("t") - 1))))
        dependences.append(Dependence(f"sum{chain}", "end", (_at(var(I)),)))
    statements.append(Statement("end", (I,), outer, bytes=4.0))
    return SchedulingProblem(DIMS, tuple(statements), tuple(dependences))


def _chain(names: list[str], number: int, chooser: random.Random) -> Iterator[Dependence]:
    for place, name in enumerate(names[1:], start=1):
        yield Dependence(names[place - 1], name, (_at(var(I)), _read(chooser)))
        other = names[chooser.randrange(place)]
        yield Dependence(other, name, (_at(var(I)), _read(chooser)))
    if number % 3 == 0:
        yield _before(names[len(names) // 2], names[len(names) // 2], 1)
    if number % 3 == 1:
        yield _before(names[-1], names[0], 40)
    if number:
        yield Dependence(f"s{number - 1}_{len(names) - 1}", names[0], (_at(var(I)), _at(var(T))))


def _read(chooser: random.Random) -> Interval:
    t = var(T)
    return chooser.choice(
        [
            _at(t),
            _at(t),
            _at(t - 1),
            Interval(maximum(t - 3, 0), t),
            Interval(t, minimum(t + 1, size("t") - 1)),
        ]
    )


def _before(source: str, target: str, steps: int) -> Dependence:
    return Dependence(source, target, (_at(var(I)), _at(var(T) - steps)), var(T).ge(steps))


def _at(index: Expr) -> Interval:
    return Interval(index, index)


def seconds(scheduler: Callable[[], Any], given: SchedulingProblem) -> tuple[float, int]:
    """The time to schedule, and the loops and conditionals of the tree."""
    made = scheduler()
    gc.collect()
    start = time.perf_counter()
    found = made.schedule(given)
    taken = time.perf_counter() - start
    tree = found.tree if isinstance(found, Scheduled) else found
    return taken, sum(isinstance(node, For | If) for node in walk(tree))


def schedulers() -> dict[str, Callable[[], Any]]:
    """Those that are installed; the worker of the polyhedral one is warm."""
    found: dict[str, Callable[[], Any]] = {"greedy": GreedyScheduler}
    if importlib.util.find_spec("tempo_polyhedral") and importlib.util.find_spec("islpy"):
        from tempo_polyhedral.cache import Cache
        from tempo_polyhedral.scheduler import PolyhedralScheduler

        found["polyhedral"] = lambda: PolyhedralScheduler(cache=Cache(None))
        found["polyhedral"]().schedule(problem(1, 0))
    return found


def measure(session: Session) -> None:
    for name, scheduler in schedulers().items():
        for count in COUNTS[name][:3] if session.quick else COUNTS[name]:
            given = problem(count, session.options.seed)
            found = [seconds(scheduler, given) for _ in rounds(session.repeats)]
            case = f"{name}, {len(given.statements)} statements, {len(given.dependences)} dependences"
            session.add(case, "an order", "s", *(each for each, _ in found))
            session.add(case, "loops and guards", "count", found[0][1])


BENCHMARK = Benchmark(
    measure,
    "What schedulers take",
    repeats=5,
    quick_repeats=2,
    add_options=lambda parser: parser.add_argument("--seed", type=int, default=0),
    docs=lambda row: row.unit == "s",
)
