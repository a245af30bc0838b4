"""What `tp.compile` takes as programs grow, in seconds of processor time, once everything is imported.

Recurrences in one program, beside and behind one another; a chain of layers with its gradient; a recurrence over many
dims; speculative decoding with a transformer; PPO. Where the polyhedral scheduler is installed, also what a compile of
a transformer in training waits for it, by the wall clock. `doubled` is the time to that of half the program.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import tempo as tp
from benchmarks.compile_scaling.programs import deep, lattice, recurrences, speculative, trained
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import Clock, rounds
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings

COUNTS = (80, 160, 320, 640, 1280)
DOUBLED = 2.2
"""The goal for twice the program."""
POINTS = 3


def seconds(session: Session, declare: Callable[[], tp.Program], clock: Clock, scheduler: str = "greedy") -> float:
    """To trace and compile, sizes included."""
    gc.collect()
    start = clock()
    program = declare()
    sizes = {dim.symbol.name: POINTS for dim in program.graph().dims if not dim.size.is_const}
    tp.compile(program, backend=session.backend, device=session.device, sizes=sizes, scheduler=scheduler)
    return clock() - start


def growth(session: Session, case: str, declare: Callable[[int], tp.Program], counts: tuple[int, ...]) -> None:
    """Every program in turn, each with its time to that before."""
    found: dict[int, list[float]] = {count: [] for count in counts}
    for _ in rounds(session.repeats):
        for count in counts:
            found[count].append(seconds(session, partial(declare, count), time.process_time))
    for count, before in zip(counts, (None, *counts)):
        session.add(case, f"{count}", "s", *found[count])
        if before is not None:
            doubled = (a / b for a, b in zip(found[count], found[before], strict=True))
            session.add(case, f"{count}, doubled", "x", *doubled, goal=DOUBLED)


def alone(session: Session, name: str, declare: Callable[[], tp.Program], goal: float) -> None:
    samples = [seconds(session, declare, time.process_time) for _ in rounds(session.repeats)]
    session.add("one program", name, "s", *samples, goal=goal)


def measure(session: Session) -> None:
    counts = tuple(session.options.counts or (COUNTS[:2] if session.quick else COUNTS))
    seconds(session, partial(deep, 2), time.process_time)  # what is imported or made once
    growth(session, "recurrences beside one another", partial(recurrences, chained=False), counts)
    growth(session, "recurrences behind one another", partial(recurrences, chained=True), counts)
    layers, dims = (50, 4) if session.quick else (500, 12)
    alone(session, f"{layers} layers with their gradient", partial(deep, layers), goal=10)
    alone(session, "a recurrence over 8 dims", partial(lattice, 8), goal=2)
    alone(session, f"a recurrence over {dims} dims", partial(lattice, dims), goal=10)
    alone(session, "speculative decoding", speculative, goal=1.5)
    alone(session, "PPO", partial(ppo, Settings()), goal=1)
    if find_spec("tempo_polyhedral") and find_spec("islpy"):
        seconds(session, partial(deep, 2), time.perf_counter, "polyhedral")
        polyhedral = partial(seconds, session, trained, time.perf_counter, "polyhedral")
        samples = [polyhedral() for _ in rounds(session.repeats)]
        session.add("one program", "a transformer in training, polyhedral", "s", *samples)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counts", type=int, nargs="+", help=f"recurrences, default {COUNTS}, quick {COUNTS[:2]}")


BENCHMARK = Benchmark(
    measure,
    "How compiling grows",
    repeats=3,
    quick_repeats=1,
    backends=("numpy", "jax", "torch"),
    add_options=options,
    docs=lambda row: row.unit in ("s", "x"),
)
