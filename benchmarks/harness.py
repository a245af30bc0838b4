"""What all benchmarks share: options, outputs compared before anything is timed, and results as table, CSV and plot."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.measure import Clock, Timing, in_turn, ratios, turns

RESULTS = Path(__file__).resolve().parent / "results"
DOCS = RESULTS.parents[1] / "docs"
LIBRARIES = {"numpy": "numpy", "jax": "tempo_jax", "torch": "tempo_torch"}  # what a backend needs to be there
COLUMNS = ("backend", "case", "what", "unit", "median", "least", "most", "samples", "goal")
VALUES = "values"
"""The last column of the CSV: what was measured, in order."""
Run = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """Something measured: `values` one per sample, in `unit`; a goal is a bound from above."""

    backend: str
    case: str
    what: str
    unit: str
    values: tuple[float, ...]
    goal: float | None = None

    @property
    def median(self) -> float:
        return float(np.median(self.values))

    def cells(self) -> tuple[str, ...]:
        least, most = min(self.values), max(self.values)
        numbers = (f"{number:.4g}" for number in (self.median, least, most))
        goal = "" if self.goal is None else f"{self.goal:g}"
        return (self.backend, self.case, self.what, self.unit, *numbers, str(len(self.values)), goal)

    def __str__(self) -> str:
        _, _, what, unit, median, least, most, samples, goal = self.cells()
        spread = f" ({least} to {most}, {samples} samples)" if len(self.values) > 1 else ""
        return f"  {what}: {median} {unit}{spread}" + f" (goal {goal})" * bool(goal)


@dataclass(frozen=True)
class Benchmark:
    """`measure` adds its rows to a session, which is of one backend. A repeat is a round of turns.

    `docs` says which rows `docs/benchmarks.md` shows, under the title.
    """

    measure: Callable[[Session], None]
    title: str
    repeats: int
    quick_repeats: int
    backends: tuple[str, ...] = ()  # none: it measures what has no backend
    devices: tuple[str, ...] = ("cpu",)
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    docs: Callable[[Row], bool] = lambda row: row.unit == "x"


@dataclass
class Session:
    """One run of a benchmark on one backend: what was asked for, and the rows found so far."""

    options: argparse.Namespace
    repeats: int
    backend: str = ""
    rows: list[Row] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        return bool(self.options.quick)

    @property
    def device(self) -> str:
        return str(self.options.device)

    def compile(self, program: tp.Program, sizes: Mapping[str, int] | None = None) -> tp.Executable:
        return tp.compile(program, backend=self.backend, device=self.device, sizes=dict(sizes or {}))

    def backend_class(self) -> Any:
        """For a backend of one's own: `measured_peak` is a method of backends."""
        module = "tempo.backends.numpy.backend" if self.backend == "numpy" else f"tempo_{self.backend}.backend"
        return getattr(import_module(module), f"{self.backend.title()}Backend")

    def resident(self, array: np.ndarray) -> Any:
        """The array where the backend computes."""
        if self.backend == "jax":
            jax = import_module("jax")
            return jax.device_put(array, jax.devices(self.device)[0])
        if self.backend == "numpy":
            return array
        return import_module("tempo_torch.arrays").from_host(array, import_module("torch").device(self.device))

    def drawn(self, shape: tuple[int, ...], scale: float, dtype: str) -> Any:
        """Normal numbers, drawn where the backend computes."""
        if self.backend == "jax":
            jax = import_module("jax")
            draw = jax.jit(lambda key: jax.random.normal(key, shape, dtype) * scale)
            return draw(jax.device_put(jax.random.key(0), jax.devices(self.device)[0])).astype(dtype)
        torch = import_module("torch")
        return torch.empty(shape, dtype=getattr(torch, dtype), device=self.device).normal_(0, scale)

    def ready(self, outputs: Any) -> Any:
        """The outputs, once they are computed."""
        if self.backend == "jax":
            return import_module("jax").block_until_ready(dict(outputs) if isinstance(outputs, Mapping) else outputs)
        if self.device == "cuda":
            import_module("torch").cuda.synchronize()
        return outputs

    def add(self, case: str, what: str, unit: str, *values: float, goal: float | None = None) -> None:
        if not self.rows or (self.rows[-1].backend, self.rows[-1].case) != (self.backend, case):
            print(f"\n{self.backend}: {case}" if self.backend else f"\n{case}")
        row = Row(self.backend, case, what, unit, values, goal)
        self.rows.append(row)
        print(row, flush=True)

    def time(self, case: str, runs: Mapping[str, Run], calls: int = 1, clock: Clock = time.perf_counter,
             unit: str = "s") -> dict[str, Timing]:  # fmt: skip
        """All runs in turn, once each to warm up and then to be timed; a sample is the mean of `calls` calls."""
        for run in runs.values():
            run()
        return self._timed(case, runs, calls, clock, unit)

    def _timed(self, case: str, runs: Mapping[str, Run], calls: int, clock: Clock, unit: str) -> dict[str, Timing]:
        timings = in_turn(runs, self.repeats, calls, clock)
        for name, timing in timings.items():
            self.add(case, name, unit, *timing.seconds)
        return timings

    def compare(self, case: str, ours: Run, peers: Mapping[str, Run], agree: Callable[[Any, Any], None],
                goals: Mapping[str, float] | None = None, calls: int = 1) -> dict[str, Timing]:  # fmt: skip
        """`ours` against each of its peers: what they return must agree before they are timed."""
        if self.options.no_peers:
            peers = {}
        first, results = {}, {}
        for name, run in {"tempo": ours, **peers}.items():
            start = time.perf_counter()
            results[name] = run()
            first[name] = time.perf_counter() - start
        for name in peers:
            agree(results["tempo"], results[name])
        timings = self._timed(case, {"tempo": ours, **peers}, calls, time.perf_counter, "s")
        for name in peers:
            self.add(case, f"tempo / {name}", "x", *ratios(timings, "tempo", name), goal=(goals or {}).get(name))
        for name, seconds in first.items():
            self.add(case, f"{name}, first call", "s, first call", seconds)
        return timings


def to_host(array: Any) -> np.ndarray:
    """A result as an array of NumPy's, from wherever it lies, once it is computed."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def close(rtol: float, atol: float) -> Callable[[Any, Any], None]:
    """Asserts that arrays, sequences of them, or all that the peer's mapping has, are close."""

    def agree(found: Any, wanted: Any) -> None:
        if isinstance(wanted, Mapping):
            pairs = [(name, found[name], wanted[name]) for name in wanted]
        elif isinstance(wanted, (list, tuple)):
            pairs = [(str(at), each, other) for at, (each, other) in enumerate(zip(found, wanted, strict=True))]
        else:
            pairs = [("the result", found, wanted)]
        for name, each, other in pairs:
            np.testing.assert_allclose(to_host(each), to_host(other), rtol=rtol, atol=atol, err_msg=name)

    return agree


def run(name: str, benchmark: Benchmark, arguments: Sequence[str]) -> None:
    """Measure on every backend that is asked for, then write what was found.

    Executables of earlier processes are not used, unless `TEMPO_CACHE_DIR` says where they are: a first call compiles.
    """
    os.environ.setdefault("TEMPO_CACHE_DIR", "")
    options = _options(name, benchmark, arguments)
    repeats = options.repeats or (benchmark.quick_repeats if options.quick else benchmark.repeats)
    if (shared := turns()) is not None:
        shared.wait()
    if options.threads:
        import_module("torch").set_num_threads(options.threads)
    rows: list[Row] = []
    for backend in options.backend or [""]:
        session = Session(options, repeats, backend, rows)
        benchmark.measure(session)
    stem = "-".join([name, options.device, *(options.backend if options.chosen else []), *["quick"] * options.quick])
    command = shlex.join(["python", "-m", "benchmarks", name, *arguments])
    write(options.out / stem, command, rows)
    if options.docs:
        _record(benchmark, _without(("--docs", "--keep", "--out"), command), rows, options.docs)


def _without(options: Sequence[str], command: str) -> str:
    """The command without where it writes to."""
    words = shlex.split(command)
    for option in options:
        while option in words:
            at = words.index(option)
            valued = at + 1 < len(words) and not words[at + 1].startswith("-")
            del words[at : at + 1 + valued]
    return shlex.join(words)


def _record(benchmark: Benchmark, command: str, rows: Sequence[Row], folder: Path) -> None:
    """What was found takes the place of what the command gave before, in the documentation."""
    from benchmarks.figures import Figure, Measurement, record  # draws

    figures = (
        Figure(
            row.backend, row.case, row.what, row.unit, *map(_rounded, (row.median, min(row.values), max(row.values)))
        )
        for row in rows
        if benchmark.docs(row)
    )
    record(Measurement(benchmark.title, command, date.today().isoformat(), machine(), tuple(figures)), folder)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _options(name: str, benchmark: Benchmark, arguments: Sequence[str]) -> argparse.Namespace:
    summary = (sys.modules[benchmark.measure.__module__].__doc__ or "").strip()
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}", description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=benchmark.devices)
    parser.add_argument("--quick", action="store_true", help="less of everything: it ends within two minutes")
    parser.add_argument("--repeats", type=int, help=f"rounds ({benchmark.repeats}, quick {benchmark.quick_repeats})")
    parser.add_argument("--threads", type=int, help="of PyTorch; more than there are idle cores make it slow")
    parser.add_argument("--no-peers", action="store_true", help="leave out what Tempo is compared with")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--docs", type=Path, nargs="?", const=DOCS, help="put what is found into docs/benchmarks.md")
    if benchmark.backends:
        parser.add_argument("--backend", nargs="+", choices=benchmark.backends, help="default: those installed")
    benchmark.add_options(parser)
    options = parser.parse_args(arguments)
    options.chosen = bool(getattr(options, "backend", None))
    if not options.chosen:
        options.backend = [name for name in benchmark.backends if _there(name) and not _elsewhere(name, options.device)]
    return options


def _there(backend: str) -> bool:
    return find_spec(LIBRARIES[backend]) is not None


def _elsewhere(backend: str, device: str) -> bool:
    return backend == "numpy" and device != "cpu"


# -- what is written ---------------------------------------------------------------------------------------------------


def write(stem: Path, command: str, rows: Sequence[Row]) -> None:
    """`stem`.csv, .md and, where matplotlib is installed, .png."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with stem.with_suffix(".csv").open("w", newline="") as file:
        values = (" ".join(map(repr, map(float, row.values))) for row in rows)
        lines = ((*row.cells(), each) for row, each in zip(rows, values, strict=True))
        csv.writer(file).writerows([(*COLUMNS, VALUES), *lines])
    stem.with_suffix(".md").write_text(table(command, rows))
    kinds = ["csv", "md"]
    if find_spec("matplotlib"):
        from benchmarks.plot import plot

        plot(stem.with_suffix(".png"), stem.name, rows)
        kinds.append("png")
    shown = stem.relative_to(Path.cwd()) if stem.is_relative_to(Path.cwd()) else stem
    print(f"\nresults: {', '.join(f'{shown}.{kind}' for kind in kinds)}")


def table(command: str, rows: Sequence[Row]) -> str:
    """Markdown: the command, the machine, and a row per figure."""
    lines = [f"`{command}`", "", machine(), "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
    return "\n".join([*lines, *(_line(row.cells()) for row in rows), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_TELLING = ("GenuineIntel", "AuthenticAMD", "avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine() -> str:
    """Cores, whose and what they multiply by (as Linux tells it), versions, and how busy it was."""
    found = [f"Python {platform.python_version()}"]
    for library in ("numpy", "jax", "torch"):
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            continue
    load = f"load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else "load unknown"
    told = Path("/proc/cpuinfo")
    flags = told.read_text().split() if told.exists() else ()
    has = "".join(f" {each}" for each in _TELLING if each in flags)
    return f"{platform.system()} {platform.machine()}{has}, {os.cpu_count()} cores, {load}; {', '.join(found)}"
