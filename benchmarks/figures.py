"""What was measured last, as `docs/benchmarks.json` keeps it, and the page and the picture that are made of it.

A benchmark that runs with `--docs` puts its figures in the place of those that the same command gave before; then
`docs/benchmarks.md` and `docs/images/benchmarks.svg` are written anew. Nobody edits the three by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.harness import DOCS
from benchmarks.plot import ratios_by_workload

STORE = "benchmarks.json"
PAGE = "benchmarks.md"
PICTURE = "images/benchmarks.svg"
EVEN = 1.05
"""Up to here a ratio is no loss: a twentieth is what repeated runs differ by."""


@dataclass(frozen=True)
class Figure:
    """The median of something measured, with the least and the most of it; a figure may be a range alone."""

    backend: str
    case: str
    what: str
    unit: str
    median: float | None
    least: float | None = None
    most: float | None = None

    @property
    def is_ratio(self) -> bool:
        """Whether it is the time, or the memory, that a peer takes 1 of."""
        return self.unit == "x" and self.what.startswith("tempo / ")

    @property
    def typical(self) -> float:
        """The median, or the worst where there is but a range."""
        found = self.median if self.median is not None else self.most
        assert found is not None
        return found

    def cells(self) -> tuple[str, ...]:
        both = self.least is not None and self.most is not None
        spread = f"{self.least:.4g} to {self.most:.4g}" if both else ""
        median = "" if self.median is None else f"{self.median:.4g}"
        return (self.backend, self.case, self.what, median, spread, self.unit)


@dataclass(frozen=True)
class Measurement:
    """What one command gave on one day; `title` is of the benchmark, which may be run by several commands."""

    title: str
    command: str
    date: str
    machine: str
    figures: tuple[Figure, ...]


def read(folder: Path = DOCS) -> tuple[Measurement, ...]:
    """All measurements, in the order in which they are shown."""
    return tuple(
        Measurement(**{**each, "figures": tuple(Figure(**figure) for figure in each["figures"])})
        for each in json.loads((folder / STORE).read_text())
    )


def record(new: Measurement, folder: Path = DOCS) -> None:
    """Put a measurement in the place of what its command gave before, and write page and picture."""
    kept = [new if each.command == new.command else each for each in read(folder)]
    if new not in kept:
        titles = [each.title for each in kept]
        beside = len(titles) - titles[::-1].index(new.title) if new.title in titles else len(kept)
        kept.insert(beside, new)
    write(kept, folder)


def write(measurements: Sequence[Measurement], folder: Path = DOCS) -> None:
    (folder / STORE).write_text(_text(measurements))
    (folder / PAGE).write_text(page(measurements))
    draw(measurements, folder / PICTURE)


def _text(measurements: Iterable[Measurement]) -> str:
    """JSON with a figure to a line, so that what has changed is seen."""
    written = []
    for each in measurements:
        head = {name: value for name, value in asdict(each).items() if name != "figures"}
        lines = ",\n".join(f"   {json.dumps(asdict(figure))}" for figure in each.figures)
        written.append(f'{json.dumps(head, indent=1)[:-2]},\n "figures": [\n{lines}\n ]\n}}')
    return f"[{', '.join(written)}]\n"


# -- the page ----------------------------------------------------------------------------------------------------------

HEAD = """# Measured

Written by `python -m benchmarks NAME ... --docs` ([how](../benchmarks/README.md)), which replaces the figures
of the same command in `benchmarks.json` and draws the picture. Medians, with the least and the most where they were
kept. What is compared gives the same results and is run in turn; a ratio is the median of the ratios within each round:
below 1 Tempo takes less than its peer. What the examples learn is told in [training and acting](training.md).

![The time that Tempo takes, relative to peers](images/benchmarks.svg)

"""

UNMEASURED = """
Beside these: on JAX a program's first run waits for XLA. A run in chunks on JAX where calls dominate (one small layer)
took 1.9 times a whole run in chunks of 16 tokens, and 8.6 times token by token, in November 2026; no benchmark repeats
that yet.
"""
COLUMNS = ("backend", "case", "what", "median", "spread", "unit")


def page(measurements: Sequence[Measurement]) -> str:
    sections = [HEAD, "## Where it loses\n\n", _losses(measurements), UNMEASURED]
    for title, found in groupby(measurements, key=lambda each: each.title):
        sections.append(f"\n## {title}\n")
        sections += [_measurement(each) for each in found]
    return "".join(sections)


def _losses(measurements: Sequence[Measurement]) -> str:
    """Every ratio to a peer that is above 1 by more than runs differ, the greatest first."""
    lost = [(figure, each) for each in measurements for figure in each.figures if figure.is_ratio]
    lost = [(figure, each) for figure, each in lost if figure.typical > EVEN]
    lost.sort(key=lambda pair: -pair[0].typical)
    rows = [(*figure.cells()[:5], f"`{each.command}`") for figure, each in lost]
    return _table((*COLUMNS[:5], "command"), rows)


def _measurement(each: Measurement) -> str:
    rows = [figure.cells() for figure in each.figures]
    return f"\n`{each.command}`, {each.date}, {each.machine}:\n\n{_table(COLUMNS, rows)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(measurements: Iterable[Measurement], path: Path) -> None:
    """All ratios to peers, a line to a benchmark, a point to a figure."""
    found: dict[str, list[tuple[str, float]]] = {}
    for each in measurements:
        points = [(figure.backend, figure.typical) for figure in each.figures if figure.is_ratio]
        if points:
            found.setdefault(each.title, []).extend(points)
    ratios_by_workload(path, found)
