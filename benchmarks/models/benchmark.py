"""Models over time against the same written by hand for the same library: `lax.scan` in one `jit` for JAX, a loop of
cells for PyTorch and NumPy. Outputs are compared first; then both run in turn.

Goals: at most 1.15 of `lax.scan`; no slower than the loop in PyTorch, and 10 times faster where the cell is small.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.harness import Benchmark, Session, close
from benchmarks.models.workloads import Workload, workloads

GOALS = {"jax": 1.15, "torch": 1.0, "numpy": 1.2}


def tempo_run(session: Session, workload: Workload) -> Callable[[], Any]:
    """A call without arguments that returns outputs that are ready; inputs lie with the backend before it."""
    run = session.compile(workload.program, workload.sizes)
    given, weights = (
        {name: session.resident(array) for name, array in arrays.items()}
        for arrays in (workload.inputs, workload.weights)
    )
    return lambda: session.ready(run(state=weights, **given))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="those whose name contains this")


def measure(session: Session) -> None:
    peers = import_module(f"benchmarks.models.{session.backend}_peers")
    for title, make in workloads(session.quick).items():
        if session.options.only not in title:
            continue
        workload = make()
        given = {name: session.resident(array) for name, array in workload.inputs.items()}
        if workload.weights:
            given["weights"] = {name: session.resident(array) for name, array in workload.weights.items()}
        by_hand = peers.prepare(workload.peer, given, dict(workload.sizes)) if workload.peer in peers.PEERS else None
        session.compare(
            title,
            tempo_run(session, workload),
            {"by hand": lambda by_hand=by_hand: session.ready(by_hand())} if by_hand else {},
            close(workload.tolerance, workload.tolerance),
            goals={"by hand": GOALS[session.backend]},
        )


BENCHMARK = Benchmark(
    measure, "Models over time", repeats=21, quick_repeats=5, backends=("numpy", "jax", "torch"), add_options=options
)
