"""Models over time against the same written by hand for the same library: `lax.scan` in one `jit` for JAX, a loop of
cells for PyTorch and NumPy. Outputs are compared first; then both run in turn.

Goals: at most 1.15 of `lax.scan`; no slower than the loop in PyTorch, and 10 times faster where the cell is small.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.measure import in_turn, ratio, show
from benchmarks.models.workloads import Workload, workloads

GOALS = {"jax": "goal 1.15", "torch": "goal 1.0; 0.1 for a small cell", "numpy": "goal 1.2"}


def tempo_run(workload: Workload, backend: str) -> Callable[[], Any]:
    """A call without arguments that returns outputs that are ready; inputs lie with the backend before it."""
    run = tp.compile(workload.program, backend=backend, sizes=dict(workload.sizes))
    given = {name: resident(array, backend) for name, array in workload.inputs.items()}
    return lambda: ready(run(**given), backend)


def resident(array: np.ndarray, backend: str) -> Any:
    if backend == "jax":
        return import_module("jax").numpy.asarray(array)
    return import_module("torch").from_numpy(array) if backend == "torch" else array


def ready(outputs: Any, backend: str) -> Any:
    return import_module("jax").block_until_ready(dict(outputs)) if backend == "jax" else outputs


def compare(workload: Workload, found: Any, expected: Any) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(
            np.asarray(found[name]), np.asarray(value), rtol=workload.tolerance, atol=workload.tolerance, err_msg=name
        )


def measure(title: str, workload: Workload, backend: str, repeats: int) -> None:
    peers = import_module(f"benchmarks.models.{backend}_peers")
    runs = {
        "tempo": tempo_run(workload, backend),
        "peer": peers.prepare(workload.peer, dict(workload.inputs), dict(workload.sizes)),
    }
    seconds, results = {}, {}
    for name, run in runs.items():
        start = time.perf_counter()
        results[name] = run()
        seconds[name] = time.perf_counter() - start
    compare(workload, results["tempo"], results["peer"])
    timings = in_turn(runs, repeats)
    show(f"{title} ({backend}; first run {seconds['tempo']:.2f} s, the peer's {seconds['peer']:.2f} s)", timings)
    print(f"  {ratio(timings, 'tempo', 'peer')} ({GOALS[backend]})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="numpy", choices=sorted(GOALS))
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("--repeats", type=int, help="21, or 7 with --quick")
    parser.add_argument("--only", default="", help="those whose name contains this")
    options = parser.parse_args()
    repeats = options.repeats or (7 if options.quick else 21)
    for title, make in workloads(options.quick).items():
        if options.only in title:
            measure(title, make(), options.backend, repeats)


if __name__ == "__main__":
    main()
