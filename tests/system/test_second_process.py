"""What a process has planned is on disk for the next one, which plans nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np, tempo as tp
from tempo.compiler import driver

planned, plain = [], driver.planned
driver.planned = lambda *arguments: planned.append(1) or plain(*arguments)
with tp.Program("kept") as program:
    t = tp.dim("t")
    k = tp.recurrent("k", (4,), (t,))
    k[0] = tp.constant(np.arange(4, dtype=np.float32))
    k[t + 1] = tp.softmax(k[0 : t + 1].sum(axis=0), axis=0)
    tp.output("k", k)
total = float(np.asarray(tp.compile(program)(sizes={"t": 6})["k"]).sum())
print(len(planned), total)
"""


def process(folder: Path) -> list[str]:
    environment = {**os.environ, "TEMPO_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_plans_nothing(tmp_path: Path):
    first, again = process(tmp_path), process(tmp_path)
    assert first[0] == "1"
    assert again == ["0", first[1]]
