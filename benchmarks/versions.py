"""`python -m benchmarks.versions BASE NAME [options]`: is this checkout slower than another, the folder BASE?

The benchmark NAME runs for both in two processes in turn, a round of the one after a round of the other, while the
other one waits. Both run the benchmarks of this checkout, without peers, on the packages and examples of their own.
It prints, for whatever was measured in seconds or bytes, the median of the ratios within each round, head to base.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import VALUES
from benchmarks.measure import TURNS

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
LESS_IS_BETTER = ("s", "CPU s", "ms", "us", "ms/token", "us/token", "MB", "MiB")
"""What units begin with, up to a comma, where a greater figure is worse. Rates are told as the time of one."""
RATES = ("environment steps/s", "tokens/s")
Case = tuple[str, str, str, str]  # backend, case, what, unit


class Compared(NamedTuple):
    case: Case
    base: float
    ratio: float
    samples: int


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.versions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("base", type=Path, help="the checkout that is compared with")
    parser.add_argument("name", help="of the benchmark")
    options, rest = parser.parse_known_args()
    arguments = [options.name, "--repeats", str(ROUNDS), "--no-peers", *rest]
    with tempfile.TemporaryDirectory() as folder:
        found = measured({"base": options.base.resolve(), "head": ROOT}, arguments, Path(folder))
    rows = list(compared(found["base"], found["head"]))
    for row in sorted(rows, key=lambda row: row.ratio):
        print(f"{row.ratio:6.3f}x of {row.base:.4g} ({row.samples} samples)  {' | '.join(row.case)}")
    if not rows:
        raise SystemExit("nothing was measured by both")


def measured(checkouts: Mapping[str, Path], arguments: list[str], folder: Path) -> dict[str, dict[Case, list[float]]]:
    """What each checkout gives; the first begins."""
    (a_reads, b_writes), (b_reads, a_writes) = os.pipe(), os.pipe()
    pipes = {"base": (a_reads, a_writes), "head": (b_reads, b_writes)}
    processes = {
        name: started(checkout, [*arguments, "--out", str(folder / name)], folder / f"{name}-path", pipes[name])
        for name, checkout in checkouts.items()
    }
    os.write(b_writes, b".")
    for end in (a_reads, b_writes, b_reads, a_writes):
        os.close(end)
    failed = [name for name, process in processes.items() if process.wait()]
    if failed:
        raise SystemExit(f"it failed in {' and '.join(failed)}")
    return {name: dict(read(folder / name)) for name in checkouts}


def started(checkout: Path, arguments: list[str], path: Path, turns: tuple[int, int]) -> subprocess.Popen[bytes]:
    """The benchmarks of this checkout over the packages and examples of another."""
    path.mkdir()
    (path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (path / "examples").symlink_to(checkout / "examples")
    packages = {each.parent for each in checkout.glob("*/*/pyproject.toml")}
    environment = {
        **os.environ,
        TURNS: ",".join(map(str, turns)),
        "PYTHONPATH": os.pathsep.join(map(str, (path, checkout, *sorted(packages)))),
    }
    command = [sys.executable, "-P", "-m", "benchmarks", *arguments]
    return subprocess.Popen(command, env=environment, cwd=path, pass_fds=turns, stdout=subprocess.DEVNULL)


def read(folder: Path) -> Iterator[tuple[Case, list[float]]]:
    for path in folder.glob("*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                case = row["backend"], row["case"], row["what"], row["unit"]
                yield case, [float(value) for value in row[VALUES].split()]


def compared(base: Mapping[Case, list[float]], head: Mapping[Case, list[float]]) -> Iterator[Compared]:
    for case in base.keys() & head.keys():
        unit = case[-1].split(",")[0]
        if unit not in (*LESS_IS_BETTER, *RATES):
            continue
        pairs = [pair for pair in zip(base[case], head[case], strict=False) if min(pair) > 0]
        ratios = [before / after if unit in RATES else after / before for before, after in pairs]
        if ratios:
            yield Compared(case, float(np.median(base[case])), float(np.median(ratios)), len(ratios))


if __name__ == "__main__":
    main()
