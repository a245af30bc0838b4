"""Every benchmark runs; what it measures is not asserted on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["import_time", "--repeats", "1"], "tempo beyond numpy"),
        (["numpy_loop", "--steps", "200", "--repeats", "1"], "tempo / plain"),
        (["front_end", "--repeats", "1"], "32 layers"),
        (["models", "--quick", "--repeats", "1", "--only", "batch 1,"], "tempo / peer"),
        (["device_loop", "--backend", "numpy", "--steps", "200", "--repeats", "1"], "tempo / by hand"),
        (["host_step", "--backend", "numpy", "--steps", "200", "--repeats", "1"], "beyond the function"),
        (["compile_time", "--backend", "numpy", "--repeats", "1"], "lowering"),
        (["operators", "--sizes", "20"], "20 operators"),
    ],
)
def test_benchmark(arguments: list[str], printed: str) -> None:
    pytest.importorskip("tokenizers")
    done = run_benchmark(*arguments)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_an_unknown_name_lists_the_benchmarks() -> None:
    done = run_benchmark("nothing")
    assert done.returncode == 1
    for name in (
        "compile_time",
        "decode",
        "device_loop",
        "front_end",
        "host_step",
        "models",
        "numpy_loop",
        "operators",
        "scheduling",
    ):
        assert name in done.stderr
