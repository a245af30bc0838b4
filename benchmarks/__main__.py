"""`python -m benchmarks NAME [options]`: run one benchmark, from the root of the repository.

A benchmark is a module here, or a package with a module `benchmark`, that has a `BENCHMARK`; see `harness.py`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.harness import run

FOLDER = Path(__file__).resolve().parent
SHARED = {"__init__", "__main__", "bandwidth", "figures", "harness", "measure", "plot", "versions", "weight"}


def main() -> None:
    modules = {path.stem: path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED}
    modules |= {path.parent.name: f"{path.parent.name}.benchmark" for path in FOLDER.glob("*/benchmark.py")}
    if len(sys.argv) < 2 or sys.argv[1] not in modules:
        raise SystemExit(f"usage: python -m benchmarks NAME [options]\nbenchmarks: {', '.join(sorted(modules))}")
    name = sys.argv[1]
    run(name, import_module(f"benchmarks.{modules[name]}").BENCHMARK, sys.argv[2:])


if __name__ == "__main__":
    main()
