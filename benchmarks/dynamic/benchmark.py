"""Tree-LSTM on batches of random binary trees, forward and with the gradients of all weights and inputs, on one core.

Each runs in a process of its own, kept to one core and one thread. h of all nodes, the loss (the sum of its squares)
and the gradients are compared before anything is timed. What is timed begins with the structure of the trees, as NumPy
arrays, and ends with outputs that are there: sorting by level, our inspector and DyNet's graph count, compiling does
not. Weights and inputs lie with the library.

A second part (`batches`) runs forests of 128 to 4,096 nodes on JAX, in buckets of sizes and each at its own.

DyNet has an environment of its own:

    tox -e benchmarks-dynet --notest
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dynamic.forest import forest
from benchmarks.dynamic.process import CLOCKS, ROOT, WHOLE, Process, agree, started
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import ratios, timings_in_turn

WIDTHS, TREES = (256, 512), (8, 64)
PARTS = ("trees", "batches")
FEW = 8
"""Up to so many trees are run node by node in PyTorch."""
OURS, POINT_BY_POINT, INSPECTOR = "tempo", "tempo, point by point", "tempo, inspector"


@dataclass(frozen=True)
class Side:
    """Of a comparison: a module here that has a function `prepare`, and what it is given."""

    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    backends: tuple[str, ...] = ("numpy", "jax", "torch")
    most: int | None = None  # trees
    forward: bool = True


PEERS = {
    "JAX by hand": Side("jax_tiles", {"by_hand": True}, ("jax",)),
    "JAX by hand, jax.grad": Side("jax_tiles", {"by_hand": False}, ("jax",), forward=False),
    "PyTorch by depth": Side("torch_peers", {"way": "by depth"}),
    "PyTorch one by one": Side("torch_peers", {"way": "one by one"}, ("torch",), FEW),
    "DyNet": Side("dynet_peer"),
}


def measure(session: Session) -> None:
    options = session.options
    if options.only == "batches" and "jax" not in options.backend:
        raise SystemExit("--only batches is measured on jax")
    if options.only in (None, "trees"):
        measure_trees(session)
    if options.only in (None, "batches") and session.backend == "jax":
        measure_batches(session)


def measure_trees(session: Session) -> None:
    options = session.options
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "found.npz"
        sides = sides_of(session)
        processes = {name: stack.enter_context(each) for name, each in processes_of(session, sides)}
        for width in options.widths or (WIDTHS[:1] if session.quick else WIDTHS):
            for trees in options.trees or (TREES[:1] if session.quick else TREES):
                for gradients in (False, True):
                    some = {name: each for name, each in processes.items() if takes(sides[name], trees, gradients)}
                    case = {"width": width, "trees": trees, "gradients": gradients}
                    compare(session, title(width, trees, gradients), case, some, path)


def title(width: int, trees: int, gradients: bool) -> str:
    what = "with gradients" if gradients else "forward"
    return f"width {width}, {trees} trees ({forest(trees).size:,} nodes), {what}"


def sides_of(session: Session) -> dict[str, Side]:
    ours = {"backend": session.backend}
    sides = {OURS: Side("ours", ours), POINT_BY_POINT: Side("ours", {**ours, "mapping": {"n": "sequential"}})}
    if not session.options.no_peers:
        sides |= {name: each for name, each in PEERS.items() if session.backend in each.backends}
    return sides


def takes(side: Side, trees: int, gradients: bool) -> bool:
    return (side.most is None or trees <= side.most) and (side.forward or gradients)


def processes_of(session: Session, sides: Mapping[str, Side]) -> Iterator[tuple[str, Any]]:
    """Those whose libraries and interpreters are there; of the others it says so."""
    for name, side in sides.items():
        python = session.options.dynet if name == "DyNet" else None
        if python is not None and not python.exists():
            print(f"without {name}: `tox -e benchmarks-dynet --notest` makes its environment", file=sys.stderr)
        elif name.startswith("PyTorch") and find_spec("torch") is None:
            print(f"without {name}: it is not installed", file=sys.stderr)
        else:
            yield name, started(name, side.module, session.options.clock, python, **side.settings)


def compare(
    session: Session, case: str, given: Mapping[str, Any], processes: Mapping[str, Process], path: Path
) -> None:
    """Tempo against all others, which must agree with it."""
    first, results = {}, {}
    for name, process in processes.items():
        found = process.prepared(path, **given)
        first[name] = found["seconds"]
        results[name] = arrays_in(path)
        if name == OURS:
            is_inspected = "inspector" in found["parts"]
    for name, found in results.items():
        agree(results[OURS], found, name)
    clocks: dict[str, Callable[[], float]] = {name: process.seconds for name, process in processes.items()}
    if is_inspected:
        clocks[INSPECTOR] = partial(processes[OURS].seconds, "inspector")
    else:
        print(f"{session.backend}: {case}: Tempo runs it point by point", file=sys.stderr)
    timings = timings_in_turn(clocks, session.repeats)
    for name, timing in timings.items():
        session.add(case, name, unit(session), *timing.seconds)
    for name in processes:
        if name in PEERS:
            session.add(case, f"tempo / {name}", "x", *ratios(timings, OURS, name))
    session.add(case, "point by point / tempo", "x", *ratios(timings, POINT_BY_POINT, OURS))
    if is_inspected:
        session.add(case, INSPECTOR, "of its time", *ratios(timings, INSPECTOR, OURS))
    for name, seconds in first.items():
        session.add(case, f"{name}, first call", "s, first call", seconds)


def arrays_in(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def unit(session: Session) -> str:
    return "s" if session.options.clock == "wall" else "CPU s"


# -- batches of all sizes ----------------------------------------------------------------------------------------------


def measure_batches(session: Session) -> None:
    width = (session.options.widths or WIDTHS)[0]
    count, exact = (12, 3) if session.quick else (50, 10)
    case = f"width {width}, {count} forests of 128 to 4,096 nodes, with gradients"
    with tempfile.TemporaryDirectory() as folder, started(case, "batches", session.options.clock) as process:
        told = process.prepared(Path(folder) / "found.npz", width=width, count=count, exact=exact)["told"]
        parts = {
            f"{count} of them, in buckets": WHOLE,
            f"{exact} of them, in buckets": "in buckets",
            f"{exact} of them, exact sizes": "exact sizes",
        }
        clocks = {name: partial(process.seconds, part) for name, part in parts.items()}
        timings = timings_in_turn(clocks, session.repeats)
    for name, timing in timings.items():
        session.add(case, name, unit(session), *timing.seconds)
    _, in_buckets, alone = parts
    session.add(case, "in buckets / exact sizes", "x", *ratios(timings, in_buckets, alone))
    for what, number in told.items():
        batches = count if "in buckets" in what else exact
        is_time = what.startswith(("XLA,", "first pass"))
        session.add(case, f"{batches} of them, {what}", "s, first call" if is_time else "made", number)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--widths", type=int, nargs="+", help=f"of h and of inputs, default: {WIDTHS}, quick 256")
    parser.add_argument("--trees", type=int, nargs="+", help=f"of a batch, default: {TREES}, quick 8")
    parser.add_argument("--only", choices=PARTS, help="one of the two parts")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for a machine that others keep busy"
    )
    python = ROOT / ".tox" / "benchmarks-dynet" / "bin" / "python"
    parser.add_argument("--dynet", type=Path, default=python, help="the interpreter of DyNet's environment")


BENCHMARK = Benchmark(
    measure, "Tree-LSTM", repeats=7, quick_repeats=3, backends=("numpy", "jax", "torch"), add_options=options
)
