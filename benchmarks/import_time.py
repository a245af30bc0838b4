"""What `import tempo` costs beyond `import numpy`, in fresh processes that find bytecode, as installed ones do."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile

from benchmarks.harness import Benchmark, Session
from benchmarks.measure import finding_bytecode, timings_in_turn

SCRIPT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
HEAVY = "import sys, tempo; print(sorted({'jax', 'torch', 'islpy', 'transformers'} & set(sys.modules)))"


def python(script: str, bytecode: str) -> str:
    """What the script prints, run by a fresh process that keeps bytecode in the folder."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=finding_bytecode(bytecode), capture_output=True, text=True, check=True).stdout


def measure(session: Session) -> None:
    with tempfile.TemporaryDirectory() as bytecode:
        loaded = ast.literal_eval(python(HEAVY, bytecode))  # this first run writes it
        clocks = {name: lambda name=name: float(python(SCRIPT.format(name), bytecode)) for name in ("numpy", "tempo")}
        timings = timings_in_turn(clocks, session.repeats)
    beyond = [tempo - numpy for tempo, numpy in zip(timings["tempo"].seconds, timings["numpy"].seconds, strict=True)]
    session.add("import", "numpy", "s", *timings["numpy"].seconds)
    session.add("import", "tempo beyond numpy", "s", *beyond, goal=0.2)
    session.add("import", "frameworks that it loads", "modules", len(loaded), goal=0)


BENCHMARK = Benchmark(
    measure, "Importing", repeats=11, quick_repeats=3, docs=lambda row: row.what == "tempo beyond numpy"
)
