"""What `import tempo` costs beyond `import numpy`, each in a fresh process."""

from __future__ import annotations

import ast
import subprocess
import sys

from benchmarks.harness import Benchmark, Session
from benchmarks.measure import timings_in_turn

SCRIPT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
HEAVY = "import sys, tempo; print(sorted({'jax', 'torch', 'islpy', 'transformers'} & set(sys.modules)))"


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def measure(session: Session) -> None:
    clocks = {name: lambda name=name: float(python(SCRIPT.format(name))) for name in ("numpy", "tempo")}
    timings = timings_in_turn(clocks, session.repeats)
    beyond = [tempo - numpy for tempo, numpy in zip(timings["tempo"].seconds, timings["numpy"].seconds, strict=True)]
    session.add("import", "numpy", "s", *timings["numpy"].seconds)
    session.add("import", "tempo beyond numpy", "s", *beyond, goal=0.2)
    session.add("import", "frameworks that it loads", "modules", len(ast.literal_eval(python(HEAVY))), goal=0)


BENCHMARK = Benchmark(
    measure, "Importing", repeats=11, quick_repeats=3, docs=lambda row: row.what == "tempo beyond numpy"
)
