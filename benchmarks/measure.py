"""Timing in turn (A B A B ...), since machines are shared and noisy: medians with their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    for _ in range(repeats):
        for name, clock in clocks.items():
            seconds[name].append(clock())
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def ratios(timings: Mapping[str, Timing], name: str, to: str) -> tuple[float, ...]:
    """The ratio within each round: what slows a machine down slows both."""
    return tuple(a / b for a, b in zip(timings[name].seconds, timings[to].seconds, strict=True))
