"""Batches of forests whose numbers of nodes differ: executables for buckets of sizes, and one per size."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from jax import monitoring

import tempo as tp
from benchmarks.dynamic.forest import Forest, forest_of
from benchmarks.dynamic.ours import as_numpy, compiled, given, outputs
from benchmarks.dynamic.process import Prepared, agree

FEWEST, MOST = 128, 4096
BUCKETS = {"leaf": "pow2", "inner": "pow2"}
COMPILED = "/jax/core/compile/backend_compile_duration"


def forests(count: int, seed: int = 0) -> list[Forest]:
    """Their numbers of nodes are drawn evenly over the logarithm."""
    sizes = np.exp(np.random.default_rng(seed).uniform(np.log(FEWEST), np.log(MOST), count))
    return [forest_of(int(size), at) for at, size in enumerate(sizes)]


@contextmanager
def xla_compilations(found: list[float]) -> Iterator[None]:
    """Adds the seconds of each one within the block."""
    within = [True]

    def heard(event: str, seconds: float, **_: object) -> None:
        if within[0] and event == COMPILED:
            found.append(seconds)

    monitoring.register_event_duration_secs_listener(heard)
    yield
    within[0] = False


def prepare(width: int, count: int, exact: int) -> Prepared:
    """Gradients of `count` batches in buckets; the first `exact` of them are run at their own sizes, too."""
    batches = forests(count)
    in_buckets = Batches("in buckets", compiled(width, True, "jax", buckets=BUCKETS), width, batches)
    alone = Batches("exact sizes", compiled(width, True, "jax"), width, batches[:exact])
    for found, wanted in zip(in_buckets.first(exact), alone.first(exact), strict=True):
        agree(found, wanted, "its own size")
    parts = {each.name: partial(each.run, exact) for each in (in_buckets, alone)}
    return Prepared(in_buckets.run, lambda found: {}, parts, {**in_buckets.told, **alone.told})


class Batches:
    """Batches one after another by one executable."""

    def __init__(self, name: str, executable: tp.Executable, width: int, batches: Sequence[Forest]) -> None:
        self.name, self.executable = name, executable
        self.arrays = given(executable, width, batches)
        self.told: dict[str, float] = {}

    def run(self, count: int | None = None) -> None:
        """Of the first of them, or of all."""
        for each in self.arrays[:count]:
            outputs(self.executable, each, "jax")

    def first(self, kept: int) -> list[dict[str, np.ndarray]]:
        """Runs all of them for the first time, and gives what some of them make."""
        seconds: list[float] = []
        start = time.perf_counter()
        with xla_compilations(seconds):
            found = [as_numpy(outputs(self.executable, each, "jax")) for each in self.arrays[:kept]]
            for each in self.arrays[kept:]:
                outputs(self.executable, each, "jax")
        told = {
            "executables": self.executable.executables,
            "XLA compilations": len(seconds),
            "XLA": sum(seconds),
            "first pass": time.perf_counter() - start,
        }
        self.told = {f"{what}, {self.name}": number for what, number in told.items()}
        return found
