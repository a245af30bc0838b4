"""What `import tempo` costs beyond `import numpy`, each in a fresh process."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.measure import show, timings_in_turn

SCRIPT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
HEAVY = "import sys, tempo; print(sorted({'jax', 'torch', 'islpy', 'transformers'} & set(sys.modules)))"


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    clocks = {name: lambda name=name: float(python(SCRIPT.format(name))) for name in ("numpy", "tempo")}
    timings = timings_in_turn(clocks, repeats)
    show("import", timings)
    print(f"  tempo beyond numpy: {timings['tempo'].median - timings['numpy'].median:.3f} s (goal 0.2 s)")
    print(f"  frameworks loaded by import tempo: {python(HEAVY).strip()}")


if __name__ == "__main__":
    main()
