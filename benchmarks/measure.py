"""Timing in turn (A B A B ...), since machines are shared and noisy: medians with their spread."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def timed(run: Callable[[], object], calls: int = 1, clock: Clock = time.perf_counter) -> float:
    """Seconds of one call, as the mean of `calls` of them."""
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def in_turn(
    runs: Mapping[str, Callable[[], object]], repeats: int, calls: int = 1, clock: Clock = time.perf_counter
) -> dict[str, Timing]:
    """All of them in turn, `repeats` times; a sample is the mean of `calls` calls.

    `time.process_time` as the clock tells what the work costs on a machine that others keep busy.
    """
    clocks = {name: lambda run=run: timed(run, calls, clock) for name, run in runs.items()}  # type: ignore[misc]
    return timings_in_turn(clocks, repeats)


def timings_in_turn(clocks: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Timing]:
    """As `in_turn`, for runs that return the seconds that count."""
    seconds: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in rounds(repeats):
        for name, clock in clocks.items():
            seconds[name].append(clock())
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def ratios(timings: Mapping[str, Timing], name: str, to: str) -> tuple[float, ...]:
    """The ratio within each round: what slows a machine down slows both."""
    return tuple(a / b for a, b in zip(timings[name].seconds, timings[to].seconds, strict=True))


def finding_bytecode(folder: str) -> dict[str, str]:
    """The environment of a process that keeps bytecode there; the next one finds it, as of what is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": folder}


# -- two processes in turn ---------------------------------------------------------------------------------------------

TURNS = "TEMPO_BENCHMARK_TURNS"
"""The environment variable with two pipes, one to read and one to write: of a process beside which another measures."""


@dataclass(frozen=True)
class Turns:
    """Of two processes one at a time does anything. Where the other has ended, it is always one's own turn."""

    reading: int
    writing: int

    def wait(self) -> None:
        os.read(self.reading, 1)

    def hand_over(self) -> None:
        try:
            os.write(self.writing, b".")
        except BrokenPipeError:
            return
        self.wait()


@cache
def turns() -> Turns | None:
    """Those of this process, if another measures beside it (`versions.py`)."""
    found = os.environ.get(TURNS)
    return Turns(*map(int, found.split(","))) if found else None


def rounds(repeats: int) -> Iterator[int]:
    """Numbers of rounds; after each the process beside this one has its turn."""
    for number in range(repeats):
        yield number
        if (shared := turns()) is not None:
            shared.hand_over()
