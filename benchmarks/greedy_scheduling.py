"""What the greedy scheduler takes for synthetic problems of 250 to 2,000 statements, and how it grows."""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Iterator

from tempo_greedy.scheduler import GreedyScheduler

from tempo.schedule import Dependence, Interval, SchedulingProblem, Statement, walk
from tempo.symbolic import Box, Dim, Expr, Symbol, const, maximum, minimum, size, var

I, T = Symbol("i", "dim"), Symbol("t", "dim")
DIMS = (Dim(I, size("i")), Dim(T, size("t")))
CHAIN = 25  # statements between two recurrences


def problem(count: int, seed: int) -> SchedulingProblem:
    """Chains over (i, t) that read one another at temporal distances, with slices of the past and the future.

    Some have a recurrence of one statement, some of the whole chain. Each ends in a sum over t; one statement over i
    gathers the sums, and the next point of i starts from it.
    """
    chooser = random.Random(seed)
    full, outer = Box.full(DIMS), Box.full(DIMS[:1])
    chains = max(1, count // CHAIN)
    statements = [Statement("start", (I,), outer, bytes=4.0)]
    dependences = [Dependence("end", "start", (_at(var(I) - 1),), var(I).ge(1))]
    for chain in range(chains):
        names = [f"s{chain}_{place}" for place in range(CHAIN)]
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
        yield _before(names[CHAIN // 2], names[CHAIN // 2], 1)
    if number % 3 == 1:
        yield _before(names[-1], names[0], 40)
    if number:
        yield Dependence(f"s{number - 1}_{CHAIN - 1}", names[0], (_at(var(I)), _at(var(T))))


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


def seconds(count: int, seed: int) -> tuple[float, int]:
    """The time to schedule, and the nodes of the tree."""
    given = problem(count, seed)
    gc.collect()
    start = time.perf_counter()
    tree = GreedyScheduler().schedule(given)
    return time.perf_counter() - start, sum(1 for _ in walk(tree))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = (250, 500, 1000, 2000)
    found: dict[int, list[tuple[float, int]]] = {count: [] for count in counts}
    for _ in range(options.repeats):
        for count in counts:
            found[count].append(seconds(count, options.seed))
    print("statements  dependences  tree nodes  seconds, median    worst  ms each")
    for count in counts:
        given = problem(count, options.seed)
        times = [one for one, _ in found[count]]
        middle = statistics.median(times)
        print(
            f"{len(given.statements):>10}  {len(given.dependences):>11}  {found[count][0][1]:>10}"
            f"  {middle:>15.3f}  {max(times):>7.3f}  {1000 * middle / len(given.statements):>7.3f}"
        )


if __name__ == "__main__":
    main()
