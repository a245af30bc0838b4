"""`python -m benchmarks NAME [options]`: run one benchmark, from the root of the repository."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SHARED = {"__init__", "__main__", "measure"}  # a benchmark is any other module, or a package with a __main__


def main() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - SHARED
    names = sorted(modules | {path.parent.name for path in FOLDER.glob("*/__main__.py")})
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        raise SystemExit(f"usage: python -m benchmarks NAME [options]\nbenchmarks: {', '.join(names)}")
    name = sys.argv.pop(1)
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
